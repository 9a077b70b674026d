"""Puts the many small parts of the live job together, so that a day of a table becomes few large files.

The live job may continue meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs.batches import MADE, Progress, quiet
from crewel.pipeline.jobs.lock import merging
from crewel.pipeline.parts import Live, finished
from crewel.pipeline.schemas import RAW
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze

FEWEST: Final = 8
"""So many single batches of a day that is not over are worth putting together."""

_DEBRIS_MS: Final = 24 * 3600 * 1000
"""What a killed step left behind is removed when it is as old as this, in milliseconds: no one writes to it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    directory: Path | str
    address: Address | None = None
    """Not needed: nothing is read from the store."""


@dataclass(slots=True)
class Result:
    """What it has done."""

    merged: int = 0
    """Parts that were put together."""
    swept: int = 0
    """Parts that others held, which are gone now."""
    rows: int = 0


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Put parts together in all tables. Raises TablesBusy while another job does."""
    with merging(options.directory, "another compaction"):
        return tidy(Tables(spark, options.directory), progress)


def tidy(tables: Tables, progress: Progress = quiet, today: date | None = None) -> Result:
    """Put parts together in all tables: of days that have ended all of them, of today the single batches.

    What an earlier time has put together is swept now, when no one reads it any more.
    """
    result = Result()
    newest = tables.newest_batch()
    today = today or datetime.now(UTC).date()
    for table in (RAW, *MADE):
        tables.sweep_debris(table, int(time.time() * 1000) - _DEBRIS_MS)
        for day in tables.days(table):
            result.swept += tables.sweep(table, day)
            for group in _groups(finished(day.parts, newest), is_over=day.date < today):
                progress(f"{table.name} of {day.date}: {len(group)} parts")
                order = bronze.ORDER if table is RAW else ()
                result.rows += tables.merge(table, day.date, group, order)
                result.merged += len(group)
    return result


def _groups(found: Iterable[Live], *, is_over: bool) -> list[list[Live]]:
    """Return which parts are put together. Those of today that were put together once are left alone until the day has ended:
    the same rows are written three times in all, not every ten minutes."""
    runs: dict[int, list[list[Live]]] = defaultdict(lambda: [[]])
    for part in found:
        if is_over or part.first == part.last:
            runs[part.version][-1].append(part)
        else:
            runs[part.version].append([])  # what lies on both sides of it does not follow one another
    fewest = 2 if is_over else FEWEST
    return [group for groups in runs.values() for group in groups if len(group) >= fewest]
