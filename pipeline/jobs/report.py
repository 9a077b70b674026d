"""Answers what died and why, what is poison, which receivers are failing and how long things take: tables of gold, JSON, and a
page to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.errors import StoreUnavailable
from crewel.pipeline.admin_client import origin
from crewel.pipeline.connection import Address
from crewel.pipeline.few_rows import keep, tuned
from crewel.pipeline.jobs import audit, backfill, gold
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import Inputs, gather, is_few
from crewel.pipeline.report import slots
from crewel.pipeline.report.html import TROUBLES, page
from crewel.pipeline.schemas import FINDINGS, TABLES
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import capacity, causes, channels, latency, poison, receivers, triage

_USUAL: Final = timedelta(hours=24)
_MOST_STRIPS: Final = 15
_MOST_ROWS: Final = 1440
"""Of each table in JSON and on the page: the worst, or of what goes by time the newest, such as the minutes of a day. Plots are
made of fewer, or they would lack the beginning of their time."""

_ORDER: Final[Mapping[str, list[str]]] = {
    "triage": ["letters DESC", "last_at DESC"],
    "incidents": ["letters DESC", "last_at DESC"],
    "poison": ["receivers DESC", "failures DESC", "last_at DESC"],
    "failing_channels": ["messages DESC", "channel"],
    "receivers": ["is_sick DESC", "failed DESC", "held_ms DESC", "session"],
    "latency": ["minute DESC", "count DESC"],
    "backlog": ["minute DESC"],
    "capacity": ["hour DESC", "persistent DESC"],
}
_BY_DAY: Final = ("latency", "backlog", "capacity")
"""Tables of gold that jobs keep up to date."""

_URGENT: Final = (*TROUBLES, *(name for name in FINDINGS if name not in TROUBLES))
"""The findings of the audit, the most urgent first."""

_TIME: Final = {"latency": "minute", "capacity": "hour"}
"""The column of each table that tells whether a row is of the time that is asked for. The tables themselves hold all. Of the
backlog, what was before counts too."""
_LASTING: Final = ("poison", "failing_channels")
"""Tables whose rows have a first and a last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    address: Address
    directory: Path | str
    html: Path | None = None
    json: Path | None = None
    since: datetime | None = None
    """From when on; None: the last 24 hours, or as far as there is anything."""
    until: datetime | None = None
    """Up to when; None: now."""
    backfill: bool = False
    """Whether the tables are brought up to date first, in the same session."""
    audit: bool = True
    """Whether the audit runs too. Otherwise the page has the findings of the last one."""
    url: str | None = None
    """An address of the server: then the page links to the pages of its operator."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What is made for a report."""

    tables: dict[str, DataFrame]
    """The tables of gold, which hold all of time."""
    shown: dict[str, DataFrame]
    """The same of those dead letters only that died in the time that is asked for, for tables that are made of dead letters."""
    older: int
    """How many dead letters died before."""
    redriven: dict[str, int]
    """What became of the dead letters that were redriven in that time, as `triage.redriven` has it."""
    messages: int
    """How many messages were published in that time."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was found, and where it was written."""

    letters: int
    """Messages that died."""
    poison: int
    """Poison messages."""
    sick: list[str]
    """Failing receivers, the first hundred."""
    paths: list[str]
    """What was written: tables of Parquet, and files."""


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job. Raises CrewelError."""
    tables = _opened(spark, options, progress)
    with tuned(spark, is_few=is_few(tables, options.address)):
        names, told = _answered(spark, options, tables, progress)
    told["url"] = None if options.url is None else origin(options.url)
    paths = [f"{tables.root}/{TABLES[name].path}" for name in names]
    if (file := options.json or _beside(options.directory)) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z, default=str))
        paths.append(str(file))
    if options.html is not None:
        options.html.write_text(page(told), "utf-8")
        paths.append(str(options.html))
    sick = [row["session"] for row in told["receivers"] if row["is_sick"]]
    return Result(told["totals"]["letters"], told["totals"]["poison"], sick[:100], paths)


def _answered(
    spark: SparkSession, options: Options, tables: Tables, progress: Progress
) -> tuple[list[str], dict[str, Any]]:
    """Write the tables, and return their names, and what the page shows."""
    until = _utc(options.until) or datetime.now(UTC)
    progress("reading")
    inputs = gather(spark, tables, options.address)
    try:
        since = _utc(options.since) or max(until - _USUAL, _oldest(inputs, until))
        found = answers(inputs, since, until)
        for name, frame in found.tables.items():
            progress(name)
            tables.replace(TABLES[name], frame)
        tables.replace(TABLES["letters"], inputs.silver["letters"])
        gold.write(tables, progress, inputs.sources)
    finally:
        inputs.forget()
    if options.audit:
        _run_audit(spark, options, progress)
    progress("putting the report together")
    return [*found.tables, *_BY_DAY], _told(tables, found, since, until)


def _told(tables: Tables, found: Answers, since: datetime, until: datetime) -> dict[str, Any]:
    """Return what the page shows, as the tables have it, and of dead letters what is of this time."""
    days = since.date(), until.date()
    written = {name: _within(tables.read(TABLES[name]), name, since, until) for name in found.tables} | {
        name: _within(tables.read(TABLES[name], *days), name, since, until) for name in _TIME
    }
    written |= found.shown
    bars, hours, points = (each(since, until) for each in (slots.of_bars, slots.of_hours, slots.of_points))
    written["backlog"] = _backlog(tables, since, until, points)
    rows = {name: _rows(written[name], order) for name, order in _ORDER.items()}
    findings = tables.read(TABLES["audit"])
    audited = _audited(tables)
    sick = [row["session"] for row in rows["receivers"] if row["is_sick"]]
    volumes = written["capacity"].groupBy(_begin("hour", hours).alias("hour"))
    settled = written["latency"].withColumn("minute", _begin("minute", points))
    died = written["deaths"].groupBy(_begin("minute", bars).alias("minute"), "code")
    return {
        "since": since,
        "until": until,
        "totals": {
            **_totals(written),
            "older": found.older,
            "redriven": found.redriven,
            "messages": found.messages,
            "findings": _by_finding(findings),
        },
        **rows,
        "counts": {
            **{name: _number(written[name], first) for name, first in rows.items()},
            "audit": _number(findings, audited or []),
        },
        "audited": tables.written(TABLES["audit"]),
        "audit": audited,
        "deaths": _rows(died.agg(f.sum("letters").alias("letters")), ["letters DESC", "minute DESC"]),
        "times": _times_of(written["receiver_times"], sick[:_MOST_STRIPS], since, until, bars),
        "settling": _rows(latency.of_all(settled), ["minute DESC"]),
        "channels": _by_channel(written["latency"], since),
        "hours": _rows(volumes.agg(*(f.sum(name).alias(name) for name in ("persistent", "transient"))), ["hour DESC"]),
        "slots": {"deaths": bars.name, "hours": hours.name, "minutes": points.name},
    }


def _run_audit(spark: SparkSession, options: Options, progress: Progress) -> None:
    """Run the audit over all there is. If the store goes away meanwhile, the page says when the last one was."""
    try:
        audit.run(spark, audit.Options(address=options.address, directory=options.directory), progress)
    except StoreUnavailable as error:
        progress(f"the page has the findings of the last audit: {error}")


def _opened(spark: SparkSession, options: Options, progress: Progress) -> Tables:
    """Return the tables, all of them there, and up to date if that is asked for."""
    if options.backfill:
        backfill.run(
            spark, backfill.Options(address=options.address, directory=options.directory, gold=False), progress
        )
    tables = Tables(spark, options.directory)
    tables.create()
    return tables


def _begin(column: str | Column, slot: slots.Slot) -> Column:
    """Return when the slot begins that a moment is in."""
    if slot.seconds == slots.WEEK_S:
        return f.date_trunc("week", column)
    return f.timestamp_seconds(f.floor(f.unix_seconds(column) / slot.seconds) * slot.seconds)


def _backlog(tables: Tables, since: datetime, until: datetime, slot: slots.Slot) -> DataFrame:
    """Return the table `backlog` of some time by slots. It has rows of minutes with movements only, so the last day before that
    has any tells what waited at the beginning."""
    table = TABLES["backlog"]
    first = max((day for day in tables.days(table) if day < since.date()), default=since.date())
    return _by_slot(tables.read(table, first, until.date()).where(f.col("minute") <= f.lit(until)), slot, since)


def _by_slot(backlog: DataFrame, slot: slots.Slot, since: datetime) -> DataFrame:
    """Return the table `backlog` by slots instead of minutes. What waited before `since` waits in the first slot, unless
    something moved in it."""
    first = f.date_trunc("minute", f.lit(since))
    moved = (
        f.coalesce(f.sum(f.when(f.col("minute") >= first, f.col(name))), f.lit(0)).alias(name)
        for name in ("owed", "ended")
    )
    return (
        backlog.groupBy(_begin(f.greatest("minute", first), slot).alias("slot"))
        .agg(*moved, f.max_by("waiting", "minute").alias("waiting"))
        .withColumnRenamed("slot", "minute")
    )


def _times_of(
    times: DataFrame, sessions: list[str], since: datetime, until: datetime, slot: slots.Slot
) -> list[dict[str, Any]]:
    """Return the rows of the table `receiver_times` of these sessions and some time. Of a slot with minutes in which a session
    failed there is one row, from the first of them to the last."""
    is_within = (f.col("begin") <= f.lit(until)) & (f.coalesce("end", f.lit(until)) >= f.lit(since))
    begin = f.when(f.col("what") == "fails", _begin("begin", slot)).otherwise(f.col("begin"))
    found = (
        times.where(f.col("session").isin(sessions) & is_within)
        .groupBy("session", "what", begin.alias("slot"))
        .agg(f.min("begin").alias("begin"), f.max("end").alias("end"), f.sum("failed").alias("failed"))
        .select(*times.columns)
    )
    return _rows(found, ["what = 'fails'", "begin DESC"])


def _totals(written: Mapping[str, DataFrame]) -> dict[str, Any]:
    """Return how many messages died, also by code, how many of them the store has, and how many poison messages,
    failing channels and failing receivers there are."""
    died = written["deaths"].groupBy("code").agg(f.sum("letters").alias("letters")).collect()
    codes = {row["code"]: row["letters"] for row in died}
    return {
        "letters": sum(codes.values()),
        "codes": codes,
        "kept": written["incidents"].agg(f.coalesce(f.sum("kept"), f.lit(0))).collect()[0][0],
        "poison": written["poison"].count(),
        "channels": written["failing_channels"].count(),
        "sick": written["receivers"].where("is_sick").count(),
    }


def _by_finding(findings: DataFrame) -> dict[str, int]:
    """Return how many there are of each finding of the audit, the most urgent first."""
    counts = {row["finding"]: row["count"] for row in findings.groupBy("finding").count().collect()}
    return {name: counts[name] for name in _URGENT if name in counts}


def _number(frame: DataFrame, rows: list[dict[str, Any]]) -> int:
    """Return how many rows a table has, of which these are the first."""
    return len(rows) if len(rows) < _MOST_ROWS else frame.count()


def _within(frame: DataFrame, name: str, since: datetime, until: datetime) -> DataFrame:
    """Return the rows of a table that are of this time."""
    if name in _LASTING:
        return frame.where((f.col("first_at") <= f.lit(until)) & (f.col("last_at") >= f.lit(since)))
    column = _TIME.get(name)
    return (
        frame
        if column is None
        else frame.where(f.col(column).between(f.date_trunc(column, f.lit(since)), f.lit(until)))
    )


def _by_channel(found: DataFrame, since: datetime) -> list[dict[str, Any]]:
    """Return rows of the table `latency`, one a channel, over all of the time. The slowest comes first; null is more than an
    hour."""
    total = (f.col("mean_ms") * f.col("count")).alias("sum_ms")
    every = latency.latency(found.select(f.lit(since).alias("at"), "channel", "count", total, "buckets"))
    return _rows(every, ["p99_ms IS NULL DESC", "p99_ms DESC", "count DESC"])


def answers(inputs: Inputs, since: datetime, until: datetime) -> Answers:
    """Return the tables of gold that are made for a report, and what of them is of this time."""
    silver = inputs.silver
    caused = causes.causes(silver, keep)
    dead = keep(triage.judged(triage.died(silver), caused))
    tables = {
        **_of_dead(dead),
        "poison": poison.poison(caused),
        "failing_channels": channels.failing_channels(caused, silver),
        "receivers": receivers.receivers(silver, caused, since, until, keep),
        "receiver_times": receivers.receiver_times(silver, caused),
    }
    older = dead.where(f.col("at") < f.lit(since)).count()
    shown = _of_dead(dead.where(f.col("at").between(f.lit(since), f.lit(until))))
    redriven = triage.redriven(silver, since, until)
    return Answers(tables, shown, older, redriven, capacity.messages(silver, since, until))


def _of_dead(dead: DataFrame) -> dict[str, DataFrame]:
    """Return the tables that are made of the rows of `judged`."""
    return {"triage": triage.triage(dead), "incidents": triage.incidents(dead), "deaths": triage.deaths(dead)}


def _oldest(inputs: Inputs, until: datetime) -> datetime:
    ms = inputs.raw.agg(f.min("ms")).collect()[0][0]
    return until if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _rows(frame: DataFrame, order: list[str]) -> list[dict[str, Any]]:
    found = frame.orderBy(*map(_in_order, order))
    rows = (row.asDict() for row in found.limit(_MOST_ROWS).collect())
    # Spark gives moments by the clock on this machine's wall, without saying so.
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]


def _in_order(text: str) -> Column:
    column = f.expr(text.removesuffix(" DESC"))
    return column.desc() if text.endswith(" DESC") else column.asc()


def _audited(tables: Tables) -> list[dict[str, Any]] | None:
    """Return what the last audit found, the most urgent first; None if there was none."""
    if not tables.written(TABLES["audit"]):
        return None
    urgency = f.array_position(f.array(*map(f.lit, _URGENT)), f.col("finding"))
    rows = _rows(tables.read(TABLES["audit"]).withColumn("urgency", urgency), ["urgency", "log_id"])
    return [{name: value for name, value in row.items() if name != "urgency"} for row in rows]


def _beside(directory: Path | str) -> Path | None:
    """Where the JSON goes if no one says where; on another file system than this machine's, nowhere."""
    return None if "://" in str(directory) else Path(directory) / "report.json"


def _utc(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
