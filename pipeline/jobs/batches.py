"""What the live job and a backfill have in common: entries that were read become a batch of each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from crewel.pipeline.delta import Batch
from crewel.pipeline.schemas import GAP, RAW, TABLES, Table
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze, minutes, silver
from crewel.pipeline.transformations.shapes import EVENTS, FACT_TYPES, FACTS, Fact

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
    """What was written: the rows by table, and how many entries could not be understood."""

    rows: dict[str, DataFrame] = field(default_factory=dict)
    corrupt: int = 0


def quiet(_: str) -> None:
    """Tell no one."""


def found(raw: DataFrame) -> Found:
    """Count what there is."""
    rows = raw.groupBy("key", "t").agg(f.count("*").alias("number")).collect()
    return Found({(row["key"], row["t"]): row["number"] for row in rows})


def write_raw(tables: Tables, raw: DataFrame, batch: Batch, entries: int | None = None) -> DataFrame:
    """Write bronze, and return what it has of the batch. If it is said how many entries there are, they come into as few files
    as is good for them."""
    return tables.write(RAW, bronze.arranged(raw if entries is None else raw.coalesce(_tasks(entries))), batch)


def write(tables: Tables, raw: DataFrame, has: Found, batch: Batch, progress: Progress = quiet) -> Written:
    """Write silver and minutes of the entries of a batch, which are read several times. Repeated, it changes nothing."""
    written = Written()
    strange: list[DataFrame] = []
    for shape in FACTS:
        entries = has.of("facts", shape.types)
        if not entries:
            continue
        progress(f"{shape.table.name}: {entries:,} facts")
        parsed = silver.parsed_fact(raw.coalesce(_tasks(entries)), shape)
        corrupt = _write_facts(tables, parsed, shape, batch, written)
        if corrupt:
            strange.append(silver.corrupt_of(parsed))
            written.corrupt += corrupt
    if has.strange:
        strange.append(silver.strange(raw))
        written.corrupt += has.strange
    if groups := has.of("events"):
        progress(f"events: {groups:,} groups")
        strange += _write_events(tables, raw.coalesce(_tasks(groups)), batch, written)
    if any(key.endswith(GAP) for key, _ in has.counts):
        _write(tables, TABLES["gaps"], silver.gaps(raw).coalesce(1), batch, written)
    if strange:
        _write(
            tables,
            TABLES["corrupt"],
            reduce(DataFrame.unionByName, strange).coalesce(_tasks(written.corrupt)),
            batch,
            written,
        )
    progress("minutes")
    counted = minutes.minutes(written.rows)
    if counted is not None:
        _write(tables, TABLES["minutes"], counted.coalesce(1), batch, written)
    return written


def complete(tables: Tables, progress: Progress = quiet) -> None:
    """Bring batches that were killed on their way to all their tables, by what bronze has of them. One that had not come to
    bronze is forgotten: it is read again, or was a backfill that has done nothing."""
    for name in sorted(tables.unfinished()):
        batch = Batch.parse(name)
        if batch is not None and tables.has(RAW, batch):
            progress(f"completing {name}")
            raw = tables.part(RAW, batch)
            write(tables, raw, found(raw), batch, progress)
        tables.finish(name)


def _write(tables: Tables, table: Table, frame: DataFrame, batch: Batch, written: Written) -> None:
    written.rows[table.name] = tables.write(table, frame, batch)


def _write_facts(tables: Tables, parsed: DataFrame, shape: Fact, batch: Batch, written: Written) -> int:
    """Write the table of some facts, and return how many of them could not be understood."""
    if tables.has(shape.table, batch):
        written.rows[shape.table.name] = silver.fact_rows(parsed, shape)
        return silver.corrupt_of(parsed).count()
    seen = Observation()
    watched = parsed.observe(seen, f.count_if(f.col("why").isNotNull()).alias("corrupt"))
    _write(tables, shape.table, silver.fact_rows(watched, shape), batch, written)
    found: int = seen.get["corrupt"]
    return found


def _write_events(tables: Tables, raw: DataFrame, batch: Batch, written: Written) -> list[DataFrame]:
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
                _write(tables, TABLES[name], made[name], batch, written)
    finally:
        parsed.unpersist()
    if not any(row["is_corrupt"] for row in rows):
        return []
    bad = silver.corrupt_of(silver.parsed_groups(raw))
    written.corrupt += bad.count()
    return [bad]


def _tasks(entries: int) -> int:
    return max(entries // _ENTRIES_A_TASK, 1)
