"""Whether anything was lost: what receivers were to get, and what happened to it.

Facts are read up to a place, `upto`; then the records of the store, which takes a while; then facts again, up to what there is
by then. What was pending before and has not ended after was open meanwhile: so the records have it, whenever they were read,
unless the owner's cursor has not come to it yet. What had ended before and was not pending again after is in no record. So the
audit is exact though the server continues meanwhile.

A filter makes no difference: what it excludes ends as `filtered`, which is a fact like any other end. So does what a session
published itself and does not get. A subscription of a group is no interval of the log, because what its members get is
addressed to the queue of the group, leased to one of them, and returned.

Where facts were trimmed unread, nothing is called lost: it is unknown. Where the store has lost its end, as by a fail-over,
the servers say so in a fact: what happened in the lost time did not happen for the store, and each such loss is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.expected import FOR_EVER, given, held_by, taken

_MOST_EVIDENCE: Final = 10
_HALVES: Final = ((1, "ms"), (2, "seq"))
"""Of a place in a stream."""


@dataclass(frozen=True, slots=True)
class Records:
    """What the store's records say."""

    waiting: DataFrame
    """(receiver, log_id): open sets, inboxes and shared queues."""
    cursors: DataFrame
    """(session, cursor): the log id up to which each session has read the log."""
    subscriptions: DataFrame
    """(session, pattern, from_id, until_id) of what the log owes."""


def audit(
    silver: Mapping[str, DataFrame],
    records: Records,
    upto: tuple[int, int],
    unread_until_ms: int | None,
    set_back: DataFrame | None = None,
    since: int = 0,
) -> DataFrame:
    """Return the table `audit`.

    `silver` has the facts of the second reading, `upto` is the place up to which the first one went, (ms, seq).
    `unread_until_ms` is when the last gap in the facts ended; None if all were read. `set_back` has the losses that no server
    has told, and that show in the tables: see `set_back`. Messages with a log id before `since` are left out.
    """
    losses = _losses(silver, set_back)
    silver = _all_holding(silver, losses)
    found = ledger(silver, records, upto, unread_until_ms).where(f.col("log_id") >= since)
    said = found.withColumn("finding", _finding(unread_until_ms)).where(f.col("finding").isNotNull())
    exact = said.where(f.col("finding") != "unknown").select(
        "finding",
        "log_id",
        "channel",
        "receiver",
        "pattern",
        f.slice(f.array_sort("evidence"), 1, _MOST_EVIDENCE).alias("evidence"),
        _words().alias("words"),
    )
    unknown = (
        said.where(f.col("finding") == "unknown")
        .groupBy("finding", "receiver", "pattern")
        .agg(
            f.count("*").alias("messages"),
            f.min("channel").alias("channel"),
            f.min("log_id").alias("first"),
            f.flatten(f.slice(f.collect_list("evidence"), 1, _MOST_EVIDENCE)).alias("evidence"),
        )
        .select(
            "finding",
            f.lit(None).cast("bigint").alias("log_id"),
            f.lit(None).cast("string").alias("channel"),
            "receiver",
            "pattern",
            f.slice(f.array_sort(f.array_distinct("evidence")), 1, _MOST_EVIDENCE).alias("evidence"),
            f.format_string(
                "%d messages from %d on: facts of their time were trimmed before they were read", "messages", "first"
            ).alias("words"),
        )
    )
    further = (unknown, _rolled_back(losses.where(f.col("until_id") >= since)))
    return reduce(DataFrame.unionByName, further, exact).select(TABLES["audit"].names)


def _losses(silver: Mapping[str, DataFrame], set_back: DataFrame | None) -> DataFrame:
    """Return the losses that servers have told, and those that show in the tables."""
    told = silver["fact_lost"]
    return told if set_back is None else told.unionByName(set_back.select(*told.columns))


def _all_holding(silver: Mapping[str, DataFrame], losses: DataFrame) -> Mapping[str, DataFrame]:
    """Return all tables with the rows that the store still has the facts of."""
    return LazyMapping({name: partial(_holding, silver, name, losses) for name in silver})


