"""Answers what died and why, what is poison, who is sick and how long things take: tables of gold, JSON, and a page to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import Inputs, gather
from crewel.pipeline.report.html import page
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import capacity, latency, owing, poison, receivers, triage

__all__ = ["Options", "Result", "run"]

_USUAL: Final = timedelta(hours=24)
_MOST_POINTS: Final = 1440
"""Of a plot, minutes of a day."""

_MOST_ROWS: Final = 1000
"""Of each table in JSON and on the page: the worst, or of what goes by time the newest."""

_ORDER: Final[Mapping[str, list[str]]] = {
    "triage": ["letters DESC", "last_at DESC"],
    "poison": ["receivers DESC", "failures DESC"],
    "receivers": ["is_sick DESC", "failed DESC", "held_ms DESC", "session"],
    "latency": ["minute DESC", "count DESC"],
    "backlog": ["minute DESC"],
    "capacity": ["hour DESC", "persistent DESC"],
}
_TIME: Final = {"latency": "minute", "backlog": "minute", "capacity": "hour", "triage": "last_at", "poison": "last_at"}
"""The column of each table by which a report of some time is cut."""


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


@dataclass(frozen=True, slots=True)
class Result:
    """What was found, and where it was written."""

    letters: int
    """Messages that died."""
    poison: int
    """Poison messages."""
    sick: list[str]
    """Sick receivers, the first hundred."""
    paths: list[str]
    """What was written: tables of Parquet, and files."""


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job. Raises CrewelError."""
    tables = Tables(spark, options.directory)
    until = _utc(options.until) or datetime.now(UTC)
    progress("reading")
    inputs = gather(spark, tables, options.address)
    try:
        since = _utc(options.since) or max(until - _USUAL, _oldest(inputs, until))
        found = answers(inputs, since, until)
        for name, frame in found.items():
            progress(name)
            time = _TIME.get(name)
            if options.since is not None and time is not None:
                frame = frame.where(f.col(time).between(f.lit(since), f.lit(until)))  # noqa: PLW2901
            tables.replace(TABLES[name], frame.coalesce(1))
    finally:
        inputs.forget()
    written = {name: tables.read(TABLES[name]) for name in found}
    rows = {name: _rows(frame, _ORDER[name]) for name, frame in written.items()}
    totals = _totals(written)
    settling = latency.of_all(written["latency"]).orderBy(f.col("minute").desc()).limit(_MOST_POINTS)
    hours = (
        written["capacity"]
        .groupBy("hour")
        .agg(f.sum("persistent").alias("persistent"), f.sum("transient").alias("transient"))
    )
    told = {
        "since": since,
        "until": until,
        "totals": totals,
        **rows,
        "audit": _audited(tables),
        "settling": _rows(settling, ["minute"]),
        "hours": _rows(hours, ["hour"]),
    }
    paths = [f"{tables.root}/{TABLES[name].path}" for name in found]
    if (file := options.json or _beside(options.directory)) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z, default=str))
        paths.append(str(file))
    if options.html is not None:
        options.html.write_text(page(told), "utf-8")
        paths.append(str(options.html))
    return Result(
        totals["letters"],
        totals["poison"],
        [row["session"] for row in rows["receivers"] if row["is_sick"]][:100],
        paths,
    )


def _totals(written: Mapping[str, DataFrame]) -> dict[str, int]:
    """Return how many letters, poison messages and sick receivers there are."""
    return {
        "letters": written["triage"].agg(f.coalesce(f.sum("letters"), f.lit(0))).collect()[0][0],
        "poison": written["poison"].count(),
        "sick": written["receivers"].where("is_sick").count(),
    }


def answers(inputs: Inputs, since: datetime, until: datetime) -> dict[str, DataFrame]:
    """Return the tables of gold that a report is made of."""
    silver = inputs.silver
    published, addressed, ended = (silver[f"fact_{name}"] for name in ("published", "addressed", "ended"))
    leased, returned, redriven = (silver[f"fact_{name}"] for name in ("leased", "returned", "redriven"))
    letters, failed, settled = silver["letters"], silver["event_failed"], silver["event_settled"]
    channels = owing.channels(published, addressed, redriven)
    return {
        "triage": triage.triage(letters, ended, channels),
        "poison": poison.poison(letters, failed, ended, redriven, channels),
        "receivers": receivers.receivers(silver, since, until),
        "latency": latency.latency(settled),
        "backlog": latency.backlog(published, silver["intervals"], addressed, leased, returned, redriven, ended),
        "capacity": capacity.capacity(
            inputs.raw, published, addressed, ended, channels, settled, silver["event_traffic"], failed
        ),
    }


def _oldest(inputs: Inputs, until: datetime) -> datetime:
    ms = inputs.raw.agg(f.min("ms")).collect()[0][0]
    return until if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _rows(frame: DataFrame, order: list[str]) -> list[dict[str, Any]]:
    found = frame.orderBy(*(f.expr(text.split()[0]).desc() if "DESC" in text else f.col(text) for text in order))
    rows = (row.asDict() for row in found.limit(max(_MOST_ROWS, _MOST_POINTS)).collect())
    # Spark gives moments by the clock on this machine's wall, without saying so.
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]


def _audited(tables: Tables) -> list[dict[str, Any]] | None:
    """Return what the last audit found; None if there was none."""
    return _rows(tables.read(TABLES["audit"]), ["finding", "log_id"]) if tables.has(TABLES["audit"]) else None


def _beside(directory: Path | str) -> Path | None:
    """Where the JSON goes if nobody says where; on another file system than this machine's, nowhere."""
    return None if "://" in str(directory) else Path(directory) / "report.json"


def _utc(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
