"""What the live job and a backfill have in common: entries that were read become a part of each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from crewel.pipeline.schemas import GAP, RAW, TABLES, Table
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze, minutes, silver
from crewel.pipeline.transformations.shapes import EVENTS, FACT_TYPES, FACTS

Progress = Callable[[str], None]
"""Takes a line of words: how far a job is."""

MADE: Final = (
    *(each.table for each in FACTS),
    TABLES["event_groups"],
    *(each.table for each in EVENTS),
    TABLES["corrupt"],
    TABLES["gaps"],
    TABLES["minutes"],
)
"""The tables that `write` adds to."""

_ENTRIES_A_TASK: Final = 200_000


@dataclass(frozen=True, slots=True)
class Found:
    """How many entries there are of each stream and type."""

    counts: Mapping[tuple[str, str | None], int]

    @property
    def entries(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def of(self, key: str, types: Collection[str] | None = None) -> int:
        """Those of a stream, and if asked for of some of its types."""
        counted = ((t, number) for (stream, t), number in self.counts.items() if stream == key)
        return sum(number for t, number in counted if types is None or t in types)

    @property
    def strange(self) -> int:
        """The facts of no known type."""
        return sum(number for (stream, t), number in self.counts.items() if stream == "facts" and t not in FACT_TYPES)


@dataclass(slots=True)
class Written:
    """What was written: the tables that have something of the part, and how many entries could not be understood."""

    tables: list[Table] = field(default_factory=list)
    corrupt: int = 0


def quiet(_: str) -> None:
    """Tell no one."""


def found(raw: DataFrame) -> Found:
    """Count what there is."""
    rows = raw.groupBy("key", "t").agg(f.count("*").alias("number")).collect()
    return Found({(row["key"], row["t"]): row["number"] for row in rows})


def write_raw(tables: Tables, raw: DataFrame, part: str, entries: int | None = None) -> None:
    """Write bronze. If it is said how many entries there are, they come into as few files as is good for them."""
    tables.write(RAW, bronze.arranged(raw if entries is None else raw.coalesce(_tasks(entries))), part)


def write(tables: Tables, raw: DataFrame, has: Found, part: str, progress: Progress = quiet) -> Written:
    """Write silver and minutes of some entries, which are read several times. The same part again changes nothing."""
    written = Written()
    strange: list[DataFrame] = []
    for shape in FACTS:
        entries = has.of("facts", shape.types)
        if not entries:
            continue
        progress(f"{shape.table.name}: {entries:,} facts")
        seen = Observation()
        parsed = silver.parsed_fact(raw.coalesce(_tasks(entries)), shape)
        watched = parsed.observe(seen, f.count_if(f.col("why").isNotNull()).alias("corrupt"))
        tables.write(shape.table, silver.fact_rows(watched, shape), part)
        written.tables.append(shape.table)
        if seen.get["corrupt"]:
            strange.append(silver.corrupt_of(parsed))
            written.corrupt += seen.get["corrupt"]
    if has.strange:
        strange.append(silver.strange(raw))
        written.corrupt += has.strange
    if groups := has.of("events"):
        progress(f"events: {groups:,} groups")
        strange += _write_events(tables, raw.coalesce(_tasks(groups)), part, written)
    if any(key.endswith(GAP) for key, _ in has.counts):
        tables.write(TABLES["gaps"], silver.gaps(raw).coalesce(1), part)
        written.tables.append(TABLES["gaps"])
    if strange:
        tables.write(TABLES["corrupt"], reduce(DataFrame.unionByName, strange).coalesce(1), part)
        written.tables.append(TABLES["corrupt"])
    progress("minutes")
    counted = minutes.minutes({table.name: tables.part(table, part) for table in written.tables})
    if counted is not None:
        tables.write(TABLES["minutes"], counted.coalesce(1), part)
        written.tables.append(TABLES["minutes"])
    return written


def _write_events(tables: Tables, raw: DataFrame, part: str, written: Written) -> list[DataFrame]:
    """Write the tables of events that there is something of, and return the groups that could not be understood, if any."""
    parsed = silver.parsed_groups(raw).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        types = parsed.select(
            f.explode_outer("d.events.type").alias("type"), f.col("why").isNotNull().alias("is_corrupt")
        )
        rows = types.distinct().collect()
        present = {"event_groups", *(f"event_{row['type']}" for row in rows)}
        made = silver.group_rows(lambda: parsed)
        for name in made:
            if name in present:
                tables.write(TABLES[name], made[name], part)
                written.tables.append(TABLES[name])
    finally:
        parsed.unpersist()
    if not any(row["is_corrupt"] for row in rows):
        return []
    bad = silver.corrupt_of(silver.parsed_groups(raw))
    written.corrupt += bad.count()
    return [bad]


def _tasks(entries: int) -> int:
    return max(entries // _ENTRIES_A_TASK, 1)
