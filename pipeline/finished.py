"""The tables for other programs, without Spark: finished batches only, all tables as of one moment.

    from crewel.pipeline.finished import finished

    ended = finished("data/pipeline", "fact_ended")["fact_ended"]     # a dataset of Arrow: for DuckDB, pandas, Polars

A batch comes to its tables one after another. A job that is killed between two of them leaves half of its batch on disk until
the next start, and the names of such batches in the directory `unfinished`. This leaves their rows out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow.dataset import Dataset

from crewel.errors import CrewelError
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.schemas.table import BATCH

_TRIES: Final = 50
_PAUSE_S: Final = 0.05


def finished(root: Path | str, *names: str) -> Mapping[str, Dataset]:
    """Return these tables, or all that are there, by name. Of each batch there is all, in all of them, or nothing. `root` is a
    local directory. Raises CrewelError for a name of no table, and for a directory without tables."""
    unknown = {*names} - {*TABLES}
    if unknown:
        raise CrewelError(f"{', '.join(sorted(unknown))}: no such table; there are {', '.join(TABLES)}")
    root = Path(root)
    if not DeltaTable.is_deltatable(str(root / RAW.path)):
        raise CrewelError(f"{root}: there are no tables; the directory is that of --dir")
    for _ in range(_TRIES):
        before = _state(root)
        opened = {
            name: DeltaTable(root / TABLES[name].path)
            for name in names or TABLES
            if DeltaTable.is_deltatable(str(root / TABLES[name].path))
        }
        if _state(root) == before:
            break
        time.sleep(_PAUSE_S)
    _, hidden = before
    return {name: _without(table, TABLES[name].is_derived, hidden) for name, table in opened.items()}


def _state(root: Path) -> tuple[int, frozenset[str]]:
    """Return what changes whenever a batch begins, comes to bronze, or ends."""
    names = (each.name for each in (root / "unfinished").glob("[!.]*"))
    return DeltaTable(root / RAW.path).version(), frozenset(names)


def _without(table: DeltaTable, is_derived: bool, hidden: frozenset[str]) -> Dataset:
    found = table.to_pyarrow_dataset()
    if is_derived or not hidden:
        return found
    return found.filter(pc.field(BATCH).is_null() | ~pc.field(BATCH).isin([*hidden]))
