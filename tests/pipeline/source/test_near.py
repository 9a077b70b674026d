"""Few entries are read by this process: the same rows as by the source, and none of them if there are more than a few."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import inputs
from crewel.pipeline.source import NAME, near, partition_reader, register, spread
from tests.pipeline.conftest import Streams


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"streams": "facts,events,dead"}, 41),
        ({"start": "5-0", "end": "9"}, 8),
        ({"start": "latest"}, 0),
    ],
)
def test_the_rows_are_those_of_the_source(
    spark: SparkSession, streams: Streams, options: dict[str, str], number: int
) -> None:
    streams.many("facts", 30)
    streams.many("events", 10)
    streams.add("dead", {"id": "1", "body": b"\xff"}, "7-0")
    register(spark, streams.address)
    rows = inputs.read(spark, streams.address, **options)
    assert near.few(streams.address, {"prefix": streams.address.prefix, **options}) is not None
    others = spark.read.format(NAME).options(prefix=streams.address.prefix, **options).load()
    assert sorted(map(tuple, rows.collect())) == sorted(map(tuple, others.collect()))
    assert rows.schema == others.schema
    assert rows.count() == number


@pytest.mark.parametrize(("name", "value"), [("MOST_ENTRIES", 29), ("MOST_BYTES", 100)])
def test_more_than_a_few_are_left_to_tasks(
    spark: SparkSession, streams: Streams, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    streams.many("facts", 30)
    monkeypatch.setattr(near, name, value)
    assert near.few(streams.address, {"prefix": streams.address.prefix}) is None
    assert inputs.read(spark, streams.address).count() == 30


def test_many_entries_are_those_of_the_source(
    spark: SparkSession, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_WORTH_A_TASK", 1000)
    streams.many("facts", 6000, per_ms=100)
    streams.many("events", 10)
    register(spark, streams.address)
    options = {"prefix": streams.address.prefix, "partitions": "4"}
    rows = spread.many(spark, streams.address, options)
    assert rows.rdd.getNumPartitions() == 4 + 1  # of facts and of events
    others = spark.read.format(NAME).options(**options).load()
    assert (rows.count(), rows.schema) == (6010, others.schema)
    assert rows.exceptAll(others).isEmpty()


def test_of_streams_that_do_not_exist_there_are_no_rows(spark: SparkSession, address: Address) -> None:
    assert spread.many(spark, address, {}).isEmpty()
    assert inputs.read(spark, address).isEmpty()
