"""Poison messages: those that several receivers rejected, or one several times.

That a session ended before it took a message is no rejection, nor is a holdback. A message that was sent again has another id;
it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.owing import with_channel

_MOST_NAMES: Final = 10
_DOUBLINGS: Final = 5
"""How often the chain of redrives is shortened to half: messages that were sent again up to 32 times are followed."""


def poison(silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return the table `poison`. Of the events `failed` some may be missing, so that letters and facts are asked as well."""
    rejections = _original(
        _rejections(silver["event_failed"], silver["letters"], silver["fact_ended"]), origins(silver["fact_redriven"])
    )
    # Three witnesses may report one rejection, so what counts is the one that reports the most.
    by_witness = rejections.groupBy("message_id", "receiver", "id", "witness").agg(
        f.count("*").alias("times"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
        f.collect_set("code").alias("codes"),
        f.max("channel").alias("channel"),
        f.max_by("reason", "at").alias("reason"),
        f.max_by("body", "at").alias("body"),
    )
    by_id = by_witness.groupBy("message_id", "receiver", "id").agg(*_together(f.max("times")))
    by_receiver = by_id.groupBy("message_id", "receiver").agg(*_together(f.sum("times")))
    found = (
        by_receiver.groupBy("message_id")
        .agg(
            f.count("*").alias("receivers"),
            f.slice(f.array_sort(f.collect_set("receiver")), 1, _MOST_NAMES).alias("names"),
            *_together(f.sum("times")),
        )
        .where((f.col("receivers") > 1) | (f.col("times") > 1))
        .withColumnsRenamed(
            {"channel": "witnessed", "times": "failures", "reason": "sample_reason", "body": "sample_body"}
        )
        .withColumn("log_id", f.col("message_id").try_cast("bigint"))
    )
    return (
        with_channel(found, silver)
        .withColumns({"channel": f.coalesce("channel", "witnessed", f.lit("")), "codes": f.array_sort("codes")})
        .select(TABLES["poison"].names)
    )


def origins(redriven: DataFrame) -> DataFrame:
    """Return (id, origin), texts: for each id that a redrive gave, the id under which the message was published."""
    steps = redriven.select(f.col("log_id").cast("string").alias("id"), f.col("message_id").alias("origin"))
    for _ in range(_DOUBLINGS):
        before = steps.select(f.col("id").alias("origin"), f.col("origin").alias("earlier"))
        steps = steps.join(before, "origin", "left").select("id", f.coalesce("earlier", "origin").alias("origin"))
    return steps.select("id", "origin")


def _together(times: Column) -> list[Column]:
    return [
        times.alias("times"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
        f.array_distinct(f.flatten(f.collect_list("codes"))).alias("codes"),
        f.max("channel").alias("channel"),
        f.max("reason").alias("reason"),
        f.max("body").alias("body"),
    ]


def _rejections(failed: DataFrame, letters: DataFrame, ended: DataFrame) -> DataFrame:
    """What each witness reports of one id: (id, receiver, code, at, witness, channel, reason, body)."""
    nothing = f.lit(None).cast("string")
    return (
        failed.where(~_is_holdback("code"))
        .select(
            f.col("message_id").alias("id"),
            f.col("session").alias("receiver"),
            "code",
            f.col("happened").alias("at"),
            f.lit("event").alias("witness"),
            f.nullif("channel", f.lit("")).alias("channel"),
            nothing.alias("reason"),
            nothing.alias("body"),
        )
        .unionByName(
            letters.where(_is_rejection("code")).select(
                f.col("message_id").alias("id"),
                "receiver",
                "code",
                "at",
                f.lit("letter").alias("witness"),
                f.nullif("channel", f.lit("")).alias("channel"),
                "reason",
                "body",
            )
        )
        .unionByName(
            ended.where((f.col("reason") == "dead") & _is_rejection("code")).select(
                f.col("log_id").cast("string").alias("id"),
                "receiver",
                "code",
                "at",
                f.lit("fact").alias("witness"),
                nothing.alias("channel"),
                nothing.alias("reason"),
                nothing.alias("body"),
            )
        )
    )


def _is_rejection(code: str) -> Column:
    # Of the other codes of letters some are no word of the receiver's: sessions that ended, queues that were full.
    return f.col(code).startswith("user.") & ~_is_holdback(code)


def _is_holdback(code: str) -> Column:
    # A receiver that takes nothing for the time being says nothing of the message.
    return f.col(code).startswith("user.update.holdback")


def _original(rejections: DataFrame, origin: DataFrame) -> DataFrame:
    return rejections.join(origin, "id", "left").withColumn("message_id", f.coalesce("origin", "id")).drop("origin")
