"""Whose fault a rejection is: that of the message, of the receiver, or of the publisher that changed what it sends.

Each message that was rejected has its rejecters and its takers, and they decide, the first rule that holds:

- **channel**: many messages of a channel were rejected by most that got them, since its publisher changed what it sends
  (`changes`), and the rejecters rejected little else meanwhile.
- **message**: more receivers rejected it than took it, also if only those count that are not failing themselves.
- **receiver**: it rejected three messages or more that at least as many others took, or that no other receiver got; or most of
  what it answered within some seconds; or more receivers took the message than rejected it.
- **unclear**: the rest, such as the only rejection of a receiver that has taken nothing.

Of messages that are not stored no fact tells the takers: they are never the cause.

A receiver that ended, was on hold or took the message later, as after a redrive, has not rejected it. A message that was sent
again has another id; it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.transformations.changes import Keep, by_most, marked
from crewel.pipeline.transformations.expected import origins, with_channel

CHANNEL: Final = "channel"
RECEIVER: Final = "receiver"
MESSAGE: Final = "message"
UNCLEAR: Final = "unclear"

_DOUBLINGS: Final = 5
"""How often the chain of redrives is shortened to half: messages that were sent again up to 32 times are followed."""

_MOST_LETTERS: Final = 10

_PAIR: Final = ["message_id", "receiver"]
_OF_LETTER: Final = ("reason", "body", "sender", "shape")
"""What only a dead letter knows of a message."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on several rejections are no accident."""

    receiver_messages: int = 3
    outage_share: float = 0.5
    """Of all that it answered at that time."""


LIMITS: Final = Limits()


