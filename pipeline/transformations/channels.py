"""Channels that fail since a publisher changed the data: most receivers reject it, and took what came before."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.causes import CHANNEL
from crewel.pipeline.transformations.common import clock
from crewel.pipeline.transformations.poison import evidence, firsts

_ONE = ["channel", "group"]


def failing_channels(caused: DataFrame, silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return the table `failing_channels`, from the rows of `causes`."""
    found = (
        caused.where(f.col("cause") == CHANNEL)
        # Where no earlier shape is known, whatever came from one moment on is one finding.
        .withColumn("group", f.when(f.col("earlier_shape").isNotNull(), f.col("shape")).otherwise(""))
        .groupBy(*_ONE)
        .agg(
            f.mode("shape").alias("shape"),
            f.count_distinct("message_id").alias("messages"),
            f.max("published").alias("published"),
            f.count_distinct("receiver").alias("receivers"),
            f.max("takers").alias("takers"),
            f.max("earlier_shape").alias("earlier_shape"),
            firsts(f.collect_set(f.nullif("sender", f.lit("")))).alias("publishers"),
            f.min("log_id").alias("first_id"),
            *evidence(),
        )
    )
    first_ids = f.broadcast(found.select(*_ONE, "first_id"))
    is_earlier = f.col("log_id") < f.col("first_id")
    before = (
        silver["fact_published"]
        .select("channel", "log_id")
        .join(first_ids, "channel")
        .where(is_earlier)
        .groupBy(*_ONE)
        .agg(f.count("*").alias("earlier"))
    )
    return (
        found.join(before, _ONE, "left")
        .withColumn("earlier", f.coalesce("earlier", f.lit(0)))
        .withColumn("why", _why())
        .select(TABLES["failing_channels"].names)
    )


def _why() -> Column:
    by_shape = f.format_string(
        "%d receivers reject %d of %d messages since the first of this shape", "receivers", "messages", "published"
    )
    by_moment = f.format_string(
        "%d receivers took it until %s, and reject %d of %d messages since, all of one publisher",
        f.col("receivers"),
        clock("first_at"),
        f.col("messages"),
        f.col("published"),
    )
    return f.concat(
        f.when(f.col("earlier_shape").isNull(), by_moment).otherwise(by_shape),
        f.when(f.col("takers") == 0, "; none took them").otherwise(
            f.format_string("; at most %d took one of them", "takers")
        ),
        f.when(f.col("earlier") > 0, f.format_string("; the channel had %d before", "earlier")).otherwise(""),
    )
