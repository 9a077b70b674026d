"""Makes tables of what the store holds of some time, all of them up to gold. What bronze has already is not taken again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from crewel.pipeline.connection import PATIENCE_S, Address
from crewel.pipeline.delta import Batch
from crewel.pipeline.few_rows import MOST, tuned
from crewel.pipeline.jobs import batches, gold
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import read, write_letters
from crewel.pipeline.jobs.lock import writing
from crewel.pipeline.jobs.repair import repair
from crewel.pipeline.schemas import RAW
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze

_JOB: Final = "fill"


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
    repair: bool = False
    """Whether tables of silver that differ from bronze, and bronze if it has entries twice, are written again first."""


@dataclass(frozen=True, slots=True)
class Result:
    """What it has done."""

    entries: int
    """Entries that were new."""
    corrupt: int
    """Those of them that could not be understood."""
    seconds: float
    repaired: list[str]
    """Tables that were written again, because another program had damaged them."""


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job. Killed on its way it shows nothing to readers, and what had come to bronze is completed by the next job.

    Raises CrewelError; TablesBusy while the live job runs.
    """
    begin = time.monotonic()
    tables = Tables(spark, options.directory)
    with writing(options.directory, "a backfill"):
        tables.create()
        batches.complete(tables, progress)
        repaired = repair(tables, progress) if options.repair else []
        # Numbers grow, also when the clock is set back: otherwise it would be taken for a batch that is there.
        batch = Batch(_JOB, max(time.time_ns() // 1_000_000, (tables.newest(_JOB) or 0) + 1))
        tables.begin(batch)
        has, corrupt = _fill(spark, tables, options, batch, progress)
        tables.finish(batch)
        if options.gold:
            with tuned(spark, is_few=tables.rows(RAW) <= MOST):
                write_letters(spark, tables, options.address)
                if has.entries or repaired:
                    gold.write(tables, progress)
    return Result(has.entries, corrupt, time.monotonic() - begin, repaired)


def _fill(
    spark: SparkSession, tables: Tables, options: Options, batch: Batch, progress: Progress
) -> tuple[batches.Found, int]:
    """Write bronze, silver and minutes as one batch."""
    progress("reading the store")
    source = read(
        spark,
        options.address,
        partitions=str(options.partitions),
        start=_start(options.since, tables.retained_from),
        end=_moment(options.until, "latest"),
    )
    since, until = (moment and _utc(moment).date() for moment in (options.since, options.until))
    known = tables.read(RAW, since, until)
    if not known.isEmpty():
        source = bronze.missing(source, known)
    if _is_small(options.address):
        raw = source.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with tuned(spark):
                has = batches.looked(raw)
                progress(f"read: {has.entries:,} entries")
                if not has.entries:
                    return has, 0
                if has.is_small:
                    return has, batches.write_small(tables, raw, has, batch).corrupt
        finally:
            raw.unpersist()
    raw = batches.write_raw(tables, source, batch)
    has = batches.found(raw)
    progress(f"read: {has.entries:,} entries")
    return has, batches.write(tables, raw, has, batch, progress).corrupt


def _is_small(address: Address) -> bool:
    """Whether the store has so few entries that they may be a small batch."""
    extents = Extents(address, PATIENCE_S)
    try:
        return sum(each.length for each in extents.look(("facts", "events")).values()) <= batches.SMALL
    finally:
        extents.close()


def _start(since: datetime | None, retained_from: date | None) -> str:
    """Return where reading begins. Days that were removed on purpose do not come back."""
    if retained_from is None or (since is not None and _utc(since).date() >= retained_from):
        return _moment(since, "earliest")
    return retained_from.isoformat()


def _moment(moment: datetime | None, otherwise: str) -> str:
    return otherwise if moment is None else str(max(round(_utc(moment).timestamp() * 1000), 0))


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
