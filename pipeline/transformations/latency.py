"""How long messages take until they have ended, and how many wait, by minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.expected import FOR_EVER, given, patterns_of, taken
from crewel.storage.streams import BUCKETS_MS

_PERCENTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


def latency(settled: DataFrame) -> DataFrame:
    """Return the table `latency`, from the events `settled`, each in the minute in which the store had it."""
    counts = [
        f.sum(f.coalesce(f.get("buckets", f.lit(at)), f.lit(0))).alias(f"bucket{at}")
        for at in range(len(BUCKETS_MS) + 1)
    ]
    return (
        settled.groupBy(_minute(), "channel")
        .agg(f.sum("count").alias("count"), f.sum("sum_ms").alias("sum_ms"), *counts)
        .withColumn("buckets", f.array(*(f"bucket{at}" for at in range(len(counts)))))
        .withColumn("date", f.to_date("minute"))
        .withColumn("mean_ms", f.try_divide("sum_ms", "count"))
        .withColumns({name: percentile(f.col("buckets"), share) for name, share in _PERCENTILES.items()})
        .select(TABLES["latency"].names)
    )


def of_all(found: DataFrame) -> DataFrame:
    """Return the table `latency` over all channels, whose name is empty then; from that table."""
    return latency(
        found.select(
            f.col("minute").alias("at"),
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


def movements(silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return (minute, owed, ended): how many deliveries became pending and ended in each minute, from the oldest fact on."""
    addressed, leased, returned, redriven = (
        silver[f"fact_{name}"] for name in ("addressed", "leased", "returned", "redriven")
    )
    by_log = _owed_by_log(silver["fact_published"], silver["intervals"])
    beside = _count(given(addressed, leased, returned, redriven), "owed")
    owed = by_log.unionByName(beside).groupBy("minute").agg(f.sum("owed").alias("owed"))
    gone = _count(taken(silver["fact_ended"], leased), "ended")
    return owed.join(gone, "minute", "full").fillna(0, ["owed", "ended"])


def backlog(moved: DataFrame) -> DataFrame:
    """Return the table `backlog`, from all movements, one row a minute.

    More may have ended than became pending, by what is known: then so many were pending before the first minute, and the sum
    begins with them.
    """
    until_now = Window.orderBy("minute").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        moved.withColumn("change", f.sum(f.col("owed") - f.col("ended")).over(until_now))
        .withColumn("waiting", f.col("change") - f.least(f.lit(0), f.min("change").over(until_now)))
        .withColumn("date", f.to_date("minute"))
        .select(TABLES["backlog"].names)
    )


def _owed_by_log(published: DataFrame, intervals: DataFrame) -> DataFrame:
    """Return (minute, owed): messages times the sessions that get them.

    Most subscriptions hold all messages of a channel's minute or none: there a product will do. Only where they begin or end
    it is looked at each message.
    """
    messages = published.select(_minute(), "channel", "log_id")
    minutes = messages.groupBy("minute", "channel").agg(
        f.count("*").alias("messages"), f.min("log_id").alias("first"), f.max("log_id").alias("last")
    )
    names = minutes.select("channel").distinct().select("channel", f.explode(patterns_of(f.col("channel"))).alias("p"))
    wanted = intervals.join(names, intervals["pattern"] == names["p"]).select(
        "channel", "session", "from_id", f.coalesce("until_id", f.lit(FOR_EVER)).alias("until_id")
    )
    holds_some = (f.col("from_id") < f.col("last")) & (f.col("until_id") >= f.col("first"))
    holds_all = (f.col("from_id") < f.col("first")) & (f.col("until_id") >= f.col("last"))
    held = (
        minutes.join(wanted, "channel")
        .where(holds_some)
        .groupBy("minute", "channel", "session")
        .agg(f.max("messages").alias("messages"), f.bool_or(holds_all).alias("is_all"))
    )
    wholes = held.where("is_all").groupBy("minute").agg(f.sum("messages").alias("owed"))
    is_in_it = (f.col("from_id") < f.col("log_id")) & (f.col("log_id") <= f.col("until_id"))
    partly = (
        messages.join(held.where("NOT is_all").select("minute", "channel", "session"), ["minute", "channel"])
        .join(wanted, ["channel", "session"])
        .where(is_in_it)
        .select("minute", "session", "log_id")
        .distinct()
    )
    return wholes.unionByName(partly.groupBy("minute").agg(f.count("*").alias("owed")))


def _minute() -> Column:
    return f.date_trunc("minute", "at").alias("minute")


def _count(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy(_minute()).agg(f.count("*").alias(name))
