"""Failing receivers: those that fail, lag, are on hold or away more than they used to, and more than their peers.

A peer is who has a pattern in common. What is compared with peers and past is a receiver's failure rate and its lag; what
makes a receiver failing is in `LIMITS`. Time is halved at `since`: what was before is the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.causes import CHANNEL, MESSAGE, RECEIVER, of_ids
from crewel.pipeline.transformations.changes import Keep
from crewel.pipeline.transformations.common import clock, duration
from crewel.pipeline.transformations.distinctions import distinctions
from crewel.pipeline.transformations.expected import given, patterns_of, taken


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something is conspicuous."""

    failures: int = 3
    """Fewer failures than these are none."""
    failure_rate: float = 0.05
    """Share of all answers, if it is more than usual."""
    failure_rate_in_any_case: float = 0.5
    redeliveries: int = 5
    redelivery_rate: float = 0.25
    lag_ms: float = 1000.0
    late_ms: float = 60_000.0
    """What waited for so long is late, although most may be as usual."""
    late: int = 3
    """Fewer late messages than these are none."""
    times: float = 3.0
    """How many times as much as usual is too much."""
    away_share: float = 0.1
    """Share of the time that it was on hold or away."""


LIMITS: Final = Limits()
_COUNTS: Final = (
    "settled",
    "transient",
    "failed",
    "excused",
    "rejected",
    "others_took",
    "held_ms",
    "polling_ms",
    "redelivered",
    "queued",
)


def receivers(
    silver: Mapping[str, DataFrame],
    caused: DataFrame,
    since: datetime,
    until: datetime,
    keep: Keep,
    limits: Limits = LIMITS,
) -> DataFrame:
    """Return the table `receivers` for the time from `since` to `until`. `silver` has the tables `fact_ended`,
    `fact_held`, `fact_released`, `fact_sessions`, `fact_addressed`, `fact_leased`, `fact_returned`, `fact_redriven`,
    `intervals`, `event_failed`, `event_redelivered`, `event_traffic`, `event_closed` and `event_shape`; `caused` are the rows
    of `causes`."""
    start, end = f.lit(since), f.lit(until)
    answers = _answers(silver, _failures(silver, caused), start, end)
    recent = caused.where(f.col("last_at").between(start, end))
    by_receiver = recent.where(f.col("cause") == RECEIVER)
    # What is rejected now is compared with what is taken now: a publisher has another name each day.
    in_time = {**silver, "fact_ended": silver["fact_ended"].where(f.col("at").between(start, end))}
    holds = held_times(silver["fact_held"], silver["fact_released"], silver["fact_sessions"])
    held = _clipped(holds, start, end)
    still = holds.where((f.col("begin") <= end) & (f.coalesce("end", end) >= end))
    away = _clipped(_away_times(silver), start, end)
    together = (
        answers.join(held.withColumnRenamed("ms", "held_ms"), "session", "full")
        .join(away.withColumnRenamed("ms", "polling_ms"), "session", "full")
        .join(_redelivered(silver, start, end), "session", "full")
        .join(_groups_without_takers(silver, end, limits), "session", "full")
        .join(_rejected(by_receiver), "session", "full")
        .join(_transient(silver, start, end), "session", "left")
        .join(_late(silver, start, end, limits), "session", "left")
        .join(
            distinctions(by_receiver, recent, in_time, keep).withColumnRenamed("receiver", "session"), "session", "left"
        )
        .join(still.select("session", f.lit(True).alias("is_held")).distinct(), "session", "left")
        .fillna(False, ["is_held"])
        .fillna(0, [*_COUNTS, "late", "past_late"])
        .withColumn("common", f.coalesce("common", f.array().cast("array<string>")))
        .where(f.greatest(*_COUNTS) > 0)
        .withColumn(
            "failure_rate",
            f.try_divide(f.col("failed") - f.col("excused"), f.col("settled") + f.col("transient") + f.col("failed")),
        )
        .withColumn(
            "redelivery_rate", f.try_divide("redelivered", f.col("settled") + f.col("failed") + f.col("redelivered"))
        )
        .withColumn("late_share", f.try_divide("late", "settled"))
    )
    window_ms = (until - since).total_seconds() * 1000
    with_peers = _with_peers(keep(together), silver["intervals"], ("failure_rate", "lag_median_ms", "late_share"))
    return (
        with_peers.withColumn("why", _why(limits, window_ms))
        .withColumn("is_sick", f.size("why") > 0)
        .select(TABLES["receivers"].names)
    )


