"""Makes tables of silver again, from bronze, that another program has damaged. Bronze comes first, if it has entries twice."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.jobs.batches import MADE, Progress, quiet
from crewel.pipeline.jobs.lock import merging
from crewel.pipeline.schemas import RAW, TABLES, Layer
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import damage, silver

_COMPARED: Final = tuple(table.name for table in MADE if table.layer is Layer.SILVER)


def repair(tables: Tables, progress: Progress = quiet) -> list[str]:
    """Write each table again that differs from what bronze makes of it, and bronze if it has entries twice; return their names.
    The caller is the only writer. Days that bronze does not have any more stay as they are."""
    repaired = _bronze(tables, progress)
    progress("comparing silver with bronze")
    day = tables.retained_from
    made = silver.tables(tables.read(RAW))
    kept = {name: tables.read(TABLES[name], since=day) for name in _COMPARED}
    for found in damage.differences(made, kept):
        progress(f"{found.table}: {found.lacks:,} rows missing, {found.more:,} too many, {found.changed:,} changed")
        older = [] if day is None else [tables.read(TABLES[found.table]).where(f.col("date") < f.lit(day))]
        with merging(tables.root):
            tables.replace(TABLES[found.table], reduce(DataFrame.unionByName, older, made[found.table]))
        repaired.append(found.table)
    return repaired


def _bronze(tables: Tables, progress: Progress) -> list[str]:
    """Write bronze again if it has entries twice, as two merges of the same files at one time left them."""
    raw = tables.read(RAW)
    whole = raw.dropDuplicates([*RAW.key])
    twice = raw.count() - whole.count()
    if not twice:
        return []
    progress(f"{RAW.name}: {twice:,} entries too many")
    with merging(tables.root):
        tables.replace(RAW, whole)
    return [RAW.name]
