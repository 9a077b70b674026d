"""Silver: what facts and events say, typed, one row a message, pattern or receiver.

An entry that cannot be understood makes no rows, stops nothing, and is in `corrupt` with the reason. Of a group of events of
which some cannot be understood, the others make their rows all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import BYTES, EVENT_VERSIONS, GAP, PLACE, RAW, TABLES, Table
from crewel.pipeline.transformations.shapes import EVENTS, FACT_TYPES, FACT_VERSIONS, FACTS, GROUP_DDL, RUN, Event, Fact

_CORRUPT: Final = TABLES["corrupt"]
_GROUPS: Final = TABLES["event_groups"]
_GAPS: Final = TABLES["gaps"]
BAD: Final = "_bad"
"""The field of parsed JSON that holds the text if it could not be parsed."""
_LENIENT: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}

GROUP_COLUMNS: Final[Mapping[str, str]] = {
    "since": "timestamp_millis(d.`from`)",
    "until": "timestamp_millis(d.until)",
    "lost": "coalesce(d.lost, 0L)",
    "events": "size(d.events)",
}
"""The columns that describe a group, beside the server's."""


def tables(raw: DataFrame) -> Mapping[str, DataFrame]:
    """Return all tables that are made of entries, by name."""
    made = (facts(raw), events(raw))
    return LazyMapping(
        {
            **{name: partial(each.__getitem__, name) for each in made for name in each},
            _CORRUPT.name: partial(corrupt, raw),
            _GAPS.name: partial(gaps, raw),
        }
    )


def facts(raw: DataFrame) -> Mapping[str, DataFrame]:
    """Return the tables that are made of facts, by name."""

    def rows(shape: Fact) -> DataFrame:
        return fact_rows(parsed_fact(raw, shape), shape)

    return LazyMapping({each.table.name: partial(rows, each) for each in FACTS})


def events(raw: DataFrame) -> Mapping[str, DataFrame]:
    """Return the tables that are made of events, by name."""
    return group_rows(cache(lambda: parsed_groups(raw)))


def corrupt(raw: DataFrame) -> DataFrame:
    """Return all entries of facts and events that could not be understood."""
    parsed = [*(parsed_fact(raw, each) for each in FACTS), parsed_groups(raw)]
    return reduce(DataFrame.unionByName, (strange(raw), *(corrupt_of(each) for each in parsed)))


def parsed_fact(raw: DataFrame, shape: Fact) -> DataFrame:
    """Return the facts of a table with their JSON `d`, and `why` they cannot be understood: null if they can."""
    parsed = raw.where(is_of(shape)).select(*RAW.names, typed(f"v bigint, {shape.ddl}").alias("d"))
    return parsed.select("*", why_fact(f.col("d.v"), f.expr(shape.sound), f.col(f"d.{BAD}")).alias("why"))


def is_of(shape: Fact) -> Column:
    """Return whether an entry is a fact of a table."""
    types = ", ".join(map(repr, shape.types))
    return f.expr(f"key = 'facts' AND t IN ({types})")  # in one call of Java, where `isin` has some for each type


def typed(ddl: str) -> Column:
    """Return the payload of an entry as JSON of these fields."""
    return f.from_json("payload", f"{ddl}, {BAD} string", _LENIENT)


def why_fact(version: Column, is_sound: Column, bad: Column) -> Column:
    """Return why a fact cannot be understood, from parts of its JSON; null if it can."""
    return _why(f.coalesce(version, f.lit(1)).isin(*FACT_VERSIONS), is_sound, version, bad)


def fact_rows(parsed: DataFrame, shape: Fact) -> DataFrame:
    """Return the rows of a table, from parsed facts."""
    rows = f.when(f.col("why").isNull(), f.expr(shape.rows))
    share = f.try_divide("bytes", f.size(rows))  # a fact of nothing has no rows
    return _exploded(parsed.select(*_place(), share.alias(BYTES.name), rows.alias("rows")), shape.table)


def parsed_groups(raw: DataFrame) -> DataFrame:
    """Return the groups of events with their JSON `d`, `is_read` if it is a group, and `why` something in it cannot be
    understood: null if all can."""
    parsed = raw.where(f.col("key") == "events").select(*RAW.names, typed(GROUP_DDL).alias("d"))
    return parsed.select("*", is_read(f.expr).alias("is_read"), why_groups(f.expr).alias("why"))


def is_read(of: Callable[[str], Column]) -> Column:
    """Return whether an entry is a group of events. `of` makes a column of an expression over its JSON `d`."""
    return _readable() & _is_known(of) & _is_group(of)


def why_groups(of: Callable[[str], Column]) -> Column:
    """Return why something in a group of events cannot be understood; null if all can. `of` is as in `is_read`."""
    known = ", ".join(repr(each.type) for each in EVENTS)
    unknown = of(f"exists(d.events, e -> NOT coalesce(e.type IN ({known}), false))")
    odd = of("exists(d.events, e -> NOT (" + " OR ".join(f"({sound(each)})" for each in EVENTS) + "))")
    why = _why(_is_known(of), _is_group(of), of("d.v"), of(f"d.{BAD}"))
    return f.coalesce(why, f.when(unknown, f.lit("unknown type")).when(odd, f.lit("wrong fields")))


