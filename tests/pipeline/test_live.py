"""The live job on real streams: each entry once in bronze, silver and gold, however often a batch is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

from crewel.pipeline.jobs import backfill, compact, live
from crewel.pipeline.jobs.lock import TablesBusy, writing
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.conftest import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # a batch has a dozen jobs of Spark, which take long beside other tests

AT = 1_790_000_040_000


def publish(streams: Streams, number: int, first: int = 1, at_ms: int = AT) -> None:
    """Publish messages, one a millisecond, each owed to one session that settles it."""
    for log_id in range(first, first + number):
        streams.fact("published", {"first": log_id, "channels": ["/a"]}, f"{at_ms + log_id}-1")
        ended = [{"session": "client/joe/1", "reason": "settled", "ids": [log_id]}]
        streams.fact("ended", {"ended": ended}, f"{at_ms + log_id}-2")


def read_all(
    spark: SparkSession, streams: Streams, root: Path, rows: int = 100_000, upkeep_s: float = 0
) -> live.Result:
    options = live.Options(address=streams.address, directory=root, once=True, rows=rows, upkeep_s=upkeep_s)
    return live.run(spark, options)


def logs(frame: DataFrame) -> list[int]:
    return sorted(row["log_id"] for row in frame.select("log_id").collect())


def test_the_store_has_the_figures_of_the_last_day(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 1, at_ms=1)  # of 1970
    for _ in range(3):
        streams.fact("published", {"first": 1, "channels": ["/a", "/b"]})
    read_all(spark, streams, tmp_path)
    found = [streams.client.hgetall(key) for key in streams.client.scan_iter(f"{streams.keys.base}pipeline:minute:*")]
    assert sum(int(each[b"published"]) for each in found) == 6


def counts(tables: Tables) -> dict[str, int]:
    rows = tables.read(TABLES["minutes"]).groupBy("what").sum("count").collect()
    return {row[0]: row[1] for row in rows}


def test_each_entry_is_in_each_table_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 100)
    streams.group(
        [{"type": "settled", "channel": "/a", "count": 100, "sum": 5, "buckets": [100] + [0] * 17}], f"{AT + 500}-0"
    )
    streams.fact("published", {"first": 7}, f"{AT + 600}-0")
    streams.fact("unheard-of", {}, f"{AT + 601}-0")
    result = read_all(spark, streams, tmp_path, rows=90, upkeep_s=0)
    tables = Tables(spark, tmp_path)
    assert result.batches >= 3
    assert (result.entries, result.corrupt) == (203, 2)
    assert tables.read(RAW).count() == tables.read(RAW).select("key", "id").distinct().count() == 203
    assert logs(tables.read(TABLES["fact_published"])) == logs(tables.read(TABLES["fact_ended"])) == [*range(1, 101)]
    assert counts(tables) == {"published": 100, "ended:settled": 100, "settled": 100, "corrupt": 2}
    assert {row["why"] for row in tables.read(TABLES["corrupt"]).collect()} == {"wrong fields", "unknown type"}

    publish(streams, 10, first=1001)
    read_all(spark, streams, tmp_path, upkeep_s=600)
    assert len(logs(tables.read(TABLES["fact_published"]))) == 110
    assert counts(tables)["published"] == 110
    assert tables.read(TABLES["latency"]).count() == 1
    assert {row["persistent"] for row in tables.read(TABLES["capacity"]).collect()} == {110}


def test_a_repeated_batch_takes_its_own_place(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 20)
    read_all(spark, streams, tmp_path)
    checkpoint = tmp_path / "checkpoints" / "live" / "v1"
    newest = max(
        (each for each in (checkpoint / "commits").iterdir() if each.name.isdigit()), key=lambda each: int(each.name)
    )
    newest.unlink()  # as if it had been killed before it could note that the batch was done
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    read_all(spark, streams, tmp_path)
    tables = Tables(spark, tmp_path)
    assert logs(tables.read(TABLES["fact_published"])) == [*range(1, 21)]
    assert tables.read(RAW).count() == 40
    assert counts(tables) == {"published": 20, "ended:settled": 20}


def test_a_new_checkpoint_goes_on_after_what_bronze_holds(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(streams, 20)
    read_all(spark, streams, tmp_path)
    monkeypatch.setattr(live, "VERSION", 2)
    publish(streams, 5, first=21)
    read_all(spark, streams, tmp_path)
    tables = Tables(spark, tmp_path)
    assert logs(tables.read(TABLES["fact_published"])) == [*range(1, 26)]


def test_an_upkeep_that_fails_does_not_end_the_job(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 10)
    streams.group(
        [{"type": "settled", "channel": "/a", "count": 9, "sum": 5, "buckets": [9] + [0] * 17}], f"{AT + 500}-0"
    )
    in_the_way = tmp_path / "gold" / "latency"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    told: list[str] = []
    options = live.Options(address=streams.address, directory=tmp_path, once=True)
    assert live.run(spark, options, told.append).entries == 21
    (words,) = (each for each in told if "upkeep" in each)
    assert words.startswith("the upkeep has failed and is tried again in 600 s: ")
    assert "\n" not in words
    tables = Tables(spark, tmp_path)
    assert logs(tables.read(TABLES["fact_published"])) == [*range(1, 11)]

    in_the_way.unlink()
    publish(streams, 1, first=1001)
    read_all(spark, streams, tmp_path, upkeep_s=600)
    assert tables.read(TABLES["latency"]).count() == 1


def test_a_backfill_takes_what_is_not_there_yet(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 20)
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=2, gold=False)
    assert backfill.run(spark, options).entries == 40
    publish(streams, 5, first=21)
    assert backfill.run(spark, options).entries == 10
    tables = Tables(spark, tmp_path)
    assert logs(tables.read(TABLES["fact_published"])) == [*range(1, 26)]
    assert counts(tables) == {"published": 25, "ended:settled": 25}
    publish(streams, 5, first=26)
    read_all(spark, streams, tmp_path)  # the live job goes on after it
    assert logs(tables.read(TABLES["fact_published"])) == [*range(1, 31)]
    assert tables.read(RAW).count() == 60


def test_a_backfill_that_was_killed_leaves_nothing(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 20)
    tables = Tables(spark, tmp_path)
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=2, gold=False)
    backfill.run(spark, options)
    part = next(day.parts[0] for day in tables.days(RAW))
    tables.begin(part)  # as if it had been killed at the end
    assert tables.read(RAW).count() == 0
    backfill.run(spark, options)
    assert logs(tables.read(TABLES["fact_published"])) == [*range(1, 21)]
    assert tables.read(RAW).count() == 40


def test_one_job_at_a_time_adds_to_the_tables(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    options = backfill.Options(address=streams.address, directory=tmp_path)
    with writing(tmp_path, "the live job"), pytest.raises(TablesBusy, match="the live job adds to these tables"):
        backfill.run(spark, options)


def test_parts_are_put_together_and_hold_the_same(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 60)  # on a day that is over
    read_all(spark, streams, tmp_path, rows=30, upkeep_s=0)
    tables = Tables(spark, tmp_path)
    before = {name: tables.read(TABLES[name]).count() for name in ("raw", "fact_published", "fact_ended", "minutes")}
    assert before == {"raw": 120, "fact_published": 60, "fact_ended": 60, "minutes": 2}
    batches = len(tables.days(RAW)[0].parts)
    assert batches >= 4
    first = compact.run(spark, compact.Options(directory=tmp_path))
    assert first.merged >= 4 * (batches - 1)
    assert {name: tables.read(TABLES[name]).count() for name in before} == before
    second = compact.run(spark, compact.Options(directory=tmp_path))
    assert second.swept == first.merged
    assert {name: tables.read(TABLES[name]).count() for name in before} == before
    assert len(tables.days(RAW)[0].parts) == 2  # what was put together, and the newest batch
    assert logs(tables.read(TABLES["fact_ended"])) == [*range(1, 61)]
