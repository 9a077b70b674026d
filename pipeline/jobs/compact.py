"""Merges the many small files of the live job, so that a day of a table becomes few large ones, and removes files that have not
counted for long.

The live job may continue meanwhile: Delta's log lets a merge and an addition both happen. It merges too, so the two take turns.
Days are removed only while no other job adds to the tables.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from crewel.pipeline.connection import Address
from crewel.pipeline.delta import KEEP_HOURS
from crewel.pipeline.jobs import gold
from crewel.pipeline.jobs.batches import MADE, Progress, quiet
from crewel.pipeline.jobs.lock import TablesBusy, merging, writing
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.tables import Tables

FEWEST: Final = 8
"""So many small files of a day that is not over are worth merging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    directory: Path | str
    address: Address | None = None
    """Not needed: nothing is read from the store."""
    keep_hours: int = KEEP_HOURS
    """How long files stay that do not count any more, for those who read them still."""
    keep_days: int = 0
    """How many days of bronze and silver stay, today included; 0: all."""


@dataclass(slots=True)
class Result:
    """What it has done."""

    merged: int = 0
    """Files that were merged."""
    into: int = 0
    """Files that they were merged into."""
    removed: int = 0
    """Files that did not count any more, and are gone now."""
    forgotten: int = 0
    """Rows of days that are not kept any more."""


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Merge and remove files of all tables. Raises CrewelError, and TablesBusy if days are to go while another job adds to the
    tables: what it adds of such a day after gold was made of it would be missing in gold."""
    try:
        with writing(options.directory, "compact") if options.keep_days else nullcontext():
            return tidy(Tables(spark, options.directory), progress, options.keep_hours, keep_days=options.keep_days)
    except TablesBusy as error:
        text = f"{error}; compact may run beside it without --keep-days, which the resident job has too"
        raise TablesBusy(text) from None


def tidy(
    tables: Tables,
    progress: Progress = quiet,
    keep_hours: int | None = None,
    today: date | None = None,
    keep_days: int = 0,
) -> Result:
    """Merge small files of all tables, and remove those that have not counted for `keep_hours`; None: remove nothing. Days of
    bronze and silver before the last `keep_days` do not count any more, once gold is made of them; 0: all do."""
    result = Result()
    today = today or datetime.now(UTC).date()
    if keep_days:
        # Gold is made of what is removed, which may be as new as the last batch of yesterday.
        gold.write(tables, progress)
        with merging(tables.root):
            result.forgotten = tables.forget(today - timedelta(days=keep_days - 1))
    for table in (RAW, *MADE):
        with merging(tables.root):
            before, after = tables.compact(table, today, FEWEST)
        if before:
            progress(f"{table.name}: {before} files become {after}")
        result.merged += before
        result.into += after
    if keep_hours is not None:
        for table in TABLES.values():
            result.removed += tables.vacuum(table, keep_hours)
    return result
