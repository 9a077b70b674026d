"""Makes tables of what the store holds of some time, all of them up to gold. What bronze has already is not taken again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from crewel.pipeline import parts
from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import batches, gold
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.lock import writing
from crewel.pipeline.schemas import RAW
from crewel.pipeline.source import NAME
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    address: Address
    directory: Path | str
    since: datetime | None = None
    """From when on; None: from the oldest entry."""
    until: datetime | None = None
    """Up to when, exclusive; None: until now."""
    partitions: int = 32
    """In how many parts a stream is read."""
    gold: bool = True
    """Whether the tables of gold that come from it are written again."""


@dataclass(frozen=True, slots=True)
class Result:
    """What it has done."""

    entries: int
    """Entries that were new."""
    corrupt: int
    """Those of them that could not be understood."""
    seconds: float


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job. Killed on its way it leaves nothing that a reader sees, and begins again the next time.

    Raises CrewelError; TablesBusy while the live job runs.
    """
    begin = time.monotonic()
    tables = Tables(spark, options.directory)
    with writing(options.directory, "a backfill"):
        for part in tables.unfinished():
            progress(f"removing {part}, which did not come to its end")
            tables.forget(part, (*batches.MADE, RAW))
        part = parts.fill(time.time_ns() // 1_000_000)
        tables.begin(part)
        has, corrupt = _fill(spark, tables, options, part, progress)
        tables.finish(part)
    if has.entries and options.gold:
        gold.write(tables, progress)
    return Result(has.entries, corrupt, time.monotonic() - begin)


def _fill(
    spark: SparkSession, tables: Tables, options: Options, part: str, progress: Progress
) -> tuple[batches.Found, int]:
    """Write bronze, silver and minutes as one part."""
    progress("reading the store")
    source = (
        spark.read.format(NAME)
        .option("prefix", options.address.prefix)
        .option("partitions", options.partitions)
        .option("start", _moment(options.since, "earliest"))
        .option("end", _moment(options.until, "latest"))
        .load()
    )
    since, until = (moment and _utc(moment).date() for moment in (options.since, options.until))
    known = tables.read(RAW, since, until)
    if not known.isEmpty():
        source = bronze.missing(source, known)
    batches.write_raw(tables, source, part)
    raw = tables.part(RAW, part)
    has = batches.found(raw)
    progress(f"read: {has.entries:,} entries")
    return has, batches.write(tables, raw, has, part, progress).corrupt


def _moment(moment: datetime | None, otherwise: str) -> str:
    return otherwise if moment is None else str(round(_utc(moment).timestamp() * 1000))


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
