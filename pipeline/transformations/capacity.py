"""How much there is of everything, by hour and channel, and whether it grows."""

from __future__ import annotations

from pyspark.sql import DataFrame, GroupedData, Window
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES

__all__ = ["capacity"]


def capacity(
    raw: DataFrame,
    published: DataFrame,
    addressed: DataFrame,
    ended: DataFrame,
    channels: DataFrame,
    settled: DataFrame,
    traffic: DataFrame,
    failed: DataFrame,
) -> DataFrame:
    """Return the table `capacity`. `raw` tells how large facts and events are, `channels` on which channel a message was; an
    entry that tells of several channels is shared out among them."""
    ends = ended.join(channels.select("log_id", "channel"), "log_id")
    stored = (
        published.where(f.col("channel") != "")
        .select("log_id", "at", "channel")
        .unionByName(addressed.select("log_id", "at", "channel"))
        .dropDuplicates(["log_id"])
    )
    facts = _of_channels(published, addressed, ends)
    events = _of_channels(settled, traffic, failed)
    counts = (
        _hourly(stored).agg(f.count("*").alias("persistent")),
        _hourly(traffic).agg(f.sum("published").alias("transient")),
        _hourly(ends).agg(f.count("*").alias("deliveries"), f.count_distinct("receiver").alias("sessions")),
        _hourly(_sized(facts, raw, "facts").unionByName(_sized(events, raw, "events"))).agg(
            f.round(f.sum("bytes")).cast("bigint").alias("bytes")
        ),
    )
    together = counts[0]
    for each in counts[1:]:
        together = together.join(each, ["hour", "channel"], "full")
    before = Window.partitionBy("channel").orderBy("hour")
    messages = f.col("persistent") + f.col("transient")
    is_next = f.col("hour") - f.expr("INTERVAL 1 HOUR") == f.lag("hour").over(before)
    return (
        together.fillna(0)
        .withColumn("messages", messages)
        .withColumn("trend", f.when(is_next, f.try_divide("messages", f.lag("messages").over(before))))
        .select(TABLES["capacity"].names)
    )


def _hourly(rows: DataFrame) -> GroupedData:
    return rows.groupBy(f.date_trunc("hour", "at").alias("hour"), "channel")


def _of_channels(*tables: DataFrame) -> DataFrame:
    found = tables[0].select("place", "at", "channel")
    for each in tables[1:]:
        found = found.unionByName(each.select("place", "at", "channel"))
    return found.where(f.col("channel") != "")


def _sized(rows: DataFrame, raw: DataFrame, key: str) -> DataFrame:
    """Give each row of an entry its part of the entry's bytes."""
    parts = rows.groupBy("place").agg(f.count("*").alias("parts"))
    sizes = raw.where(f.col("key") == key).select(f.col("id").alias("place"), "bytes")
    return (
        rows.join(parts, "place")
        .join(sizes, "place")
        .select("at", "channel", (f.col("bytes") / f.col("parts")).alias("bytes"))
    )
