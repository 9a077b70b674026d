"""What the live job and a backfill have in common: entries that were read become a batch of each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import ceil
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from crewel.pipeline.delta import Batch
from crewel.pipeline.schemas import GAP, RAW, TABLES, Table
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze, minutes, silver, split, wide
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
SMALL: Final = 20_000
"""Entries of a batch that is made in one pass, and written by this process."""
_SMALL_BYTES: Final = 32 * 1024 * 1024


_RELEASES: Final[Mapping[str, Mapping[str, str]]] = {"fact_released": {}, "fact_sessions": {"what": "closed"}}
"""The tables whose rows end a holdback, and what their columns say then."""


@dataclass(frozen=True, slots=True)
class Found:
    """How many entries there are of each stream and type."""

    counts: Mapping[tuple[str, str | None], int]
    bytes: int | None = None
    """The length of all payloads; None if it was not asked for."""

    @property
    def is_small(self) -> bool:
        """Whether this process can hold all of them in its memory."""
        return self.bytes is not None and self.entries <= SMALL and self.bytes <= _SMALL_BYTES

    @property
    def entries(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def of(self, key: str, types: Collection[str] | None = None) -> int:
        """Those of a stream, and if asked for of some of its types."""
        counted = ((t, number) for (stream, t), number in self.counts.items() if stream == key)
        return sum(number for t, number in counted if types is None or t in types)

    @property
    def gaps(self) -> int:
        """The rows that report a gap."""
        return sum(number for (stream, _), number in self.counts.items() if stream.endswith(GAP))

    @property
    def strange(self) -> int:
        """The facts of no known type."""
        return sum(number for (stream, t), number in self.counts.items() if stream == "facts" and t not in FACT_TYPES)


@dataclass(slots=True)
class Written:
    """What was written: the rows by table, those of `minutes`, and how many entries could not be understood."""

    rows: dict[str, DataFrame | pa.Table] = field(default_factory=dict)
    minutes: pa.Table | None = None
    corrupt: int = 0

    def released(self) -> dict[str, int]:
        """Return the sessions whose holdbacks ended, and when the last one did, in milliseconds since 1970."""
        found: dict[str, int] = {}
        for name, is_over in _RELEASES.items():
            if name in self.rows:
                rows = self.rows[name]
                rows = rows if isinstance(rows, pa.Table) else rows.select("session", "ms", *is_over).toArrow()
                for row in rows.to_pylist():
                    if all(row[at] == what for at, what in is_over.items()):
                        found[row["session"]] = max(row["ms"], found.get(row["session"], 0))
        return found


def quiet(_: str) -> None:
    """Tell no one."""


def found(raw: DataFrame) -> Found:
    """Count what there is."""
    rows = raw.groupBy("key", "t").agg(f.count("*").alias("number")).collect()
    return Found({(row["key"], row["t"]): row["number"] for row in rows})


def looked(raw: DataFrame) -> Found:
    """Count what there is of a few hundred thousand entries, without a shuffle, and how long they are."""
    rows = raw.select("key", "t", "bytes").toArrow()
    counted = rows.group_by(["key", "t"]).aggregate([("bytes", "sum"), ("bytes", "count")]).to_pylist()
    counts = {(row["key"], row["t"]): row["bytes_count"] for row in counted}
    return Found(counts, sum(row["bytes_sum"] for row in counted))


def write_small(tables: Tables, raw: DataFrame, has: Found, batch: Batch) -> Written:
    """Write bronze, silver and minutes of a few entries: one job of Spark makes all rows, and this process writes them. Bronze
    is first, as in any batch: by it the next job completes one that was killed. Repeated, it changes nothing."""
    names = {each.table.name for each in FACTS if has.of("facts", each.types)}
    names |= {wide.GROUPS} if has.of("events") else set()
    names |= {TABLES["gaps"].name} if has.gaps else set()
    made = split.split(wide.wide(raw, names).coalesce(1).toArrow())
    written = Written(dict(made), split.minutes(made))
    written.corrupt = made["corrupt"].num_rows if "corrupt" in made else 0
    for table in (RAW, *MADE):
        rows = written.minutes if table.name == "minutes" else made.get(table.name)
        if rows is not None:
            tables.write_arrow(table, rows, batch)
    return written


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
    if has.gaps:
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
    counted = minutes.minutes({name: rows for name, rows in written.rows.items() if isinstance(rows, DataFrame)})
    if counted is not None:
        written.minutes = counted.toArrow()
        tables.write_arrow(TABLES["minutes"], written.minutes, batch)
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
    return max(ceil(entries / _ENTRIES_A_TASK), 1)
