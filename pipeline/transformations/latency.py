"""How long settling takes, and how much waits, by minute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.schemas import BUCKETS_MS, TABLES
from crewel.pipeline.transformations.owing import given, held_by, taken

__all__ = ["backlog", "latency", "of_all", "percentile"]

_PERCENTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


def latency(settled: DataFrame) -> DataFrame:
    """Return the table `latency`, from the events `settled`."""
    counts = [
        f.sum(f.coalesce(f.get("buckets", f.lit(at)), f.lit(0))).alias(f"bucket{at}")
        for at in range(len(BUCKETS_MS) + 1)
    ]
    return (
        settled.groupBy(f.date_trunc("minute", "since").alias("minute"), "channel")
        .agg(f.sum("count").alias("count"), f.sum("sum_ms").alias("sum_ms"), *counts)
        .withColumn("buckets", f.array(*(f"bucket{at}" for at in range(len(counts)))))
        .withColumn("mean_ms", f.try_divide("sum_ms", "count"))
        .withColumns({name: percentile(f.col("buckets"), share) for name, share in _PERCENTILES.items()})
        .select(TABLES["latency"].names)
    )


def of_all(found: DataFrame) -> DataFrame:
    """Return the table `latency` over all channels, whose name is empty then; from that table."""
    return latency(
        found.select(
            f.col("minute").alias("since"),
            f.lit("").alias("channel"),
            "count",
            (f.col("mean_ms") * f.col("count")).alias("sum_ms"),
            "buckets",
        )
    )


def percentile(buckets: Column, share: float) -> Column:
    """Return the upper bound, in milliseconds, of the bucket in which this share of all is reached; null if that is the last
    one, which has none, or if there is nothing in them."""
    sums = f.transform(f.sequence(f.lit(1), f.size(buckets)), lambda count: _sum(f.slice(buckets, 1, count)))
    wanted = f.ceil(_sum(buckets) * f.lit(share))
    at = f.array_position(f.transform(sums, lambda each: each >= wanted), True)
    bounds = f.array(*(f.lit(float(bound)) for bound in BUCKETS_MS))
    return f.when(_sum(buckets) > 0, f.get(bounds, (at - 1).cast("int")))


def _sum(numbers: Column) -> Column:
    return f.aggregate(numbers, f.lit(0).cast("bigint"), lambda total, each: total + each)


def backlog(
    published: DataFrame,
    intervals: DataFrame,
    addressed: DataFrame,
    leased: DataFrame,
    returned: DataFrame,
    redriven: DataFrame,
    ended: DataFrame,
) -> DataFrame:
    """Return the table `backlog`. It counts from the oldest fact on, and what was owed before then is not in it."""
    minute = f.date_trunc("minute", "at").alias("minute")
    by_log = held_by(published, intervals).select("session", "log_id", "at").distinct().select(minute)
    beside = given(addressed, leased, returned, redriven).select(minute)
    owed = _count((by_log, beside), "owed")
    gone = _count((taken(ended, leased).select(minute),), "ended")
    until_now = Window.orderBy("minute").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        owed.join(gone, "minute", "full")
        .fillna(0, ["owed", "ended"])
        .withColumn("waiting", f.sum(f.col("owed") - f.col("ended")).over(until_now))
        .withColumn("waiting", f.greatest("waiting", f.lit(0)))
        .select(TABLES["backlog"].names)
    )


def _count(minutes: Iterable[DataFrame], name: str) -> DataFrame:
    # Each is counted before they come together, so that only minutes are shuffled.
    counts = [each.groupBy("minute").agg(f.count("*").alias(name)) for each in minutes]
    together = counts[0]
    for each in counts[1:]:
        together = together.unionByName(each)
    return together.groupBy("minute").agg(f.sum(name).alias(name))
