"""What reports are made of: each entry once, whatever part of them the tables have, and no more is read than they lack."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crewel.pipeline.jobs import backfill
from crewel.pipeline.jobs.inputs import Inputs, gather
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze
from tests.pipeline.conftest import Streams


def publish(streams: Streams, first: int, last: int) -> None:
    for log_id in range(first, last + 1):
        streams.fact("published", {"first": log_id, "channels": ["/a"]}, f"{log_id}-1")


def taken(
    streams: Streams, spark: SparkSession, root: Path, since: int | None = None, until: int | None = None
) -> None:
    """Have the tables take what is there, or of some milliseconds only."""
    times = {
        name: datetime.fromtimestamp(ms / 1000, UTC)
        for name, ms in (("since", since), ("until", until))
        if ms is not None
    }
    backfill.run(spark, backfill.Options(address=streams.address, directory=root, gold=False, **times))


def found(streams: Streams, spark: SparkSession, root: Path) -> tuple[Inputs, list[int]]:
    inputs = gather(spark, Tables(spark, root), streams.address)
    return inputs, sorted(row["log_id"] for row in inputs.silver["fact_published"].select("log_id").collect())


def test_a_time_before_1970_is_that_of_the_first_entry() -> None:
    assert backfill._moment(datetime(1960, 1, 1, tzinfo=UTC), "earliest") == "0"


def test_only_what_came_after_the_tables_is_read(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(streams, 1, 10)
    taken(streams, spark, tmp_path, until=6)
    with monkeypatch.context() as patched:
        patched.setattr(bronze, "missing", lambda *_: pytest.fail("all of the store was read"))
        inputs, ids = found(streams, spark, tmp_path)
    assert ids == [*range(1, 11)]
    assert inputs.raw.count() == 10
    assert inputs.silver["fact_ended"].isEmpty()


def test_a_hole_in_the_tables_is_filled(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 1, 10)
    taken(streams, spark, tmp_path, since=3, until=6)
    inputs, ids = found(streams, spark, tmp_path)
    assert ids == [*range(1, 11)]
    assert inputs.raw.count() == 10


def test_what_the_store_has_no_more_comes_from_the_tables(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    publish(streams, 1, 10)
    taken(streams, spark, tmp_path)
    publish(streams, 11, 12)
    streams.client.xtrim(streams.keys.facts, maxlen=5, approximate=False)
    assert found(streams, spark, tmp_path)[1] == [*range(1, 13)]
    streams.client.xtrim(streams.keys.facts, maxlen=0, approximate=False)
    assert found(streams, spark, tmp_path)[1] == [*range(1, 11)]
