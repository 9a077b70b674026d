"""Channels whose publisher changed what it sends, so that most receivers reject it.

Two things show a change, and the first is the better one:

- **its shape**: most receivers reject data of a shape that none of them took before, and took another shape. The samples of
  the server tell which shapes were taken, and so does what only a few receivers rejected.
- **one moment**: two receivers or more took the channel up to one message, and reject everything from there on, all of one
  publisher. All receivers of the channel do, or these take other channels meanwhile: else they are broken themselves.

One receiver alone that does so shows that either side changed. It stays the cause, and the finding names both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.transformations.expected import stored

Keep = Callable[[DataFrame], DataFrame]
"""Returns a frame that is computed once, however often it is used."""

SHAPE: Final = ["channel", "shape"]


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on rejections show a change of the publisher."""

    messages: int = 5
    share: float = 0.1
    """Of all messages of the channel, from the first to the last that was rejected."""
    lone_share: float = 0.5
    """Of all messages of the channel, if only one receiver rejected them."""
    beside_share: float = 0.5
    """How many messages of other shapes and channels they may have rejected meanwhile, by the number of these messages."""
    strays: int = 2
    """How many messages just before the moment a receiver may have rejected for other reasons."""


LIMITS: Final = Limits()


def by_most() -> Column:
    """Whether more receivers rejected a message than took it."""
    return f.col("rejecters") > f.col("takers")


def marked(
    unsolved: DataFrame, silver: Mapping[str, DataFrame], settled: DataFrame, keep: Keep, limits: Limits = LIMITS
) -> DataFrame:
    """Return the rows of `unsolved` with `is_changed`; of a changed publisher also `published`, how many messages the channel
    had from the first to the last of them, and `earlier_shape`, null if it is not known; and `either`, the publisher that may
    have changed as well, where a lone receiver is the cause. `settled` has (message_id, receiver, at)."""
    shapes = keep(failing_shapes(unsolved, silver, keep, limits))
    found = unsolved.join(f.broadcast(shapes), SHAPE, "left")
    is_of_shape = f.col("published").isNotNull() & by_most()
    rest = keep(found.where(~is_of_shape).select(*unsolved.columns))
    steps = keep(_steps(rest, silver, settled, keep, limits))
    found = found.join(f.broadcast(steps), "channel", "left")
    is_after = ~is_of_shape & f.coalesce(f.col("log_id") >= f.col("step_id"), f.lit(False))
    is_of_step = is_after & by_most() & ~f.col("is_lone")
    is_either = is_after & f.col("is_lone") & f.array_contains("stepping", f.col("receiver"))
    return found.select(
        *unsolved.columns,
        (is_of_shape | is_of_step).alias("is_changed"),
        f.when(is_of_shape, f.col("published")).when(is_of_step, f.col("step_published")).alias("published"),
        f.when(is_of_shape, f.col("earlier_shape")).alias("earlier_shape"),
        f.when(is_either, f.col("publisher")).alias("either"),
    )


def failing_shapes(
    unsolved: DataFrame, silver: Mapping[str, DataFrame], keep: Keep, limits: Limits = LIMITS
) -> DataFrame:
    """Return (channel, shape, published, earlier_shape) of the shapes of data that most receivers reject on a channel since a
    publisher changed: with how many messages the channel had from the first to the last of them, and with the shape that was
    taken before."""
    rejected = unsolved.where(by_most() & f.col("log_id").isNotNull() & (f.col("shape") != ""))
    found = keep(rejected.groupBy(*SHAPE).agg(*_extent()).where(f.col("messages") >= limits.messages))
    taken = _taken_shapes(unsolved, silver)
    is_before = f.col("before_id") < f.col("first_id")
    earlier = (
        taken.join(f.broadcast(found.select(*SHAPE, "first_id")), "channel")
        .where(is_before)
        .groupBy(*SHAPE)
        .agg(
            f.max_by("other", "before_id").alias("earlier_shape"),
            f.bool_or(f.col("other") == f.col("shape")).alias("is_old"),
        )
        .where(~f.col("is_old"))
        .drop("is_old")
    )
    known = found.join(earlier, SHAPE)
    # Where everything is rejected, so is the earlier shape.
    still = rejected.select("channel", f.col("shape").alias("earlier_shape"), "log_id", "message_id")
    unchanged = (
        known.join(still, ["channel", "earlier_shape"])
        .where(f.col("log_id") > f.col("first_id"))
        .groupBy(*SHAPE)
        .agg(f.count_distinct("message_id").alias("still"))
        .where(f.col("still") >= limits.messages)
    )
    changed = keep(known.join(unchanged.select(*SHAPE), SHAPE, "left_anti"))
    others = rejected.join(f.broadcast(changed), SHAPE, "left_anti")
    least = f.when(f.size("names") > 1, limits.share).otherwise(limits.lone_share)
    return (
        _with_surroundings(changed, SHAPE, others, silver)
        .where(f.col("messages") >= least * f.col("published"))
        .where(f.col("beside") <= limits.beside_share * f.col("messages"))
        .select(*SHAPE, "published", "earlier_shape")
    )


