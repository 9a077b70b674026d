"""How much there is of everything, by hour and channel, and whether it grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame, GroupedData, Window
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.expected import with_channel


def volumes(silver: Mapping[str, DataFrame], known: Mapping[str, DataFrame]) -> DataFrame:
    """Return the table `capacity` without its trend. Bytes are those of facts and events; what ended is on the channel of its
    message, which `known` tells: tables that have the messages of all that ended."""
    published = silver["fact_published"].where(f.col("channel") != "")
    addressed = silver["fact_addressed"]
    alone = _alone(addressed, published)
    ends = with_channel(silver["fact_ended"], known).where(f.col("channel").isNotNull())
    return _together(
        (
            _hourly(published).agg(f.count("*").alias("persistent"), f.sum("bytes").alias("bytes")),
            _hourly(alone).agg(f.count("*").alias("persistent")),
            _hourly(addressed).agg(f.sum("bytes").alias("bytes")),
            _hourly(silver["event_traffic"]).agg(f.sum("published").alias("transient"), f.sum("bytes").alias("bytes")),
            _hourly(silver["event_settled"]).agg(f.sum("bytes").alias("bytes")),
            _hourly(silver["event_failed"]).agg(f.sum("bytes").alias("bytes")),
            _hourly(ends).agg(
                f.count("*").alias("deliveries"),
                f.count_distinct("receiver").alias("sessions"),
                f.sum("bytes").alias("bytes"),
            ),
        )
    ).withColumn("bytes", f.round("bytes").cast("bigint"))


def messages(silver: Mapping[str, DataFrame], since: datetime, until: datetime) -> int:
    """Return how many messages were published or addressed in some time, and how many transient ones events tell of it."""
    names = ("fact_published", "fact_addressed", "event_traffic")
    is_within = f.col("at").between(f.lit(since), f.lit(until)) & (f.col("channel") != "")
    published, addressed, traffic = (silver[name].where(is_within) for name in names)
    transient: int = traffic.agg(f.coalesce(f.sum("published"), f.lit(0))).collect()[0][0]
    return published.count() + _alone(addressed, published).count() + transient


def _alone(addressed: DataFrame, published: DataFrame) -> DataFrame:
    """Return a row for each message that was addressed only: one that has subscribers too was published as well."""
    return addressed.dropDuplicates(["log_id"]).join(published.select("log_id"), "log_id", "left_anti")


def capacity(volumes: DataFrame) -> DataFrame:
    """Return the table `capacity`: volumes and their trend, which is null for the first hour."""
    before = Window.partitionBy("channel").orderBy("hour")
    messages = f.col("persistent") + f.col("transient")
    is_next = f.col("hour") - f.expr("INTERVAL 1 HOUR") == f.lag("hour").over(before)
    return (
        volumes.withColumn("messages", messages)
        .withColumn("trend", f.when(is_next, f.try_divide("messages", f.lag("messages").over(before))))
        .withColumn("date", f.to_date("hour"))
        .select(TABLES["capacity"].names)
    )


def _hourly(rows: DataFrame) -> GroupedData:
    return rows.where(f.col("channel") != "").groupBy(f.date_trunc("hour", "at").alias("hour"), "channel")


def _together(counts: Iterable[DataFrame]) -> DataFrame:
    """Return sums by hour and channel. Each was counted before, so that only hours are shuffled."""
    rows = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), counts)
    figures = ("persistent", "transient", "deliveries", "bytes", "sessions")
    return rows.groupBy("hour", "channel").agg(*(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in figures))
