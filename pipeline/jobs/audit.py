"""Proves that nothing was lost, or tells what was: writes the table `audit`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline import store_snapshot
from crewel.pipeline.connection import PATIENCE_S, Address
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import Inputs, gather
from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import FINDINGS, TABLES
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.positions import Extent
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import audit

_AUDIT: Final = TABLES["audit"]
_MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    address: Address
    directory: Path | str
    since: datetime | None = None
    """Only what was published from then on is reported."""
    until: datetime | None = None
    """Only what was published before then is."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was found. `findings` are the first of them, by the columns of the table."""

    messages: int
    """Messages that were published or addressed, as far as the facts go."""
    counts: dict[str, int]
    """How many there are of each finding."""
    findings: list[dict[str, Any]]
    unread: int
    """Facts that were trimmed before they were read."""
    unread_until: datetime | None
    """When the last time ended of which facts are missing or could not be understood; None if there are all."""

    @property
    def lost(self) -> int:
        """Messages that are lost for a receiver."""
        return self.counts["lost"]

    @property
    def is_clean(self) -> bool:
        """Whether all adds up, as far as it can be audited."""
        return not any(self.counts[name] for name in ("lost", "twice", "surplus", "both"))


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job, while the server continues. Raises CrewelError."""
    tables = Tables(spark, options.directory)
    extents = Extents(options.address, PATIENCE_S)
    try:
        before = extents.look(["facts"])["facts"]
        progress("reading the records of the store")
        snapshot = store_snapshot.take(options.address)
        after = extents.look(["facts"])["facts"]
    finally:
        extents.close()
    progress("reading the facts")
    inputs = gather(spark, tables, options.address, ("facts",), {"facts": after})
    try:
        # What the resident job has read meanwhile goes beyond the second look.
        def cut(name: str) -> DataFrame:
            return _until(inputs.silver[name], after)

        read = {name: partial(cut, name) for name in inputs.silver}
        silver = LazyMapping({**read, "intervals": partial(inputs.silver.__getitem__, "intervals")})
        unread, unread_ms = unread_facts(inputs, after)
        progress("comparing pending deliveries with their ends")
        found = audit.audit(silver, snapshot.frames(spark), before.newest, unread_ms)
        tables.replace(_AUDIT, _within(found, options))
        published = silver["fact_published"].where("channel != ''").select("log_id")
        # What a group gets has its subscribers beside it, and is published too.
        beside = silver["fact_addressed"].select("log_id").distinct().join(published, "log_id", "left_anti")
        messages = published.count() + beside.count()
    finally:
        inputs.forget()
    rows = tables.read(_AUDIT)
    counts = {row["finding"]: row["count"] for row in rows.groupBy("finding").count().collect()}
    shown = rows.orderBy("finding", "log_id", "receiver").limit(_MOST_SHOWN).collect()
    return Result(
        messages,
        {name: counts.get(name, 0) for name in FINDINGS},
        [row.asDict() for row in shown],
        unread,
        None if unread_ms is None else datetime.fromtimestamp(unread_ms / 1000, UTC),
    )


def unread_facts(inputs: Inputs, stream: Extent) -> tuple[int, int | None]:
    """Return how many facts are missing, and when the last time ended of which facts are missing or could not be understood;
    None if there are all.

    The stream tells how many facts there ever were. What it still has was read, so that what is missing is older.
    """
    facts = _until(inputs.raw.where(f.col("key") == "facts"), stream)
    corrupt = _until(inputs.silver["corrupt"].where(f.col("key") == "facts"), stream).agg(f.max("ms")).collect()[0][0]
    missing = stream.added - facts.count()
    ends = [stream.oldest.ms if stream.length else stream.newest.ms] if missing else []
    return missing, max([*ends, *([] if corrupt is None else [corrupt])], default=None)


def _until(rows: DataFrame, extent: Extent) -> DataFrame:
    ms, seq = extent.newest
    return rows.where((f.col("ms") < ms) | ((f.col("ms") == ms) & (f.col("seq") <= seq)))


def _within(found: DataFrame, options: Options) -> DataFrame:
    at = f.timestamp_micros("log_id")
    if options.since is not None:
        found = found.where(f.col("log_id").isNull() | (at >= f.lit(options.since)))
    if options.until is not None:
        found = found.where(f.col("log_id").isNull() | (at < f.lit(options.until)))
    return found