def receiver_times(silver: Mapping[str, DataFrame], caused: DataFrame) -> DataFrame:
    """Return the table `receiver_times`, of all that the tables hold."""

    def spans(times: DataFrame, what: str) -> DataFrame:
        return times.select("session", f.lit(what).alias("what"), "begin", "end", f.lit(0).alias("failed"))

    minute = f.date_trunc("minute", "happened")
    fails = (
        _failures(silver, caused)
        .where(~f.col("is_excused"))
        .groupBy("session", minute.alias("begin"))
        .agg(f.count("*").alias("failed"))
        .select(
            "session",
            f.lit("fails").alias("what"),
            "begin",
            (f.col("begin") + f.expr("INTERVAL 1 MINUTE")).alias("end"),
            "failed",
        )
    )
    held = held_times(silver["fact_held"], silver["fact_released"], silver["fact_sessions"])
    found = spans(held, "on hold").unionByName(spans(_away_times(silver), "absent")).unionByName(fails)
    return found.select(TABLES["receiver_times"].names)


def _failures(silver: Mapping[str, DataFrame], caused: DataFrame) -> DataFrame:
    """Return the events `failed` (session, happened, is_excused): whether the message or the channel is the cause."""
    excused = of_ids(caused).where(f.col("cause").isin(MESSAGE, CHANNEL))
    excused = (
        excused.withColumnRenamed("receiver", "session").withColumn("is_excused", f.lit(True)).drop("cause", "codes")
    )
    return (
        silver["event_failed"]
        .join(excused, ["message_id", "session"], "left")
        .select("session", "happened", f.coalesce("is_excused", f.lit(False)).alias("is_excused"))
    )


def _answers(silver: Mapping[str, DataFrame], failures: DataFrame, start: Column, end: Column) -> DataFrame:
    """How a session answered: (session, settled, failed, excused, lag_median_ms) and the same of the past."""
    settled = (
        silver["fact_ended"]
        .where(f.col("reason") == "settled")
        .select(
            f.col("receiver").alias("session"),
            "at",
            _lag_ms().alias("lag_ms"),
            f.lit(False).alias("has_failed"),
            f.lit(False).alias("is_excused"),
        )
    )
    failed = failures.select(
        "session",
        f.col("happened").alias("at"),
        f.lit(None).cast("double").alias("lag_ms"),
        f.lit(True).alias("has_failed"),
        "is_excused",
    )
    now, past = f.col("at").between(start, end), f.col("at") < start
    good, bad = ~f.col("has_failed"), f.col("has_failed")

    def median(when: Column) -> Column:
        return f.percentile_approx(f.when(when, f.col("lag_ms")), 0.5, 1000)

    return (
        settled.unionByName(failed)
        .groupBy("session")
        .agg(
            f.count_if(now & good).alias("settled"),
            f.count_if(now & bad).alias("failed"),
            f.count_if(now & f.col("is_excused")).alias("excused"),
            f.try_divide(f.count_if(past & bad & ~f.col("is_excused")), f.count_if(past)).alias("past_failure_rate"),
            median(now).alias("lag_median_ms"),
            median(past).alias("past_lag_median_ms"),
            f.count_if(past & good).alias("past_settled"),
        )
    )


