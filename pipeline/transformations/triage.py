"""What died and why: dead letters by code, channel, receiver and the template of their reason, and as incidents; and how
those ended that were redriven.

Reasons that differ in numbers, ids, times and quoted texts only are of one template: "order 17 of 'Joe' failed" and "order 18
of 'Ann' failed" are both "order <n> of '<text>' failed".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES
from crewel.pipeline.transformations.causes import CHANNEL, MESSAGE, of_ids
from crewel.pipeline.transformations.expected import with_channel

GONE: Final = "(the dead letter was redriven, discarded or dropped)"
"""The template of deaths whose letter is there no more: the facts tell the code only."""

_PAUSE_MS: Final = 600_000
"""After so long without a dead letter another incident begins."""
_MOST_CHANNELS: Final = 10
_MOST_READ: Final = 500  # characters of a reason; some have a stack trace, whose end is different each time
_SIGNS: Final = (
    (r"(?<![\p{L}\d])'[^']*'(?![\p{L}\d])", "'<text>'"),  # not the apostrophe of "can't"
    (r'"[^"]*"', '"<text>"'),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
    (r"\bclient/[^\s/]+/-?\d+", "<session>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"\b0x[0-9a-fA-F]+\b", "<id>"),
    (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<id>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)
"""What is replaced in a reason, in this order, and by what. The first patterns hide what the later ones would find in it."""


def template(reason: Column) -> Column:
    """Return the reason less all in which two of the same kind differ."""
    found = f.substring(reason, 1, _MOST_READ)
    for pattern, sign in _SIGNS:
        found = f.regexp_replace(found, pattern, sign)
    return f.trim(found)


def died(silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return what died, a row each: known by its letter, or from the facts if the letter has gone."""
    return _from_letters(silver["letters"]).unionByName(_from_facts(silver))


def deaths(dead: DataFrame) -> DataFrame:
    """Return the table `deaths`, from the rows of `died`."""
    return (
        dead.groupBy(f.date_trunc("minute", "at").alias("minute"), "code")
        .agg(f.count("*").alias("letters"))
        .select(TABLES["deaths"].names)
    )


def judged(dead: DataFrame, caused: DataFrame) -> DataFrame:
    """Return the rows of `died` with their `cause` and the `codes` of the rejections, from the rows of `causes`."""
    return dead.join(of_ids(caused), ["message_id", "receiver"], "left")


def triage(judged: DataFrame) -> DataFrame:
    """Return the table `triage`, from the rows of `judged`."""
    return (
        judged.groupBy("code", "channel", "receiver", "cause", "template")
        .agg(
            *_summed(),
            f.max("attempts").alias("attempts_max"),
            f.max("to_death_ms").alias("to_death_max_ms"),
        )
        .select("*", *_of_sample())
        .select(TABLES["triage"].names)
    )


def incidents(judged: DataFrame) -> DataFrame:
    """Return the table `incidents`, from the rows of `judged`: one outage is one row, however many channels it was on, and
    whatever became of its dead letters."""
    one = ["receiver", "code", "template", "cause"]
    return (
        _numbered(_completed(judged), one)
        .groupBy(*one, "incident")
        .agg(
            *_summed(),
            f.count_if(f.col("letter") != "").alias("kept"),
            f.slice(f.array_sort(f.collect_set(f.nullif("channel", f.lit("")))), 1, _MOST_CHANNELS).alias("channels"),
        )
        .select("*", *_of_sample())
        .select(TABLES["incidents"].names)
    )


def redriven(silver: Mapping[str, DataFrame], since: datetime, until: datetime) -> dict[str, int]:
    """Return what became of the dead letters that were redriven in some time, up to now, and of how many: `acknowledged`, `came
    back` as a dead letter, `ended otherwise`, `pending`; `published again` if it went to its channel, whose receivers may be
    many."""
    again = silver["fact_redriven"].where(f.col("at").between(f.lit(since), f.lit(until)))
    ends = silver["fact_ended"].where(f.col("reason") != "returned")  # to its queue, from where it is given again
    of_each = again.select("letter", "session", "log_id").join(
        ends.select("log_id", f.col("reason").alias("end")), "log_id", "left"
    )
    fate = (
        f.when(f.max("session").isNull(), "published again")
        .when(f.bool_or(f.col("end") == "dead"), "came back")
        .when(f.bool_or(f.col("end") == "settled"), "acknowledged")
        .when(f.count("end") > 0, "ended otherwise")
        .otherwise("pending")
    )
    counts = of_each.groupBy("letter").agg(fate.alias("fate")).groupBy("fate").count()
    return {row["fate"]: row["count"] for row in counts.orderBy(f.desc("count"), "fate").collect()}