def _holding(silver: Mapping[str, DataFrame], name: str, losses: DataFrame) -> DataFrame:
    """Return the rows of a table that the store still has the facts of."""
    rows = silver[name]
    if name != "intervals" and not name.startswith("fact_"):
        return rows
    return holding(rows, "subscribed" if name == "intervals" else "place", losses)


def holding(rows: DataFrame, name: str, losses: DataFrame) -> DataFrame:
    """Return the rows whose place, in the column of this name, is not of a time that a loss has undone."""
    return _compared(rows, name, losses, "left_anti")


def undone(rows: DataFrame, name: str, losses: DataFrame) -> DataFrame:
    """Return the other rows."""
    return _compared(rows, name, losses, "left_semi")


def _compared(rows: DataFrame, name: str, losses: DataFrame, how: str) -> DataFrame:
    place, kept = f.split(name, "-"), f.split("kept", "-")
    windows = losses.select(
        kept[0].cast("bigint").alias("kept_ms"),
        kept[1].cast("bigint").alias("kept_seq"),
        f.col("met_ms").alias("until_ms"),
    ).distinct()
    ms, seq = place[0].cast("bigint"), place[1].cast("bigint")
    is_after = (ms > f.col("kept_ms")) | ((ms == f.col("kept_ms")) & (seq > f.col("kept_seq")))
    return rows.join(f.broadcast(windows), is_after & (ms < f.col("until_ms")), how)


def set_back(gone: DataFrame, published: DataFrame) -> DataFrame:
    """Return what the store lost as a row like those of `fact_lost`, or none; from the facts that the tables have and the store
    has lost, (place, ms, seq), and the table `fact_published`."""
    first, last = f.min(f.struct("ms", "seq")), f.max(f.struct("ms", "seq"))
    messages = published.join(gone.select("place"), "place", "left_semi").where(f.col("channel") != "")
    bounds = messages.agg(
        f.count("*").alias("messages"), f.min("log_id").alias("from_id"), f.max("log_id").alias("until_id")
    )
    is_first = f.col("first.seq") == 0
    kept = f.when(is_first, f.concat_ws("-", f.col("first.ms") - 1, f.lit(2**62))).otherwise(
        f.concat_ws("-", "first.ms", f.col("first.seq") - 1)
    )
    place = f.concat_ws("-", "first.ms", "first.seq")
    none = f.array().cast("array<bigint>")
    return (
        gone.agg(first.alias("first"), last.alias("last"))
        .where(f.col("first").isNotNull())
        .crossJoin(bounds)
        .select(
            place.alias("place"),
            f.col("first.ms").alias("ms"),
            f.col("first.seq").alias("seq"),
            f.timestamp_millis("first.ms").alias("at"),
            f.to_date(f.timestamp_millis("first.ms")).alias("date"),
            f.lit(None).cast("double").alias("bytes"),
            f.lit("the store").alias("node"),
            f.coalesce("from_id", f.col("first.ms") * 1000).alias("from_id"),
            f.coalesce("until_id", f.col("last.ms") * 1000).alias("until_id"),
            "messages",
            kept.alias("kept"),
            (f.col("last.ms") + 1).alias("met_ms"),
            none.alias("firsts"),
            none.alias("lasts"),
        )
        .select(TABLES["fact_lost"].names)
    )