def rejections(silver: Mapping[str, DataFrame], origin: DataFrame) -> DataFrame:
    """Return what was rejected, a row for each message and receiver: `message_id` as it was published, `receiver`, `ids` that
    the message had for it, `times`, `first_at`, `last_at`, `codes`, `channel`, `is_stored`, `log_id`, `reason`, `body`,
    `sender`, `shape`, `letters`. `origin` are the rows of `origins`. Of the events `failed` some may be
    missing, so that dead letters and
    facts are asked as well."""
    told = _rejections(silver["event_failed"], silver["letters"], silver["fact_ended"])
    # Three witnesses may report one rejection, so what counts is the one that reports the most.
    by_witness = told.groupBy("id", "receiver", "witness").agg(
        f.count("*").alias("times"),
        f.bool_or("is_final").alias("is_final"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
        f.collect_set("code").alias("codes"),
        f.max("channel").alias("channel"),
        f.max_by(f.struct(*_OF_LETTER), "at").alias("sample"),
        f.slice(f.collect_list("letter"), 1, _MOST_LETTERS).alias("letters"),
    )
    by_id = by_witness.groupBy("id", "receiver").agg(*_together(f.max("times")))
    with_origin = by_id.join(origin, "id", "left").withColumn("message_id", f.coalesce("origin", "id"))
    has_died = f.bool_or("is_final").over(Window.partitionBy("message_id"))
    is_said = f.exists("codes", lambda code: code.startswith("user."))
    found = (
        with_origin.groupBy(*_PAIR)
        .agg(f.collect_set("id").alias("ids"), *_together(f.sum("times")))
        # A failure without an end is tried again: once is none, unless the message died afterwards, at another of a group.
        .withColumn("has_died", has_died)
        .where(f.col("is_final") | (f.col("times") > 1) | (f.col("has_died") & is_said))
        .withColumn("log_id", f.col("message_id").try_cast("bigint"))
        .withColumnRenamed("channel", "witnessed")
    )
    return with_channel(found, silver).select(
        *_PAIR,
        "ids",
        "times",
        "first_at",
        "last_at",
        f.array_sort("codes").alias("codes"),
        f.coalesce("channel", "witnessed", f.lit("")).alias("channel"),
        f.col("channel").isNotNull().alias("is_stored"),
        "log_id",
        "sample.reason",
        "sample.body",
        "sample.sender",
        f.coalesce("sample.shape", f.lit("")).alias("shape"),
        f.slice("letters", 1, _MOST_LETTERS).alias("letters"),
    )


def causes(silver: Mapping[str, DataFrame], keep: Keep, limits: Limits = LIMITS) -> DataFrame:
    """Return the rows of `rejections` whose receivers have not taken the message since, with `takers` and `rejecters` of the
    message, `taken` and `rejected` of the receiver, `published`, `earlier_shape` and `either` as of `changes.marked`, and
    `cause`."""
    origin = keep(origins(silver["fact_redriven"], _DOUBLINGS))
    rejected = keep(rejections(silver, origin))
    settled = _taken(silver["fact_ended"], origin)
    answered = settled.join(f.broadcast(rejected.select("message_id").distinct()), "message_id", "left_semi")
    pairs = keep(answered.select(*_PAIR).distinct())
    takers = pairs.groupBy("message_id").agg(f.count("*").alias("takers"))
    of_message = Window.partitionBy("message_id")
    unsolved = keep(
        rejected.join(pairs, _PAIR, "left_anti")
        .join(takers, "message_id", "left")
        .withColumn("takers", f.coalesce("takers", f.lit(0)))
        .withColumn("rejecters", f.count("*").over(of_message))
    )
    return keep(_judged(marked(unsolved, silver, settled, keep), settled, limits))


def of_ids(caused: DataFrame) -> DataFrame:
    """Return (message_id, receiver, cause, codes) for each id that a message had."""
    return caused.select(f.explode("ids").alias("message_id"), "receiver", "cause", "codes")


def _judged(found: DataFrame, settled: DataFrame, limits: Limits) -> DataFrame:
    """Add `taken`, `rejected` and `cause`."""
    rest = ~f.col("is_changed")
    of_receiver, of_message = Window.partitionBy("receiver"), Window.partitionBy("message_id")
    others_took = f.col("is_stored") & (f.col("takers") > f.col("rejecters"))
    is_its_own = (f.col("takers") >= f.col("rejecters")) | (f.col("rejecters") == 1) | ~f.col("is_stored")
    told = (
        _with_answers(found, settled, limits)
        .withColumn("rejected", f.count_if(rest).over(of_receiver))
        .withColumn("own", f.count_if(rest & is_its_own).over(of_receiver))
    )
    is_failing = (f.col("own") >= limits.receiver_messages) | f.col("is_out")
    is_credible = rest & ~f.col("is_failing") & (f.col("taken") > f.col("rejected"))
    is_poison = f.col("is_stored") & by_most() & (f.count_if(is_credible).over(of_message) > f.col("takers"))
    return (
        told.withColumn("is_failing", is_failing)
        .withColumn("is_poison", is_poison)
        .withColumn(
            "cause",
            f.when(f.col("is_changed"), CHANNEL)
            .when(f.col("is_poison"), MESSAGE)
            .when(f.col("is_failing") | others_took, RECEIVER)
            .otherwise(UNCLEAR),
        )
        .drop("is_changed", "is_poison", "is_failing", "is_out", "own")
    )


def _with_answers(found: DataFrame, settled: DataFrame, limits: Limits) -> DataFrame:
    """Add `taken` of the receiver, and `is_out`: whether it rejected most of what it answered at that time.

    Seconds are looked at, minutes, and tens of minutes, as messages may be many or few. What was taken is counted by second
    only beside a rejection.
    """
    refused = found.where("NOT is_changed").select("receiver", *_slots("last_at"))
    beside = f.explode(f.array(*(f.col("second") + each for each in (-1, 0, 1)))).alias("second")
    near = refused.select("receiver", beside).distinct().withColumn("is_near", f.lit(True))
    rejecting = f.broadcast(found.select("receiver").distinct())
    took = (
        settled.join(rejecting, "receiver", "left_semi")
        .select("receiver", *_slots("at"))
        .join(f.broadcast(near), ["receiver", "second"], "left")
        .groupBy("receiver", "minute", f.when(f.col("is_near"), f.col("second")).alias("second"))
        .agg(f.count("*").alias("took"))
    )
    counts = took.unionByName(
        refused.groupBy("receiver", "minute", "second").agg(f.count("*").alias("refused")), allowMissingColumns=True
    )
    receiver = Window.partitionBy("receiver")
    second, minute = receiver.orderBy("second").rangeBetween(-1, 1), Window.partitionBy("receiver", "minute")
    some_minutes = Window.partitionBy("receiver", f.expr("minute div 10"))
    answers = (
        counts.groupBy("receiver", "minute", "second")
        .agg(*(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("took", "refused")))
        .withColumn("taken", f.sum("took").over(receiver))
        .withColumn("is_out_now", _is_out(f.col("refused"), f.col("took"), limits))
        .withColumn(
            "is_out",
            f.bool_or("is_out_now").over(second)
            | _is_out(f.sum("refused").over(minute), f.sum("took").over(minute), limits)
            | _is_out(f.sum("refused").over(some_minutes), f.sum("took").over(some_minutes), limits),
        )
        .where(f.col("refused") > 0)
        .select("receiver", "second", "taken", "is_out")
    )
    known = found.select("*", _slots("last_at")[1]).join(answers, ["receiver", "second"], "left").drop("second")
    return known.fillna(0, ["taken"]).fillna(False, ["is_out"])


def _is_out(refused: Column, took: Column, limits: Limits) -> Column:
    return (refused >= limits.receiver_messages) & (refused >= limits.outage_share * (refused + took))


def _slots(at: str) -> list[Column]:
    return [
        f.expr(f"unix_millis({at}) div {length}").alias(name) for name, length in (("minute", 60_000), ("second", 1000))
    ]


def _taken(ended: DataFrame, origin: DataFrame) -> DataFrame:
    """Return (message_id, receiver, at) of what was acknowledged, by the id under which it was published."""
    return (
        ended.where(f.col("reason") == "settled")
        .select(f.col("log_id").cast("string").alias("id"), "at", "receiver")
        .join(f.broadcast(origin), "id", "left")
        .select(f.coalesce("origin", "id").alias("message_id"), "receiver", "at")
    )


def _together(times: Column) -> list[Column]:
    return [
        times.alias("times"),
        f.bool_or("is_final").alias("is_final"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
        f.array_distinct(f.flatten(f.collect_list("codes"))).alias("codes"),
        f.max("channel").alias("channel"),
        # Of the witnesses, only a dead letter knows them.
        f.max_by("sample", f.struct(f.col("sample.body").isNotNull(), f.col("last_at"))).alias("sample"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_list("letters")))).alias("letters"),
    ]


