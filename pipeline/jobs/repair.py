"""Makes tables of silver again, from bronze, that another program has damaged."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.jobs.batches import MADE, Progress, quiet
from crewel.pipeline.schemas import RAW, TABLES, Layer
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import damage, silver

_COMPARED: Final = tuple(table.name for table in MADE if table.layer is Layer.SILVER)


def repair(tables: Tables, progress: Progress = quiet) -> list[str]:
    """Write each table again that differs from what bronze makes of it; return their names. The caller is the only writer. Days
    that bronze does not have any more stay as they are."""
    progress("comparing silver with bronze")
    day = tables.retained_from
    made = silver.tables(tables.read(RAW))
    kept = {name: tables.read(TABLES[name], since=day) for name in _COMPARED}
    repaired = []
    for found in damage.differences(made, kept):
        progress(f"{found.table}: {found.lacks:,} rows missing, {found.more:,} too many, {found.changed:,} changed")
        older = [] if day is None else [tables.read(TABLES[found.table]).where(f.col("date") < f.lit(day))]
        tables.replace(TABLES[found.table], reduce(DataFrame.unionByName, older, made[found.table]))
        repaired.append(found.table)
    return repaired
