"""Whether the tables of silver have what bronze makes of them: another program may have removed, added or changed rows.

Each row of silver has its share of the bytes of its entry. So a sum over each table tells whether rows were added or removed,
without a look at any JSON. `differences` then makes the rows again, and compares each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial, reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import BYTES, RAW, TABLES, Table
from crewel.pipeline.transformations.shapes import FACTS

_TOLERANCE: Final = 0.01
"""Bytes by which two sums of the same shares may differ, because they are added up in another order."""
_MOST_EVIDENCE: Final = 10
_CORRUPT: Final = TABLES["corrupt"]
_FACTS: Final = {each.table.name: each.types for each in FACTS}


class Difference(NamedTuple):
    """How a table differs from what bronze makes of it."""

    table: str
    lacks: int
    """Rows that bronze makes, and that it does not have."""
    more: int
    """Rows that it has, and that bronze does not make."""
    changed: int
    """Rows with other values."""
    places: list[str]
    """The places of some of these rows."""


def shares(raw: DataFrame, silver: Mapping[str, DataFrame]) -> dict[str, tuple[float, float]]:
    """Return the bytes of the facts of bronze that were understood, and those of the rows of silver, by table; both are of the
    same time. Tables without either are left out."""
    types = {each: name for name, types in _FACTS.items() for each in types}
    by_type = f.create_map(*(f.lit(text) for pair in types.items() for text in pair))[f.col("t")]

    def counted(rows: DataFrame, table: Column, made: float, kept: float) -> DataFrame:
        shares = {"made": made, "kept": kept}
        return rows.select(
            table.alias("table"), *((f.lit(sign) * f.col("bytes")).alias(name) for name, sign in shares.items())
        )

    is_fact = (f.col("key") == "facts") & f.col("t").isin(*types)
    parts = [
        counted(raw.where(is_fact), by_type, 1.0, 0.0),
        counted(silver[_CORRUPT.name].where(is_fact), by_type, -1.0, 0.0),
        *(counted(silver[name], f.lit(name), 0.0, 1.0) for name in _FACTS),
    ]
    sums = (
        reduce(DataFrame.unionByName, parts)
        .groupBy("table")
        .agg(f.sum("made").alias("made"), f.sum("kept").alias("kept"))
    )
    return {row["table"]: (row["made"] or 0.0, row["kept"] or 0.0) for row in sums.collect()}


def is_suspicious(shares: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether a table has more bytes or fewer than its facts."""
    return any(abs(made - kept) > _TOLERANCE for made, kept in shares.values())


def of_messages(tables: Mapping[str, DataFrame], ids: DataFrame) -> Mapping[str, DataFrame]:
    """Return the rows of these messages, (log_id), of tables that have a message; all rows of the others."""

    def some(name: str) -> DataFrame:
        rows = tables[name]
        return rows.join(f.broadcast(ids), "log_id", "left_semi") if "log_id" in TABLES[name].names else rows

    return LazyMapping({name: partial(some, name) for name in tables})


def facts_since(silver: Mapping[str, DataFrame], day: date | None) -> Mapping[str, DataFrame]:
    """Return the tables of facts, and `corrupt`, from a day on: what bronze has no more, silver may still have."""

    def since(name: str) -> DataFrame:
        return silver[name] if day is None else silver[name].where(f.col("date") >= f.lit(day))

    return LazyMapping({name: partial(since, name) for name in (*_FACTS, _CORRUPT.name)})


def differences(
    made: Mapping[str, DataFrame], kept: Mapping[str, DataFrame], names: Iterable[str] | None = None
) -> list[Difference]:
    """Return how these tables, or all of them, differ from what bronze makes, those only that do."""
    found = (_difference(TABLES[name], made[name], kept[name]) for name in (kept if names is None else names))
    return [each for each in found if each.lacks or each.more or each.changed]


def _difference(table: Table, made: DataFrame, kept: DataFrame) -> Difference:
    key = [name for name in table.key if name in table.names]
    others = [
        name for name in table.names if name not in (*key, BYTES.name, *(each.name for each in RAW.columns), "place")
    ]
    place = "place" if "place" in table.names else "id"
    ours, theirs = made.select("*", f.lit(1).alias("_made")), kept.select("*", f.lit(1).alias("_kept"))
    # A column that was added to a table later is null in its older rows.
    is_other = [f.col(f"theirs.{name}").isNotNull() & ~_same(name) for name in others]
    changed = f.coalesce(reduce(Column.__or__, is_other, f.lit(False)), f.lit(False))
    pairs = (
        _numbered(ours, key)
        .alias("ours")
        .join(_numbered(theirs, key).alias("theirs"), [*key, "_copy"], "full")
        .select(
            f.coalesce(f"ours.{place}", f"theirs.{place}").alias("_at"),
            f.col("_kept").isNull().alias("_lacks"),
            f.col("_made").isNull().alias("_more"),
            (f.col("_made").isNotNull() & f.col("_kept").isNotNull() & changed).alias("_changed"),
        )
        .where("_lacks OR _more OR _changed")
    )
    row = pairs.agg(
        *(f.count_if(f.col(f"_{name}")).alias(name) for name in ("lacks", "more", "changed")),
        f.slice(f.array_sort(f.collect_set("_at")), 1, _MOST_EVIDENCE).alias("places"),
    ).collect()[0]
    return Difference(table.name, row["lacks"], row["more"], row["changed"], row["places"])


def _same(name: str) -> Column:
    return f.col(f"ours.{name}").eqNullSafe(f.col(f"theirs.{name}"))


def _numbered(rows: DataFrame, key: Iterable[str]) -> DataFrame:
    """Return rows with the number of each among those of the same key: what is there twice is no pair with one."""
    number = f.row_number().over(Window.partitionBy(*key).orderBy(f.lit(0)))
    return rows.withColumn("_copy", number)


def findings(found: Iterable[Difference]) -> list[tuple[str, None, None, str, None, list[str], str]]:
    """Return the rows of `audit` for tables that differ."""
    return [("damaged table", None, None, f"silver/{each.table}", None, each.places, _words(each)) for each in found]


def _words(found: Difference) -> str:
    parts = (
        (found.lacks, "lacks {:,} rows that bronze has"),
        (found.more, "has {:,} rows that bronze does not have"),
        (found.changed, "has {:,} rows with other values than bronze"),
    )
    said = " and ".join(words.format(number) for number, words in parts if number)
    return f"The table silver/{found.table} {said}; another program has written to it"