def _late(silver: Mapping[str, DataFrame], start: Column, end: Column, limits: Limits) -> DataFrame:
    """Return (session, late, past_late, late_most_ms) of those that acknowledged messages late. What had been in a shared queue
    does not count: there it had no session yet."""
    late = silver["fact_ended"].where(
        (f.col("reason") == "settled") & (_lag_ms() >= limits.late_ms) & (f.col("at") <= end)
    )
    waited = late.select(f.col("receiver").alias("session"), "log_id", "at", _lag_ms().alias("lag_ms")).join(
        silver["fact_leased"].select("session", "log_id"), ["session", "log_id"], "left_anti"
    )
    now = f.col("at") >= start
    return waited.groupBy("session").agg(
        f.count_if(now).alias("late"),
        f.count_if(~now).alias("past_late"),
        f.max(f.when(now, f.col("lag_ms"))).alias("late_most_ms"),
    )


def _lag_ms() -> Column:
    return f.greatest(f.col("ms") - f.col("log_id") / 1000, f.lit(0.0))


def _rejected(by_receiver: DataFrame) -> DataFrame:
    """Return (session, rejected, others_took, step) of the rejections whose cause is the receiver; `step` is the first after
    which it rejects all of a channel, if there is one."""
    return by_receiver.groupBy(f.col("receiver").alias("session")).agg(
        f.count("*").alias("rejected"),
        f.count_if(f.col("takers") >= f.col("rejecters")).alias("others_took"),
        f.min_by(f.struct("channel", "either", "last_at"), f.when(f.col("either").isNotNull(), f.col("log_id"))).alias(
            "step"
        ),
    )


def _redelivered(silver: Mapping[str, DataFrame], start: Column, end: Column) -> DataFrame:
    """Return (session, redelivered): how many messages it was sent again."""
    events = silver["event_redelivered"].where(f.col("until").between(start, end))
    return events.groupBy("session").agg(f.sum("count").alias("redelivered"))


def _groups_without_takers(silver: Mapping[str, DataFrame], end: Column, limits: Limits) -> DataFrame:
    """Return (session, queued, queued_since) of the queues of groups, by their names, where messages wait while no member
    got or had any. No fact tells whether the client of a member is connected."""
    came = given(*(silver[f"fact_{name}"] for name in ("addressed", "leased", "returned", "redriven")))
    left = taken(silver["fact_ended"], silver["fact_leased"])
    moves = (
        came.withColumn("reason", f.lit(""))
        .withColumn("number", f.lit(1))
        .unionByName(left.withColumn("number", f.lit(-1)))
    )
    found = (
        moves.where(f.col("receiver").startswith("group:") & (f.col("at") <= end))
        .groupBy("receiver", "log_id")
        .agg(
            (f.sum("number") > 0).alias("waits"),
            f.max("at").alias("since"),
            f.max(f.when(f.col("reason") == "leased", f.col("at"))).alias("leased"),
        )
        .groupBy(f.col("receiver").alias("session"))
        .agg(
            f.count_if("waits").alias("queued"),
            f.min(f.when(f.col("waits"), f.col("since"))).alias("queued_since"),
            f.max("leased").alias("leased"),
        )
        .where(f.unix_millis(end) - f.unix_millis("queued_since") >= limits.late_ms)
        .where(f.col("leased").isNull() | (f.col("leased") < f.col("queued_since")))
        .drop("leased")
    )
    leased = silver["fact_leased"].where(f.col("at") <= end).select("queue", "session", "log_id", "at")
    ended = silver["fact_ended"].where(f.col("at") <= end)
    pairs = ended.select(f.col("receiver").alias("session"), "log_id", f.col("at").alias("ended"))
    at_members = (
        leased.join(f.broadcast(found.select(f.col("session").alias("queue"))), "queue", "left_semi")
        .join(pairs, ["session", "log_id"], "left")
        .groupBy("queue", "session", "log_id")
        .agg((f.max("ended") >= f.max("at")).alias("has_ended"))
        .where(~f.coalesce("has_ended", f.lit(False)))
    )
    return found.join(at_members.select(f.col("queue").alias("session")), "session", "left_anti")