def _completed(judged: DataFrame) -> DataFrame:
    """Return the rows with what the others of their receiver, code and time tell: the reason, if these have one only, of those
    whose letter is gone; and the cause of those that the receiver accepted later. A poison message, or a channel, explains
    no other death."""
    own = f.when(f.col("cause").isin(MESSAGE, CHANNEL), f.col("cause"))
    near = ["receiver", "code", "own"]
    of_time = Window.partitionBy(*near, "incident")
    known = f.nullif("template", f.lit(GONE))
    is_one = f.min(known).over(of_time) == f.max(known).over(of_time)
    first_known = f.when(f.col("cause").isNotNull(), f.struct("at", "message_id"))
    cause = f.min_by("cause", first_known).over(Window.partitionBy(*near, "incident", "template"))
    return (
        _numbered(judged.withColumn("own", own), near)
        .withColumn("template", f.when(is_one, f.min(known).over(of_time)).otherwise(f.col("template")))
        .withColumn("cause", f.coalesce("cause", cause))
        .select(judged.columns)
    )


def _numbered(judged: DataFrame, one: list[str]) -> DataFrame:
    """Add `incident`, a number: after a pause another one begins of what has `one` in common."""
    in_order = Window.partitionBy(*one).orderBy("at", "message_id")
    pause = f.unix_millis("at") - f.unix_millis(f.lag("at").over(in_order))
    begins = f.coalesce(pause > _PAUSE_MS, f.lit(False)).cast("int")
    return judged.withColumn("begins", begins).withColumn("incident", f.sum("begins").over(in_order))


def _summed() -> list[Column]:
    codes = f.array_sort(f.array_distinct(f.flatten(f.collect_list("codes"))))
    return [
        f.count("*").alias("letters"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
        # One that is there, if there is one.
        f.max_by(f.struct("letter", "reason", "body"), f.struct(f.col("letter") != "", "at", "letter")).alias("sample"),
        f.avg("attempts").alias("attempts_mean"),
        f.percentile_approx("to_death_ms", 0.5, 1000).alias("to_death_median_ms"),
        codes.alias("codes"),
    ]


def _of_sample() -> list[Column]:
    return [
        f.col("sample.letter").alias("sample_letter"),
        f.col("sample.reason").alias("sample_reason"),
        f.col("sample.body").alias("sample_body"),
        f.array_remove("codes", f.col("code")).alias("other_codes"),
    ]


def _from_letters(letters: DataFrame) -> DataFrame:
    at = f.coalesce("died", "at")
    return letters.select(
        "code",
        "channel",
        "receiver",
        "message_id",
        template(f.col("reason")).alias("template"),
        at.alias("at"),
        f.col("place").alias("letter"),
        "reason",
        "body",
        "attempts",
        # The clocks of store and server may differ a little.
        f.greatest(f.unix_millis(at) - f.col("received_ns") / 1e6, f.lit(0.0)).alias("to_death_ms"),
    )


def _from_facts(silver: Mapping[str, DataFrame]) -> DataFrame:
    """The ends of messages that no dead letter reports."""
    dead = (
        silver["fact_ended"]
        .where(f.col("reason") == "dead")
        .select(
            f.coalesce("code", f.lit("")).alias("code"),
            f.regexp_replace("receiver", "^one:", "").alias("receiver"),  # so do letters call the receiver
            f.col("log_id").cast("string").alias("message_id"),
            "log_id",
            "at",
            "ms",
        )
    )
    told = silver["letters"].select("code", "receiver", "message_id")
    gone = dead.join(told, ["code", "receiver", "message_id"], "left_anti")
    return with_channel(gone, silver).select(
        "code",
        f.coalesce("channel", f.lit("")).alias("channel"),
        "receiver",
        "message_id",
        f.lit(GONE).alias("template"),
        "at",
        f.lit("").alias("letter"),
        f.lit("").alias("reason"),
        f.lit("").alias("body"),
        f.lit(None).cast("int").alias("attempts"),
        f.greatest(f.col("ms") - f.col("log_id") / 1e3, f.lit(0.0)).alias("to_death_ms"),
    )
