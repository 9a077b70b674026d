"""Which deliveries were expected: published messages and the subscriptions that hold them, and what was given beside the log.

A subscription is an interval of the log. It holds a message whose id is in the interval and whose channel its pattern matches,
as docs/reference/protocol.md says it; a session gets it once, however many of its intervals hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

FOR_EVER: Final = 2**62
"""A log id that no message will have."""

_DOUBLINGS: Final = 3
"""How often the chain of redrives is shortened to half, to find a channel: messages that were sent again up to 8 times."""

_REPLY: Final = r"^/ret/([A-Za-z0-9_\-]{1,64})/(?:[1-9][0-9]{6}|\*)$"


def patterns_of(channel: Column) -> Column:
    """Return the array of all patterns that match a channel, its own name among them; an empty one for meta and service
    channels, which no one receives by subscription."""
    segments = f.split(channel, "/")  # the first one is empty
    parents = f.transform(
        f.sequence(f.lit(1), f.size(segments) - 1), lambda count: f.array_join(f.slice(segments, 1, count), "/")
    )
    deep = f.transform(parents, lambda parent: f.concat(parent, f.lit("/**")))
    wide = f.concat(f.element_at(parents, -1), f.lit("/*"))
    reply = f.concat(f.lit("/ret/"), f.regexp_extract(channel, _REPLY, 1), f.lit("/*"))
    return (
        f.when(channel.startswith("/meta/") | channel.startswith("/service/"), f.array().cast("array<string>"))
        .when(~channel.startswith("/"), f.array().cast("array<string>"))
        .when(channel.startswith("/__sys__"), f.array(channel))
        .when(channel.rlike(_REPLY), f.array_distinct(f.array(reply, channel)))
        .when(channel.startswith("/ret/"), f.array(channel))
        .otherwise(f.array_distinct(f.concat(deep, f.array(wide, channel))))
    )


def stored(silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return (log_id, channel) of all messages that were stored, each once."""
    # One that is in the history of its topic alone has no channel here, and what groups get was published as well.
    published = silver["fact_published"].where(f.col("channel") != "")
    addressed = silver["fact_addressed"].where(~f.col("receiver").startswith("group:"))
    return published.select("log_id", "channel").unionByName(addressed.select("log_id", "channel").distinct())


def with_channel(rows: DataFrame, silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return rows with one column more, the `channel` of the message of each `log_id`; null if no one tells."""
    # Each join finds one row at most, and only what is asked for is grouped: messages are many.
    published = silver["fact_published"].where(f.col("channel") != "").select("log_id", "channel")
    addressed = silver["fact_addressed"].select("log_id", "channel").dropDuplicates(["log_id"])
    again = origins(silver["fact_redriven"], _DOUBLINGS).select(
        f.col("id").cast("bigint").alias("log_id"), f.col("origin").try_cast("bigint").alias("before")
    )
    witnesses = {
        "_published": published,
        "_addressed": addressed,
        "_before": _of_earlier(again, published, addressed),
    }
    for name, witness in witnesses.items():
        rows = rows.join(witness.withColumnRenamed("channel", name), "log_id", "left")
    return rows.withColumn("channel", f.coalesce(*witnesses)).drop(*witnesses)


def _of_earlier(again: DataFrame, published: DataFrame, addressed: DataFrame) -> DataFrame:
    """Return (log_id, channel) of messages that were sent again, by the id under which each was published."""
    known = published.unionByName(addressed).withColumnRenamed("log_id", "before")
    return again.join(known, "before").select("log_id", "channel").dropDuplicates(["log_id"])


def origins(redriven: DataFrame, doublings: int) -> DataFrame:
    """Return (id, origin), texts: for each id that a redrive gave, the id under which the message was published. Each doubling
    follows twice as many redrives, and reads `redriven` twice as often."""
    steps = redriven.select(f.col("log_id").cast("string").alias("id"), f.col("message_id").alias("origin"))
    for _ in range(doublings):
        before = steps.select(f.col("id").alias("origin"), f.col("origin").alias("earlier"))
        steps = steps.join(before, "origin", "left").select("id", f.coalesce("earlier", "origin").alias("origin"))
    return steps.select("id", "origin")


def held_by(published: DataFrame, intervals: DataFrame) -> DataFrame:
    """Return a row for each message and each interval that holds it: all columns of the interval, and `log_id`, `channel`,
    `published` (place), `at`."""
    found = (
        published.select("channel").distinct().select("channel", f.explode(patterns_of(f.col("channel"))).alias("p"))
    )
    messages = published.select("log_id", "channel", f.col("place").alias("published"), "at")
    in_it = (f.col("from_id") < f.col("log_id")) & (f.col("until_id").isNull() | (f.col("log_id") <= f.col("until_id")))
    wanted = intervals.join(found, intervals["pattern"] == found["p"]).drop("p")
    return messages.join(wanted, "channel").where(in_it)


def given(addressed: DataFrame, leased: DataFrame, returned: DataFrame, redriven: DataFrame) -> DataFrame:
    """Return the deliveries that became pending beside the log, (receiver, log_id, place, at, ms, seq), a row each time. Shared
    queues are receivers too: what is addressed to them, and what comes back, they have until it leaves."""
    rest = ("log_id", "place", "at", "ms", "seq")
    return (
        addressed.select("receiver", *rest)
        .unionByName(leased.select(f.col("session").alias("receiver"), *rest))
        .unionByName(returned.select(f.col("queue").alias("receiver"), *rest))
        .unionByName(redriven.where(f.col("session").isNotNull()).select(f.col("session").alias("receiver"), *rest))
    )


def taken(ended: DataFrame, leased: DataFrame) -> DataFrame:
    """Return how deliveries stopped being pending, (receiver, log_id, place, at, ms, seq, reason), a row each
    time. What is leased has left its queue."""
    rest = ("log_id", "place", "at", "ms", "seq")
    return ended.select("receiver", *rest, "reason").unionByName(
        leased.select(f.col("queue").alias("receiver"), *rest, f.lit("leased").alias("reason"))
    )
