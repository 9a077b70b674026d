"""Subscriptions as intervals of the log: from where they began to where they ended."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES

_INTERVALS: Final = TABLES["intervals"]
_ONE: Final = ["session", "pattern", "from_id"]


def intervals(subscribed: DataFrame, unsubscribed: DataFrame) -> DataFrame:
    """Return the table `intervals`. `options` is all that was asked for at any time of the interval."""
    starts = (
        subscribed.where("begins")
        .groupBy(*_ONE)
        .agg(
            f.max_by(f.struct("groups", f.col("place").alias("subscribed")), f.struct("ms", "seq")).alias("begin"),
            f.count("*").alias("begins"),
        )
    )
    ends = unsubscribed.groupBy(*_ONE).agg(
        f.max_by(f.struct("until_id", "groups", f.col("place").alias("unsubscribed")), f.struct("ms", "seq")).alias(
            "end"
        ),
        f.count("*").alias("ends"),
    )
    # Who comes and goes and comes again while nothing is published does so at the same log id: the last time counts.
    is_over = f.col("ends") >= f.coalesce("begins", f.lit(0))
    known = starts.join(ends, _ONE, "full").select(
        *_ONE,
        f.when(is_over, f.col("end.until_id")).alias("until_id"),
        f.coalesce("begin.groups", "end.groups").alias("groups"),
        "begin.subscribed",
        f.when(is_over, f.col("end.unsubscribed")).alias("unsubscribed"),
    )
    asked = subscribed.where(f.col("options").isNotNull() & (f.col("options") != "{}")).select(
        "session",
        "pattern",
        f.col("from_id").alias("asked_id"),
        f.regexp_replace("options", r"^\[(.*)\]$", "$1").alias("options"),
    )
    is_within = (f.col("asked_id") >= f.col("from_id")) & (
        f.col("until_id").isNull() | (f.col("asked_id") <= f.col("until_id"))
    )
    wishes = (
        known.join(asked, ["session", "pattern"])
        .where(is_within)
        .groupBy(*_ONE)
        .agg(f.array_sort(f.collect_set("options")).alias("wishes"))
        .select(
            *_ONE,
            f.when(f.size("wishes") == 1, f.col("wishes")[0])
            .otherwise(f.concat(f.lit("["), f.array_join("wishes", ","), f.lit("]")))
            .alias("options"),
        )
    )
    return known.join(wishes, _ONE, "left").select(*_INTERVALS.names)
