"""The source as Spark runs it, on real streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.schemas import RAW
from crewel.pipeline.source import NAME, register
from tests.pipeline.conftest import Streams
from tests.store_process import StoreProcess


@pytest.fixture
def registered(spark: SparkSession, streams: Streams) -> SparkSession:
    """The session, with the source for the streams of this test."""
    register(spark, streams.address)
    return spark


def read(spark: SparkSession, **options: object) -> DataFrame:
    return spark.read.format(NAME).options(**{name: str(value) for name, value in options.items()}).load()


def wait(query: StreamingQuery, is_so: Callable[[], bool]) -> None:
    """Wait until `is_so` says yes: Spark takes seconds for a first batch, and more where others work."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


class Query:
    """A stream into Parquet, as often as it is started from the same checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path, **options: object) -> None:
        self.spark = spark
        self.directory = directory
        self.options = {name: str(value) for name, value in options.items()}

    def run(self, **options: object) -> list[int]:
        """Read what there is; return the rows of each batch."""
        given = self.options | {name: str(value) for name, value in options.items()}
        writer = self.spark.readStream.format(NAME).options(**given).load().writeStream.format("parquet")
        writer = writer.option("path", str(self.directory / "rows")).option(
            "checkpointLocation", str(self.directory / "c")
        )
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> DataFrame:
        """What it has written."""
        return self.spark.read.schema(RAW.struct()).parquet(str(self.directory / "rows"))


def test_a_batch_has_the_columns_of_the_table(registered: SparkSession, streams: Streams) -> None:
    streams.many("facts", 100)
    streams.add("facts", {"t": "held", "d": b"\xff\xfe"})
    streams.add("facts", {"other": "field"})
    streams.group([])
    streams.add("dead", {"id": "17", "reason": "why"})
    frame = read(registered, streams="facts,events,dead")
    assert frame.schema == RAW.struct()
    counts = frame.groupBy("key").agg(f.count("*"), f.sum((~f.col("is_text")).cast("int"))).collect()
    assert {tuple(row) for row in counts} == {("facts", 102, 1), ("events", 1, 0), ("dead", 1, 0)}
    assert frame.where(f.to_date("at") != f.col("date")).count() == 0


def test_filters_of_one_query_do_not_meet_the_next(registered: SparkSession, streams: Streams) -> None:
    """Spark 4.3 keeps filters that were pushed down to a source; so none are."""
    streams.many("facts", 10)
    streams.group([])
    frame = read(registered)
    assert frame.where("key = 'events'").count() == 1
    assert frame.count() == 11
    assert frame.select("id").where("key = 'facts' and ms > 5").count() == 5


def test_a_stream_goes_on_where_it_was_and_holds_each_entry_once(
    registered: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    query = Query(registered, tmp_path, maxRows=400)
    streams.many("facts", 1000, per_ms=10)
    assert query.run() == [400, 400, 200]
    streams.many("facts", 100, first_ms=1000)
    streams.group([])
    assert query.run() == [101]
    assert query.run() == []
    assert query.rows().count() == query.rows().select("key", "id").distinct().count() == 1101


def test_a_gap_ends_a_stream_or_is_a_row(registered: SparkSession, streams: Streams, tmp_path: Path) -> None:
    query = Query(registered, tmp_path, streams="facts")
    streams.many("facts", 100)
    query.run()
    streams.many("facts", 100, first_ms=1000)
    streams.client.xtrim(streams.keys.facts, maxlen=60, approximate=False)
    with pytest.raises(StreamingQueryException, match="40 entries after 100-1 and before 1040-1"):
        query.run()
    assert query.run(failOnDataLoss=False) == [61]
    (gap,) = query.rows().where("key = 'facts.gap'").collect()
    assert (gap.id, gap.payload) == ("100-1", '{"before":"1040-1","lost":40}')


@pytest.fixture
def secret_store(tmp_path: Path) -> Iterator[StoreProcess]:
    store = StoreProcess(tmp_path, requirepass="wdFsEcReT")
    yield store
    store.close()


def test_a_stream_outlives_its_store_and_never_tells_the_password(
    spark: SparkSession, secret_store: StoreProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    streams = Streams(Address(secret_store.url.replace("unix://", "unix://:wdFsEcReT@")))
    register(spark, streams.address)
    streams.many("facts", 100)
    frame = spark.readStream.format(NAME).option("streams", "facts").load()
    seen: list[str] = []
    query = (
        frame.writeStream.foreachBatch(lambda rows, _: seen.extend(row.id for row in rows.select("id").collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        wait(query, lambda: len(seen) == 100)
        secret_store.kill()
        time.sleep(1)  # in which it asks a store that is not there
        secret_store.start()
        patiently(streams.client.ping)  # it reads its file first
        streams.many("facts", 100, first_ms=1000)
        wait(query, lambda: len(seen) == 200)
        assert len({*seen}) == 200
        query.explain(extended=True)
        told = f"{query.lastProgress} {query.status} {frame._jdf.queryExecution()}"
    finally:
        query.stop()
        streams.client.close()
    settings = " ".join(f"{name}={value}" for name, value in spark.sparkContext.getConf().getAll())
    printed = capfd.readouterr()
    files = " ".join(file.read_text(errors="replace") for file in (tmp_path / "c").rglob("*") if file.is_file())
    assert NAME in printed.out + told
    assert not [text for text in (told, settings, printed.out, printed.err, files) if "wdFsEcReT" in text]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"streams": "dead"}, "in batches only"), ({"url": "redis://joe:wdFsEcReT@store"}, "option url: no such option")],
)
def test_what_cannot_be_is_said(registered: SparkSession, tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words) as caught:
        Query(registered, tmp_path, **options).run()
    assert "wdFsEcReT" not in str(caught.value)
