"""All of silver in one pass: each entry is one row, with a column for each table that holds the entry's rows of it.

A pass over the entries for each table costs a job of Spark each, which is most of what a small batch costs. The expressions are
those of `silver`, so both ways make the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import GAP, RAW, TABLES
from crewel.pipeline.transformations import silver
from crewel.pipeline.transformations.shapes import EVENTS, FACTS, GROUP_DDL, RUN, Event, Fact

WHY: Final = "why_"
"""What a column begins with that tells why an entry could not be understood; the name of a table follows."""
GROUPS: Final = TABLES["event_groups"].name

_PARSED: Final = "json_"
_FIELD: Final = re.compile(r"\bd\.")


def wide(raw: DataFrame, names: Collection[str]) -> DataFrame:
    """Return the entries, with the rows of these tables of silver as arrays, null or empty where there are none. The columns of
    the entry itself are no part of the rows (`PLACE`, `BYTES`). For events `names` has the table of groups, and all come."""
    shapes = [each for each in FACTS if each.table.name in names]
    parsed = [
        f.when(silver.is_of(each), silver.typed(f"v bigint, {each.ddl}")).alias(f"{_PARSED}{each.table.name}")
        for each in shapes
    ]
    if GROUPS in names:
        parsed.append(f.when(f.col("key") == "events", silver.typed(GROUP_DDL)).alias(f"{_PARSED}{GROUPS}"))
    frame = raw.select(*RAW.names, *parsed)
    whys = [_why_fact(each) for each in shapes] + ([_why_groups()] if GROUPS in names else [])
    frame = frame.select("*", *whys)
    rows = [_fact_rows(each) for each in shapes]
    if GROUPS in names:
        rows += [_group_rows(), *map(_event_rows, EVENTS)]
    return frame.select(*RAW.names, *(f"{WHY}{name}" for name in _read(names)), *_others(names), *rows)


def _others(names: Collection[str]) -> list[Column]:
    """Return what else `split` needs: why a fact of no known type is strange, what a gap says, how many events there are."""
    told = f.from_json("payload", "before string, lost bigint")
    is_gap = f.col("key").endswith(GAP)
    found = [silver.why_strange().alias(f"{WHY}strange")]
    if TABLES["gaps"].name in names:
        found.append(f.when(is_gap, told["before"]).alias("gap_before"))
        found.append(f.when(is_gap, told["lost"]).alias("gap_lost"))
    if GROUPS in names:
        found.append(_of("size(d.events)", GROUPS).alias("all_bytes"))
    return found


def _read(names: Collection[str]) -> list[str]:
    return [*(each.table.name for each in FACTS if each.table.name in names), *([GROUPS] if GROUPS in names else [])]


def _of(text: str, name: str) -> Column:
    """Return an expression over the JSON `d` of an entry, as one over the parsed column of a table."""
    return f.expr(_FIELD.sub(f"{_PARSED}{name}.", text))


def _why_fact(shape: Fact) -> Column:
    name = shape.table.name
    why = silver.why_fact(_of("d.v", name), _of(shape.sound, name), _of(f"d.{silver.BAD}", name))
    return f.when(silver.is_of(shape), why).alias(f"{WHY}{name}")


def _why_groups() -> Column:
    why = silver.why_groups(lambda text: _of(text, GROUPS))
    return f.when(f.col("key") == "events", why).alias(f"{WHY}{GROUPS}")


def _fact_rows(shape: Fact) -> Column:
    name = shape.table.name
    is_read = silver.is_of(shape) & f.col(f"{WHY}{name}").isNull()
    return f.when(is_read, _of(shape.rows, name)).alias(name)


def _is_group() -> Column:
    return (f.col("key") == "events") & silver.is_read(lambda text: _of(text, GROUPS))


def _group_rows() -> Column:
    columns = {**RUN, **silver.GROUP_COLUMNS}
    row = ", ".join(f"'{name}', {text}" for name, text in columns.items())
    return f.when(_is_group(), _of(f"array(named_struct({row}))", GROUPS)).alias(GROUPS)


def _event_rows(event: Event) -> Column:
    columns = {**RUN, **event.columns}
    row = ", ".join(f"'{name}', {text}" for name, text in columns.items())
    every = f"transform(d.events, (e, i) -> CASE WHEN {silver.sound(event)} THEN named_struct('index', i, {row}) END)"
    return f.when(_is_group(), _of(f"filter({every}, r -> r IS NOT NULL)", GROUPS)).alias(event.table.name)