def _taken_shapes(unsolved: DataFrame, silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return (channel, other, before_id) of messages that were taken, by the samples of the server; and of those that a few
    rejected, which show what most took."""
    few = unsolved.where(~by_most() & (f.col("shape") != ""))
    names = f.col("shape").alias("other"), f.col("log_id").alias("before_id")
    return few.select("channel", *names).unionByName(silver["event_shape"].select("channel", *names))


def _steps(
    rest: DataFrame, silver: Mapping[str, DataFrame], settled: DataFrame, keep: Keep, limits: Limits
) -> DataFrame:
    """Return (channel, step_id, stepping, publisher, is_lone, step_published) of channels that some receivers took up to one
    message and reject from there on: the first one, the receivers, and whose messages it are."""
    logged = rest.where(f.col("log_id").isNotNull())
    failing = logged.where(by_most()).groupBy("channel").agg(f.count_distinct("message_id").alias("messages"))
    channels = f.broadcast(failing.where(f.col("messages") >= limits.messages).select("channel"))
    columns = ("channel", "receiver", "log_id", "sender")
    rejected = keep(logged.join(channels, "channel").select(*columns, by_most().alias("is_of_most")))
    messages = stored(silver).join(channels, "channel")
    # A transient message that was redriven has an id that is no number, and its channel is not in `stored`.
    by_id = settled.select("receiver", f.col("message_id").try_cast("bigint").alias("log_id"))
    last_taken = f.max("log_id").alias("last_taken")
    took = keep(
        by_id.join(messages, "log_id").groupBy("channel", "receiver").agg(last_taken, f.count("*").alias("took"))
    )
    steps = keep(_together(rejected, took, limits))
    takers = (
        took.join(f.broadcast(steps), "channel")
        .where(f.col("last_taken") > f.col("first_id"))
        .groupBy("channel")
        .agg(f.count("*").alias("takers"))
    )
    # What these receivers take from there on is of other channels.
    elsewhere = (
        by_id.join(f.broadcast(_by_name(steps, ["channel"])), "receiver")
        .where(_is_within())
        .groupBy("channel")
        .agg(f.count_distinct("receiver").alias("elsewhere"))
    )
    others = logged.where(by_most()).withColumnRenamed("channel", "other")
    known = _with_surroundings(steps, ["channel"], others, silver, other="other")
    known = known.join(takers, "channel", "left").join(elsewhere, "channel", "left").fillna(0, ["takers", "elsewhere"])
    is_lone = f.size("names") == 1
    is_alive = f.col("elsewhere") == f.size("names")
    return (
        known.where(f.col("beside") <= limits.beside_share * f.col("messages"))
        .where((f.col("takers") == 0) | (~is_lone & is_alive))
        .where(f.col("messages") >= limits.lone_share * f.col("published"))
        .select(
            "channel",
            f.col("first_id").alias("step_id"),
            f.col("names").alias("stepping"),
            f.col("senders")[0].alias("publisher"),
            is_lone.alias("is_lone"),
            f.col("published").alias("step_published"),
        )
    )


def _together(rejected: DataFrame, took: DataFrame, limits: Limits) -> DataFrame:
    """Return what receivers reject since one moment, a row a channel: `_extent` of it, and `senders`, whose it is. Each of them
    took most of the channel before, and nothing since."""
    receiver = ["channel", "receiver"]
    is_after = f.col("log_id") > f.col("last_taken")
    # The last message that one of them took is the moment: what another one rejected just before it was a stray.
    is_early = is_after & (f.col("log_id") <= f.col("moment"))
    took_most = f.col("took") >= f.greatest(f.col("before"), f.lit(limits.messages))
    one = Window.partitionBy(*receiver)
    return (
        rejected.join(f.broadcast(took), receiver)
        .withColumn("after", f.count_if(is_after).over(one))
        .withColumn("before", f.count_if(~is_after).over(one))
        .where((f.col("after") >= limits.messages) & took_most)
        .withColumn("moment", f.max("last_taken").over(Window.partitionBy("channel")))
        .withColumn("early", f.count_if(is_early).over(one))
        .where((f.col("early") <= limits.strays) & (f.col("log_id") > f.col("moment")) & f.col("is_of_most"))
        .groupBy("channel")
        .agg(*_extent("log_id"), f.collect_set("sender").alias("senders"))
        .where((f.col("messages") >= limits.messages) & (f.size("senders") == 1))
    )


def _extent(message: str = "message_id") -> list[Column]:
    """Return how many messages there are, whose, and from where to where."""
    return [
        f.count_distinct(message).alias("messages"),
        f.collect_set("receiver").alias("names"),
        f.min("log_id").alias("first_id"),
        f.max("log_id").alias("last_id"),
    ]


def _is_within() -> Column:
    return f.col("log_id").between(f.col("first_id"), f.col("last_id"))


def _by_name(changed: DataFrame, one: list[str]) -> DataFrame:
    """Return a row for each receiver: what is joined by name need not be compared with each change."""
    return changed.select(*one, "first_id", "last_id", f.explode("names").alias("receiver"))


def _with_surroundings(
    changed: DataFrame, one: list[str], others: DataFrame, silver: Mapping[str, DataFrame], other: str = ""
) -> DataFrame:
    """Add `published`, how many messages the channel had meanwhile, and `beside`, how many of `others` the same receivers
    rejected meanwhile; only those of other channels count if `other` is the column of their channel."""
    columns = ["log_id", "message_id", "receiver", *([other] if other else [])]
    beside = (
        others.select(*columns)
        .join(f.broadcast(_by_name(changed, one)), "receiver")
        .where(_is_within() & (f.col(other) != f.col("channel") if other else f.lit(True)))
        .groupBy(*one)
        .agg(f.count_distinct("message_id").alias("beside"))
    )
    published = (
        stored(silver)
        .join(f.broadcast(changed.select(*one, "first_id", "last_id")), "channel")
        .where(_is_within())
        .groupBy(*one)
        .agg(f.count("*").alias("published"))
    )
    return (
        changed.join(published, one, "left")
        .join(beside, one, "left")
        .withColumn("published", f.greatest("published", "messages"))
        .fillna(0, ["beside"])
    )
