"""Tables that were written before they had a log. Those in recorded/before-delta.tar.gz are of two batches that were put
together and are there still, a third one, a fourth that was killed before its minutes, and a backfill that was killed."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crewel.pipeline.delta_migration import visible
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.conftest import Streams
from tests.pipeline.test_live import AT, by_others, counts, logs, publish, read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = Path(__file__).parent / "recorded" / "before-delta.tar.gz"


@pytest.mark.parametrize(
    ("there", "shown"),
    [
        ([], []),
        (["live.1.2", "live.1.10", "live.1.1"], ["live.1.1", "live.1.2", "live.1.10"]),
        (["live.1.1", "live.1.2", "live.1.1-2"], ["live.1.1-2"]),
        (["live.1.1-2", "live.1.3", "live.1.1-3", "live.1.4"], ["live.1.1-3", "live.1.4"]),
        (["live.1.1-2", "live.2.1"], ["live.1.1-2", "live.2.1"]),
        (["live.1.0-9", "live.1.2-3", "live.1.12", "live.1.8"], ["live.1.0-9", "live.1.12"]),
        (["fill.5", "live.1.1"], ["fill.5", "live.1.1"]),
        (["fill.6", "live.1.12", "live.1.13"], ["live.1.12"]),
        (["live.2.13", "live.1.1-13"], ["live.2.13"]),
    ],
)
def test_the_parts_that_counted(there: list[str], shown: list[str]) -> None:
    assert visible(there, {"fill.6"}, {1: 12}) == shown


@pytest.mark.timeout(300)
def test_tables_of_before_are_converted_once_and_the_job_continues(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path, filter="data")
    publish(streams, 20)
    publish(streams, 5, first=21)
    settled = {"type": "settled", "channel": "/a", "count": 25, "sum": 5, "buckets": [25] + [0] * 17}
    streams.group([settled], f"{AT + 500}-0")
    publish(streams, 3, first=601)

    files = sorted(tmp_path.rglob("*.parquet"))
    tables = Tables(spark, tmp_path)
    assert tables.read(RAW).count() == 51
    assert logs(tables.read(TABLES["fact_published"])) == logs(tables.read(TABLES["fact_ended"])) == [*range(1, 26)]
    assert counts(tables) == {"published": 25, "ended:settled": 25, "settled": 25}
    assert tables.read(TABLES["event_settled"]).count() == 1
    (day,) = tables.days(RAW)
    assert tables.read(RAW, until=day).where("date = date'2026-09-21'").count() == 51
    assert sorted(tmp_path.rglob("*.parquet")) == files, "no file is written again"
    names = ("raw", "fact_published", "fact_ended", "event_settled", "intervals")
    assert by_others(tmp_path, names) == {
        "raw": 51, "fact_published": 25, "fact_ended": 25, "event_settled": 1, "intervals": 0,
    }  # fmt: skip

    assert read_all(spark, streams, tmp_path).entries == 6
    again = Tables(spark, tmp_path)
    assert again.unfinished() == set()
    assert logs(again.read(TABLES["fact_published"])) == [*range(1, 26), 601, 602, 603]
    assert by_others(tmp_path, ("raw", "fact_ended")) == {"raw": 57, "fact_ended": 28}
    assert counts(again) == {"published": 28, "ended:settled": 28, "settled": 25}