def _transient(silver: Mapping[str, DataFrame], start: Column, end: Column) -> DataFrame:
    """Return (session, transient): how many transient messages were published on the channels of its subscriptions. No fact
    tells which session got them; with `events.level` `all`, events count them by channel."""
    traffic = (
        silver["event_traffic"]
        .where(f.col("until").between(start, end))
        .groupBy("channel")
        .agg(f.sum("published").alias("published"))
        .select("channel", "published", f.explode(patterns_of(f.col("channel"))).alias("pattern"))
    )
    wanted = silver["intervals"].select("session", "pattern").distinct()
    return (
        traffic.join(wanted, "pattern")
        .dropDuplicates(["session", "channel"])
        .groupBy("session")
        .agg(f.sum("published").alias("transient"))
    )


def held_times(held: DataFrame, released: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return (session, begin, end) of each time that a session was on hold; the end is null while it is."""
    closed = sessions.where(f.col("what") == "closed")
    steps = held.select("session", "at", "ms", "seq", f.lit(True).alias("is_held"))
    for each in (released, closed):
        steps = steps.unionByName(each.select("session", "at", "ms", "seq", f.lit(False).alias("is_held")))
    order = Window.partitionBy("session").orderBy("ms", "seq")
    was_held = f.coalesce(f.lag("is_held").over(order), f.lit(False))
    changes = steps.withColumn("was_held", was_held).where(f.col("is_held") != f.col("was_held"))
    return (
        changes.withColumn("end", f.lead("at").over(order))
        .where("is_held")
        .select("session", f.col("at").alias("begin"), "end")
    )


def _away_times(silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return (session, begin, end): from the last request of its client to the expiry of the session. No fact or event tells
    that a client was lost and came back: of its absence only the lag of what waited is known, as if it were slow."""
    expired = silver["event_closed"].where((f.col("reason") == "expired") & (f.col("silent_ms") > 0))
    begin = f.timestamp_millis(f.unix_millis("happened") - f.col("silent_ms"))
    return expired.select("session", begin.alias("begin"), f.col("happened").alias("end"))


def _clipped(times: DataFrame, start: Column, end: Column) -> DataFrame:
    """Return (session, ms): how long these times are between start and end, in all."""
    begin, stop = f.greatest("begin", start), f.least(f.coalesce("end", end), end)
    length = f.unix_millis(stop) - f.unix_millis(begin)
    return times.withColumn("ms", f.greatest(length, f.lit(0))).groupBy("session").agg(f.sum("ms").alias("ms"))


def _with_peers(sessions: DataFrame, intervals: DataFrame, figures: tuple[str, ...]) -> DataFrame:
    """Add `peers_<figure>`: the median of those that have a pattern in common, less the session itself."""
    patterns = intervals.select("session", "pattern").distinct()
    found = reduce(
        lambda rows, figure: rows.join(_peers_of(sessions, patterns, figure), "session", "left"), figures, sessions
    )
    return found.select("*")


def _peers_of(sessions: DataFrame, patterns: DataFrame, figure: str) -> DataFrame:
    rows = patterns.join(sessions.select("session", figure), "session").where(f.col(figure).isNotNull())
    in_order = rows.select(
        "*",
        f.row_number().over(Window.partitionBy("pattern").orderBy(figure, "session")).alias("rank"),
        f.count("*").over(Window.partitionBy("pattern")).alias("of"),
    )
    # The middle of the others is at half their number; a session before it has moved it by one.
    middle = f.floor(f.col("of") / 2)
    pattern = Window.partitionBy("pattern")
    here = f.max(f.when(f.col("rank") == middle, f.col(figure))).over(pattern)
    next_one = f.max(f.when(f.col("rank") == middle + 1, f.col(figure))).over(pattern)
    return (
        in_order.select("session", "of", f.when(f.col("rank") > middle, here).otherwise(next_one).alias("others"))
        .where(f.col("of") > 1)
        .groupBy("session")
        .agg(f.median("others").alias(f"peers_{figure}"))
    )


def _why(limits: Limits, window_ms: float) -> Column:
    rate, lag, own = f.col("failure_rate"), f.col("lag_median_ms"), f.col("failed") - f.col("excused")
    usual_rate = f.greatest("past_failure_rate", "peers_failure_rate")
    usual_lag = f.greatest("past_lag_median_ms", "peers_lag_median_ms")
    fails = (own >= limits.failures) & (
        (rate >= limits.failure_rate_in_any_case)
        | ((rate >= limits.failure_rate) & (rate > limits.times * f.coalesce(usual_rate, f.lit(0.0))))
    )
    redelivers = (f.col("redelivered") >= limits.redeliveries) & (f.col("redelivery_rate") >= limits.redelivery_rate)
    lags = (lag >= limits.lag_ms) & (lag > limits.times * usual_lag)
    # A client that is away and comes back leaves no other trace than a slow one.
    known_ms = f.col("held_ms") + f.col("polling_ms")
    unless_known = f.when(known_ms >= lag, "").otherwise(": slow or away")
    late = f.concat(
        f.lit("takes up to "),
        duration(f.col("late_most_ms")),
        f.format_string(" for %d of its messages: slow or away", "late"),
    )
    queued = f.concat(
        f.format_string("has no member that takes messages; %d queued since ", "queued"), clock("queued_since")
    )
    reasons = (
        (fails, f.format_string("fails %.0f %% of its messages", rate * 100)),
        (f.col("rejected") >= limits.failures, _rejects()),
        (f.col("is_held"), f.concat(_share("on hold", "held_ms", window_ms), f.lit(", and still is"))),
        (_is_long("held_ms", limits, window_ms) & ~f.col("is_held"), _share("on hold", "held_ms", window_ms)),
        (_is_long("polling_ms", limits, window_ms), _share("absent", "polling_ms", window_ms)),
        (redelivers, f.format_string("%.0f %% of its messages are redelivered", f.col("redelivery_rate") * 100)),
        (lags, f.concat(f.lit("takes "), duration(lag), f.lit(", usually "), duration(usual_lag), unless_known)),
        # If it was slow all the time, the median says so.
        (_has_late(limits, known_ms) & ~f.coalesce(lags, f.lit(False)), late),
        (f.col("queued") > 0, queued),
    )
    return f.filter(
        f.array(*(f.when(f.coalesce(holds, f.lit(False)), words) for holds, words in reasons)),
        lambda each: each.isNotNull(),
    )


def _rejects() -> Column:
    others_took = f.when(f.col("others_took") > 0, f.format_string(", %d of them taken by others", "others_took"))
    alike = f.when(f.size("common") > 0, f.concat(f.lit("; "), f.array_join("common", "; ")))
    publisher = f.coalesce(f.nullif("step.either", f.lit("")), f.lit("its publisher"))
    # Nobody else got them, so what changed is not to be seen.
    either = f.concat(
        f.lit(": it took "),
        "step.channel",
        f.lit(" until "),
        clock("step.last_at"),
        f.lit("; either it changed then, or "),
        publisher,
    )
    return f.concat(
        f.format_string("rejected %d messages", "rejected"),
        *(f.coalesce(each, f.lit("")) for each in (others_took, either, alike)),
    )


def _has_late(limits: Limits, known_ms: Column) -> Column:
    past_share = f.try_divide("past_late", "past_settled")
    usual_share = f.coalesce(f.greatest(past_share, "peers_late_share"), f.lit(0.0))
    return (
        (f.col("late") >= limits.late)
        & (f.col("late_share") > limits.times * usual_share)
        & (known_ms < f.col("late_most_ms"))
    )


def _is_long(name: str, limits: Limits, window_ms: float) -> Column:
    return f.col(name) >= limits.away_share * window_ms


def _share(what: str, name: str, window_ms: float) -> Column:
    return f.format_string(f"{what} for %.0f %% of the time", f.col(name) / window_ms * 100)
