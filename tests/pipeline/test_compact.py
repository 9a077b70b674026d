"""Merges of small files, by jobs that know nothing of each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from crewel.pipeline.delta import Batch, DeltaLog
from crewel.pipeline.jobs import compact
from crewel.pipeline.jobs.lock import TablesBusy, merging, writing
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.test_delta import folder, seqs
from tests.store_process import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DISCARDED = TABLES["fact_discarded"]
AFTER = date(2026, 11, 21)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """A table that has four small files of a day."""
    log = DeltaLog(DISCARDED, f"{tmp_path}/{DISCARDED.path}")
    for number in range(4):
        log.add(folder(log, f"f{number}", number), Batch("live.x", number))
    return log


def is_waited_for(path: Path) -> bool:
    """Whether a thread waits for the lock of this file."""
    inode = f":{path.stat().st_ino} "
    return any("-> FLOCK" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_two_jobs_do_not_merge_the_same_files(spark: SparkSession, log: DeltaLog, tmp_path: Path) -> None:
    """deltalake would take both merges, and each row would be there twice."""
    with ThreadPoolExecutor(1) as pool:
        with merging(tmp_path):
            other = pool.submit(compact.tidy, Tables(spark, tmp_path), today=AFTER)
            until(lambda: is_waited_for(tmp_path / "merging"))
            assert log.compact(AFTER, fewest=2) == (4, 1)
        assert (other.result().merged, other.result().into) == (0, 0)
    assert seqs(log) == [0, 1, 2, 3]


def test_days_are_not_removed_while_another_job_merges_their_files(
    spark: SparkSession, log: DeltaLog, tmp_path: Path
) -> None:
    """The merge would bring their rows back."""
    with ThreadPoolExecutor(1) as pool:
        with merging(tmp_path):
            other = pool.submit(compact.tidy, Tables(spark, tmp_path), today=AFTER, keep_days=1)
            until(lambda: is_waited_for(tmp_path / "merging"))
            assert seqs(log) == [0, 1, 2, 3]
        assert other.result().forgotten == 4
    assert log.files() == []


@pytest.mark.parametrize("days", [None, [date(2026, 11, 20)]])
def test_what_is_replaced_while_another_job_merges_it_is_gone(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, days: list[date] | None
) -> None:
    actions = log._actions

    def merge_first(table: DeltaTable, name: str) -> object:
        monkeypatch.undo()
        assert DeltaLog(DISCARDED, log.path).compact(AFTER, fewest=2) == (4, 1)
        return actions(table, name)

    monkeypatch.setattr(log, "_actions", merge_first)
    log.replace(folder(log, "new", 9), days)
    assert seqs(log) == [9]


def test_days_are_removed_only_while_no_other_job_adds_to_the_tables(tmp_path: Path) -> None:
    """What it adds to such a day after gold was made of it would be missing in gold."""
    options = compact.Options(directory=tmp_path, keep_days=1)
    with (
        writing(tmp_path, "the live job"),
        pytest.raises(TablesBusy, match=r"the live job adds .* without --keep-days"),
    ):
        compact.run(None, options)  # type: ignore[arg-type]