def _is_known(of: Callable[[str], Column]) -> Column:
    return of("d.v").isin(*EVENT_VERSIONS)


def _is_group(of: Callable[[str], Column]) -> Column:
    needed = ("node", "token", "n", "`from`", "until", "events")
    return of(" AND ".join(f"d.{name} IS NOT NULL" for name in needed))


def group_rows(parsed: Callable[[], DataFrame]) -> Mapping[str, DataFrame]:
    """Return the tables of events by name, from parsed groups."""
    run = [f.expr(text).alias(name) for name, text in RUN.items()]

    def groups() -> DataFrame:
        return (
            parsed()
            .where("is_read")
            .select(
                *_place(),
                *run,
                *(f.expr(text).alias(name) for name, text in GROUP_COLUMNS.items()),
            )
            .select(*_GROUPS.names)
        )

    def singles(event: Event) -> DataFrame:
        found = f.when(f.col("is_read"), f.col("d.events"))
        share = f.try_divide("bytes", f.size("d.events")).alias(BYTES.name)
        columns = (f.expr(text).alias(name) for name, text in event.columns.items())
        return (
            parsed()
            .select(*_place(), share, "d", f.posexplode_outer(found).alias("index", "e"))
            .where(f.expr(sound(event)))
            .select(*(name.name for name in PLACE), BYTES.name, "index", *run, *columns)
            .select(*event.table.names)
        )

    return LazyMapping({_GROUPS.name: groups, **{each.table.name: partial(singles, each) for each in EVENTS}})


def gaps(raw: DataFrame) -> DataFrame:
    """Return where entries were trimmed before they were read."""
    told = f.from_json("payload", "before string, lost bigint")
    return (
        raw.where(f.col("key").endswith(GAP))
        .select(f.expr(f"left(key, length(key) - {len(GAP)})").alias("key"), *_place(), told.alias("d"))
        .select(
            "key",
            *(column.name for column in PLACE),
            f.col("d.before").alias("before"),
            f.split_part(f.col("d.before"), f.lit("-"), f.lit(1)).cast("bigint").alias("before_ms"),
            f.col("d.lost").alias("lost"),
        )
        .select(*_GAPS.names)
    )


def strange(raw: DataFrame) -> DataFrame:
    """Return the facts of no type that is known."""
    return _corrupt(raw.select("*", why_strange().alias("why")).where(f.col("why").isNotNull()))


def why_strange() -> Column:
    """Return why a fact of no known type cannot be understood; null for all other entries."""
    is_strange = f.col("t").isNull() | ~f.col("t").isin(*sorted(FACT_TYPES))
    return f.when((f.col("key") == "facts") & is_strange, f.coalesce(_damage(), f.lit("unknown type")))


def corrupt_of(parsed: DataFrame) -> DataFrame:
    """Return the entries that could not be understood, from parsed facts or groups."""
    return _corrupt(parsed.where(f.col("why").isNotNull()))


def _why(is_known: Column, is_sound: Column, version: Column, bad: Column) -> Column:
    """Return why an entry cannot be understood; null if it can."""
    is_object = f.from_json("payload", "map<string, string>").isNotNull()
    return f.coalesce(
        _damage(),
        f.when(f.coalesce(is_known & is_sound, f.lit(False)) & bad.isNull(), f.lit(None)).otherwise(
            f.when(~is_object, "not JSON")
            .when(~f.coalesce(is_known, f.lit(False)) & version.isNotNull(), "unknown version")
            .otherwise("wrong fields")
        ),
    )


def _damage() -> Column:
    """Return why the payload itself cannot be read; null if it can."""
    return (
        f.when(f.col("payload").isNull(), "no payload")
        .when(~f.col("is_whole"), "too long")
        .when(~f.col("is_text"), "not text")
    )


def _readable() -> Column:
    return _damage().isNull()


def sound(event: Event) -> str:
    """Return whether `e` is an event of this type with all the fields that it must have."""
    needed = {column.name for column in event.table.columns if not column.nullable}
    there = (f"({text}) IS NOT NULL" for name, text in event.columns.items() if name in needed)
    return " AND ".join((f"e.type = '{event.type}'", *there))


def _place() -> list[Column]:
    return [f.col("id").alias("place"), *(f.col(column.name) for column in PLACE[1:])]


def _exploded(frame: DataFrame, table: Table) -> DataFrame:
    """Return one row for each of `rows`. They are exploded with what has none and then filtered: a filter before would type all
    of them twice."""
    place = [column.name for column in (*PLACE, BYTES)]
    own = [f.col(f"row.{name}") for name in table.names if name not in place]
    return (
        frame.select(*place, f.explode_outer("rows").alias("row")).where(f.col("row").isNotNull()).select(*place, *own)
    )


def _corrupt(frame: DataFrame) -> DataFrame:
    return frame.select("key", *_place(), "why", "t", "bytes", "payload").select(*_CORRUPT.names)