def without_letter(
    silver: Mapping[str, DataFrame], letters: DataFrame, upto: tuple[int, int], set_back: DataFrame | None = None
) -> DataFrame:
    """Return the rows of `audit` for dead letters that are gone without a fact.

    `letters` has those that were there after the place `upto`, and facts are those of later. A letter and the fact of its death
    have the same millisecond, as they are written in one step. Letters before the oldest one that is there may have been
    removed by the bounds of the store. What happened in a time that the store has lost, `set_back` included, did not happen.
    """
    silver = _all_holding(silver, _losses(silver, set_back))
    oldest = letters.agg(f.coalesce(f.min("ms"), f.lit(-1)).alias("oldest"))
    died = (
        silver["fact_ended"]
        .where(_is_before(upto) & (f.col("reason") == "dead"))
        .crossJoin(f.broadcast(oldest))
        .where(f.col("ms") > f.col("oldest"))
        .select(
            "ms",
            "log_id",
            f.regexp_replace("receiver", "^one:", "").alias("receiver"),  # so do letters call the receiver
            "code",
            "place",
        )
    )
    there = letters.select(f.expr("try_cast(message_id AS BIGINT)").alias("log_id"), "receiver")
    by_ms = (
        _removed(silver)
        .select(f.split_part("letter", f.lit("-"), f.lit(1)).cast("bigint").alias("ms"))
        .groupBy("ms")
        .agg(f.count("*").alias("removed"))
    )
    left = died.join(there, ["log_id", "receiver"], "left_anti").join(by_ms, "ms", "left")
    # Which of those of one millisecond were discarded no fact tells: so many of them are accounted for.
    number = f.row_number().over(Window.partitionBy("ms").orderBy("log_id", "receiver"))
    return (
        left.withColumn("number", number)
        .where(f.col("number") > f.coalesce("removed", f.lit(0)))
        .select(
            f.lit("no letter").alias("finding"),
            "log_id",
            f.lit(None).cast("string").alias("channel"),
            "receiver",
            f.lit(None).cast("string").alias("pattern"),
            f.array("place").alias("evidence"),
            f.format_string(
                "It became a dead letter of %s by %s, but there is no such dead letter", "receiver", "code"
            ).alias("words"),
        )
    )


def of_schedule(
    silver: Mapping[str, DataFrame],
    listed: DataFrame,
    upto: tuple[int, int],
    unread_until_ms: int | None,
    set_back: DataFrame | None = None,
    since: int = 0,
) -> DataFrame:
    """Return the rows of `audit` for scheduled messages: those that are neither listed nor published nor cancelled, and those
    that were published more than once. `listed` has the ids of those that were scheduled after the place `upto`, and facts are
    those of later. The other arguments are as of `audit`."""
    silver = _all_holding(silver, _losses(silver, set_back))
    scheduled = silver["fact_scheduled"].where(_is_before(upto) & (f.col("ms") > f.lit(unread_until_ms or 0)))
    scheduled = scheduled.where(f.col("log_id") >= since).select("log_id", "channel", "place")
    published = (
        silver["fact_published"]
        .where(f.col("scheduled_id").isNotNull())
        .groupBy(f.col("scheduled_id").alias("log_id"))
        .agg(f.count("*").alias("times"), f.max("channel").alias("channel"), f.collect_set("place").alias("evidence"))
        .where(f.col("log_id") >= since)
    )
    gone = (each.select("log_id") for each in (published, silver["fact_cancelled"], listed))
    lost = scheduled.join(reduce(DataFrame.unionByName, gone), "log_id", "left_anti")
    return _of_schedule(
        lost.withColumn("evidence", f.array("place")),
        "lost",
        f.format_string(
            "It was scheduled on %s, but was neither published nor cancelled, and is not scheduled", "channel"
        ),
    ).unionByName(
        _of_schedule(
            published.where(f.col("times") > 1),
            "twice",
            f.format_string("It was scheduled once on %s, and published %d times", "channel", "times"),
        )
    )


def _of_schedule(rows: DataFrame, finding: str, words: Column) -> DataFrame:
    return rows.select(
        f.lit(finding).alias("finding"),
        "log_id",
        "channel",
        f.lit("scheduled").alias("receiver"),
        f.lit(None).cast("string").alias("pattern"),
        f.slice(f.array_sort("evidence"), 1, _MOST_EVIDENCE).alias("evidence"),
        words.alias("words"),
    )