def _rejections(failed: DataFrame, letters: DataFrame, ended: DataFrame) -> DataFrame:
    """What each witness reports of one id: (id, receiver, code, at, witness, is_final, channel, reason, body, sender, shape,
    letter)."""
    nothing = f.lit(None).cast("string")
    unknown = [nothing.alias(name) for name in (*_OF_LETTER, "letter")]
    said = "code", "at"
    return (
        failed.where(~_is_holdback("code"))
        .withColumn("at", f.col("happened"))
        .select(
            f.col("message_id").alias("id"),
            f.col("session").alias("receiver"),
            *said,
            f.lit("event").alias("witness"),
            ((f.col("outcome") == "letter") & _is_rejection("code")).alias("is_final"),
            f.nullif("channel", f.lit("")).alias("channel"),
            *unknown,
        )
        .unionByName(
            letters.where(_is_rejection("code"))
            .withColumn("at", f.coalesce("died", "at"))
            .select(
                f.col("message_id").alias("id"),
                "receiver",
                *said,
                f.lit("letter").alias("witness"),
                f.lit(True).alias("is_final"),
                f.nullif("channel", f.lit("")).alias("channel"),
                *_OF_LETTER,
                f.col("place").alias("letter"),
            )
        )
        .unionByName(
            ended.where((f.col("reason") == "dead") & _is_rejection("code")).select(
                f.col("log_id").cast("string").alias("id"),
                f.regexp_replace("receiver", "^one:", "").alias("receiver"),  # so do letters call the receiver
                *said,
                f.lit("fact").alias("witness"),
                f.lit(True).alias("is_final"),
                nothing.alias("channel"),
                *unknown,
            )
        )
    )


def _is_rejection(code: str) -> Column:
    # Of the other codes of letters some are no word of the receiver's: sessions that ended, queues that were full.
    return f.col(code).startswith("user.") & ~_is_holdback(code)


def _is_holdback(code: str) -> Column:
    # A receiver that takes nothing for the time being says nothing of the message.
    return f.col(code).startswith("user.update.holdback")
