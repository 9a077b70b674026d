"""Poison messages: rejections whose cause is the message."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.causes import MESSAGE

MOST_NAMES: Final = 10


def poison(caused: DataFrame) -> DataFrame:
    """Return the table `poison`, from the rows of `causes`."""
    return (
        caused.where(f.col("cause") == MESSAGE)
        .groupBy("message_id")
        .agg(
            f.max("log_id").alias("log_id"),
            f.max("channel").alias("channel"),
            f.count("*").alias("receivers"),
            f.max("takers").alias("takers"),
            f.max("receiver").alias("one"),
            f.max("taken").alias("taken"),
            *evidence(),
        )
        .withColumn("why", _why())
        .select(TABLES["poison"].names)
    )


def evidence() -> list[Column]:
    """Return what findings about several rejections have in common, as aggregates."""
    newest = f.struct(f.col("body").isNotNull(), f.col("last_at"))
    return [
        f.sum("times").alias("failures"),
        firsts(f.collect_set("receiver")).alias("names"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_list("codes")))).alias("codes"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
        firsts(f.array_distinct(f.flatten(f.collect_list("letters")))).alias("dead_letters"),
        f.max_by("reason", newest).alias("sample_reason"),
        f.max_by("body", newest).alias("sample_body"),
    ]


def firsts(names: Column) -> Column:
    """Return the first names of an array, in their order."""
    return f.slice(f.array_sort(names), 1, MOST_NAMES)


def _why() -> Column:
    took = f.when(f.col("takers") > 0, f.format_string(", %d took it", "takers")).otherwise(", none took it")
    return f.concat(
        f.when(f.col("receivers") > 1, f.format_string("%d receivers rejected it", "receivers")).otherwise(
            f.format_string("%s rejected it, and took %d other messages", "one", "taken")
        ),
        f.when(f.col("receivers") > 1, took).otherwise(
            f.when(f.col("takers") > 0, f.format_string("; %d other receivers took it", "takers")).otherwise("")
        ),
    )