def _removed(silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return the dead letters, by the id that they had first, of which the last that facts tell is a removal: one that was
    discarded and restored is there again."""
    facts = (("fact_redriven", True), ("fact_discarded", True), ("fact_restored", False))
    rows = [
        silver[name].select(f.coalesce("first", "letter").alias("letter"), "ms", "seq", f.lit(is_gone).alias("is_gone"))
        for name, is_gone in facts
    ]
    last = (
        reduce(DataFrame.unionByName, rows)
        .groupBy("letter")
        .agg(f.max_by("is_gone", f.struct("ms", "seq")).alias("gone"))
    )
    return last.where("gone").select("letter")


def _rolled_back(losses: DataFrame) -> DataFrame:
    return losses.select(
        f.lit("rolled back").alias("finding"),
        f.col("from_id").alias("log_id"),
        f.lit(None).cast("string").alias("channel"),
        f.col("node").alias("receiver"),
        f.lit(None).cast("string").alias("pattern"),
        f.array("place").alias("evidence"),
        f.format_string(
            "The store lost entries after %d, up to %d; %d messages among them had been confirmed to this server",
            "from_id",
            "until_id",
            "messages",
        ).alias("words"),
    )


def ledger(
    silver: Mapping[str, DataFrame], records: Records, upto: tuple[int, int], unread_until_ms: int | None
) -> DataFrame:
    """Return a row for each receiver and message: whether the log owed it, how often else it was pending, and how often it
    ended, each by the facts from before the records were read and by all; whether it waits, and the places of the facts."""
    published = silver["fact_published"].where(f.col("channel") != "")
    subscriptions = _intervals(silver["intervals"], records.subscriptions, unread_until_ms)
    beside = given(silver["fact_addressed"], silver["fact_leased"], silver["fact_returned"], silver["fact_redriven"])
    gone = taken(silver["fact_ended"], silver["fact_leased"])
    early, late = _is_before(upto), f.lit(True)
    rows = (
        _rows(
            held_by(published, subscriptions)
            .withColumn("place", f.col("published"))
            .withColumns({half: f.split_part("place", f.lit("-"), f.lit(at)).cast("bigint") for at, half in _HALVES})
            .withColumnRenamed("session", "receiver"),
            owed_before=early.cast("int"),
            owed_after=late.cast("int"),
            channel=f.col("channel"),
            pattern=f.col("pattern"),
            is_doubtful=f.col("is_doubtful"),
            further=f.col("subscribed"),
            since_ms=f.when(early, f.col("ms")),
        ),
        _rows(
            beside,
            given_before=early.cast("int"),
            given_after=late.cast("int"),
            since_ms=f.when(early, f.col("ms")),
        ),
        _rows(gone, taken_before=early.cast("int"), taken_after=late.cast("int")),
        _rows(records.waiting.withColumn("place", f.lit(None).cast("string")), waits=f.lit(1)),
    )
    together = _together(reduce(DataFrame.unionByName, rows))
    addressed = silver["fact_addressed"].groupBy("log_id").agg(f.min("channel").alias("told"))
    cursors = records.cursors.select(f.col("session").alias("receiver"), "cursor")
    return (
        together.join(cursors, "receiver", "left")
        .join(addressed, "log_id", "left")
        .withColumns(
            {
                "channel": f.coalesce("channel", "told"),
                "cursor": f.coalesce("cursor", f.lit(FOR_EVER)),  # who is not there any more waits for nothing
                "is_doubtful": f.coalesce("is_doubtful", f.lit(False)),
            }
        )
        .drop("told")
    )


def _together(rows: DataFrame) -> DataFrame:
    """Return what all rows of a receiver and a message come to."""
    return rows.groupBy("receiver", "log_id").agg(
        *(f.max(name).alias(name) for name in ("owed_before", "owed_after", "waits")),
        *(f.sum(name).alias(name) for name in ("given_before", "given_after", "taken_before", "taken_after")),
        f.max("channel").alias("channel"),
        f.min("pattern").alias("pattern"),
        f.bool_and("is_doubtful").alias("is_doubtful"),
        f.max("since_ms").alias("since_ms"),
        f.array_distinct(f.concat(f.collect_list("place"), f.collect_list("further"))).alias("evidence"),
    )


def _is_before(upto: tuple[int, int]) -> Column:
    ms, seq = upto
    return (f.col("ms") < ms) | ((f.col("ms") == ms) & (f.col("seq") <= seq))


def _rows(rows: DataFrame, **said: Column) -> DataFrame:
    """Give what one source tells the columns of all."""
    counts = ("owed_before", "owed_after", "given_before", "given_after", "taken_before", "taken_after", "waits")
    nothing: dict[str, Column] = {
        **{name: f.lit(0) for name in counts},
        **{name: f.lit(None).cast("string") for name in ("channel", "pattern", "further")},
        "is_doubtful": f.lit(None).cast("boolean"),
        "since_ms": f.lit(None).cast("bigint"),
    }
    return rows.select(
        "receiver", "log_id", "place", *(column.alias(name) for name, column in (nothing | said).items())
    )


def _intervals(told: DataFrame, records: DataFrame, unread_until_ms: int | None) -> DataFrame:
    """Return the intervals of facts and records. One that is open by the facts only may have ended in a gap."""
    open_ones = records.where(f.col("until_id").isNull()).select(
        "session", "pattern", "from_id", f.lit(True).alias("is_confirmed")
    )
    subscribed_ms = f.split_part("subscribed", f.lit("-"), f.lit(1)).cast("bigint")
    is_doubtful = f.lit(False)
    if unread_until_ms is not None:
        is_doubtful = (
            f.col("until_id").isNull()
            & f.col("is_confirmed").isNull()
            & (f.coalesce(subscribed_ms, f.lit(0)) <= unread_until_ms)
        )
    from_facts = told.join(open_ones, ["session", "pattern", "from_id"], "left").select(
        "session", "pattern", "from_id", "until_id", "subscribed", is_doubtful.alias("is_doubtful")
    )
    from_records = records.select(
        "session",
        "pattern",
        "from_id",
        "until_id",
        f.lit(None).cast("string").alias("subscribed"),
        f.lit(False).alias("is_doubtful"),
    )
    return from_facts.unionByName(from_records)


def _finding(unread_until_ms: int | None) -> Column:
    least = f.greatest("owed_before", "given_before")
    most = f.col("owed_after") + f.col("given_after")
    is_beyond = (
        (f.col("owed_before") == 1)
        & (f.col("given_before") <= f.col("taken_after"))
        & (f.col("log_id") > f.col("cursor"))
    )
    waits = f.col("waits") == 1
    lost = (f.col("taken_after") < least) & ~waits & ~is_beyond
    surplus = (most == 0) & ((f.col("taken_before") > 0) | waits)
    twice = (most > 0) & (f.col("taken_before") > most)
    both = (most > 0) & (f.col("taken_before") >= most) & waits
    found = f.when(lost, "lost").when(surplus, "surplus").when(twice, "twice").when(both, "both")
    if unread_until_ms is None:
        return found
    # What is missing may have happened in the gap: an end of what was there before it, or that something became pending.
    began = f.coalesce("since_ms", f.floor(f.col("log_id") / 1000))
    in_doubt = f.col("is_doubtful") | (f.least(began, f.floor(f.col("log_id") / 1000)) <= unread_until_ms)
    return f.when(found.isNotNull() & in_doubt, "unknown").otherwise(found)


def _words() -> Column:
    return (
        f.when(
            f.col("finding") == "lost",
            f.format_string(
                "It was pending for %s, and has neither ended nor waits: it is not in the record, and the cursor is past it",
                "receiver",
            ),
        )
        .when(
            (f.col("finding") == "surplus") & (f.col("taken_before") > 0),
            f.format_string("It ended for %s, and was not for that receiver", "receiver"),
        )
        .when(
            f.col("finding") == "surplus", f.format_string("It waits for %s, and was not for that receiver", "receiver")
        )
        .when(
            f.col("finding") == "twice",
            f.format_string("It ended %d times for %s", f.col("taken_before"), "receiver"),
        )
        .otherwise(f.format_string("It ended for %s, and still waits", "receiver"))
    )
