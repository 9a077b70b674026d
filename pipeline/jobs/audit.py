"""Proves that nothing was lost, or tells what was: writes the table `audit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline import store_snapshot
from crewel.pipeline.connection import PATIENCE_S, Address
from crewel.pipeline.few_rows import tuned
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import Inputs, gather, is_few, load
from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import FINDINGS, RAW, TABLES
from crewel.pipeline.source.arrow import LARGEST
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.positions import EntryId, Extent
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import audit, damage, dead_letters
from crewel.pipeline.transformations import silver as silver_of
from crewel.pipeline.transformations.intervals import intervals

_AUDIT, _LOSSES = TABLES["audit"], TABLES["losses"]
_MOST_SHOWN: Final = 100
_BLAME: Final = ("lost", "twice", "surplus", "both", "no letter")
"""Findings that are a defect of the server, or a damage of the store, if the tables have what was read."""
_TROUBLES: Final = (*_BLAME, "damaged table")


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
        return not any(self.counts[name] for name in _TROUBLES)


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job, while the server continues. Raises CrewelError."""
    tables = Tables(spark, options.directory)
    with tuned(spark, is_few=is_few(tables, options.address)):
        return _audited(spark, options, tables, progress)


def _audited(spark: SparkSession, options: Options, tables: Tables, progress: Progress) -> Result:
    address = options.address
    progress("reading the records of the store")
    looked = _look(address, "facts", "dead")
    before = looked["facts"]
    snapshot = store_snapshot.take(address)
    letters = _letters(spark, address) if looked["dead"].added else None
    after = _look(address, "facts")["facts"]
    progress("reading the facts")
    inputs = gather(spark, tables, address, ("facts",), {"facts": after})
    try:
        gone, set_back = _set_back(spark, inputs, address, after)
        if set_back is not None and after.length:  # else it is an empty store that later audits need not know of
            tables.replace(_LOSSES, set_back)
        unread, unread_ms = unread_facts(inputs, after, gone)
        since = _kept_since(inputs.sources.tables)
        records, listed = snapshot.frames(spark), snapshot.schedule(spark)

        def found_in(facts: Mapping[str, DataFrame]) -> DataFrame:
            found = audit.audit(facts, records, before.newest, unread_ms, set_back, since)
            found = found.unionByName(audit.of_schedule(facts, listed, before.newest, unread_ms, set_back, since))
            if letters is not None:
                found = found.unionByName(audit.without_letter(facts, letters, before.newest, set_back))
            return _within(found, options)

        progress("comparing pending deliveries with their ends")
        silver = _until_then(inputs.silver, after)
        tables.replace(_AUDIT, found_in(silver))
        damaged = _damaged(inputs, tables.read(_AUDIT), progress)
        if damaged:
            # Bronze has what was read, so it says what really happened.
            silver = _until_then(_of_bronze(inputs, damaged), after)
            rows = spark.createDataFrame(damage.findings(damaged), _AUDIT.struct())
            tables.replace(_AUDIT, found_in(silver).unionByName(rows))
        messages = _messages(silver, since)
    finally:
        inputs.forget()
        if letters is not None:
            letters.unpersist()
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


def _messages(silver: Mapping[str, DataFrame], since: int) -> int:
    """Return how many messages were published or addressed from this log id on."""
    published = silver["fact_published"].where((f.col("channel") != "") & (f.col("log_id") >= since)).select("log_id")
    # What a group gets has its subscribers beside it, and is published too.
    addressed = silver["fact_addressed"].where(f.col("log_id") >= since).select("log_id").distinct()
    return published.count() + addressed.join(published, "log_id", "left_anti").count()


def _until_then(silver: Mapping[str, DataFrame], after: Extent) -> Mapping[str, DataFrame]:
    """Return the tables as they were at the second look: what the resident job has read meanwhile goes beyond it."""

    def cut(name: str) -> DataFrame:
        return _until(silver[name], after)

    read = {name: partial(cut, name) for name in silver}
    return LazyMapping({**read, "intervals": partial(silver.__getitem__, "intervals")})


def _damaged(inputs: Inputs, found: DataFrame, progress: Progress) -> list[damage.Difference]:
    """Return which tables of facts differ from bronze. All are compared if the sums of their bytes differ. Otherwise, before a
    finding blames the server, the rows of its message are."""
    kept = damage.facts_since(inputs.silver, inputs.sources.tables.retained_from)
    blamed = found.where(f.col("finding").isin(*_BLAME) & f.col("log_id").isNotNull()).select("log_id").distinct()
    shares = damage.shares(inputs.raw, kept)
    is_suspicious = damage.is_suspicious(shares)
    if not is_suspicious and blamed.isEmpty():
        return []
    progress("comparing silver with bronze")
    made, names = silver_of.tables(inputs.raw), sorted({*shares, "corrupt"})
    if not is_suspicious:
        some = damage.differences(damage.of_messages(made, blamed), damage.of_messages(kept, blamed), names)
        names = [each.table for each in some]
    return damage.differences(made, kept, names)


def _of_bronze(inputs: Inputs, damaged: list[damage.Difference]) -> Mapping[str, DataFrame]:
    """Return silver with the rows that bronze makes instead of those of the damaged tables."""
    made, day = silver_of.tables(inputs.raw), inputs.sources.tables.retained_from
    names = {each.table for each in damaged}

    def whole(name: str) -> DataFrame:
        if name not in names:
            return inputs.silver[name]
        older = [] if day is None else [inputs.silver[name].where(f.col("date") < f.lit(day))]
        return reduce(DataFrame.unionByName, older, made[name])

    found: LazyMapping[DataFrame] = LazyMapping(
        {
            **{name: partial(whole, name) for name in inputs.silver},
            "intervals": lambda: intervals(found["fact_subscribed"], found["fact_unsubscribed"]),
        }
    )
    return found


def _look(address: Address, *streams: str) -> Mapping[str, Extent]:
    """Return how far these streams go. Raises StoreUnavailable, also if the store is only a part of what a backup had."""
    store_snapshot.require_whole(address)
    extents = Extents(address, PATIENCE_S)
    try:
        return extents.look(streams)
    finally:
        extents.close()


def _kept_since(tables: Tables) -> int:
    """Return the first log id whose facts were not removed on purpose. A log id may be a little ahead of the clock."""
    day = tables.retained_from
    if day is None:
        return 0
    return round(datetime(day.year, day.month, day.day, 0, 1, tzinfo=UTC).timestamp()) * 1_000_000


def _letters(spark: SparkSession, address: Address) -> DataFrame:
    """Return the dead letters that are there now, kept: later some may have been redriven by facts that are not read."""
    names = ("ms", "message_id", "receiver")
    found = dead_letters.letters(load(spark, address, "dead")).select(*names).persist(StorageLevel.MEMORY_AND_DISK)
    found.count()
    return found


def _set_back(
    spark: SparkSession, inputs: Inputs, address: Address, after: Extent
) -> tuple[DataFrame | None, DataFrame | None]:
    """Return the facts that the tables have and the store has lost, and the losses that no server told, as rows of
    `fact_lost`; None if there are none.

    What the store has tells of the time from its oldest fact on. Of the time before, the losses count that an audit has found
    while the store had facts of it.
    """
    stored = inputs.sources.tables
    if not stored.days(RAW):
        return None, None
    gone, below = _gone(spark, inputs, address, after)
    is_new = stored.is_empty(_LOSSES)
    if gone is None and is_new:
        return None, None
    older = stored.read(_LOSSES).where(_is_upto(below)).localCheckpoint()
    facts = inputs.raw.where(f.col("key") == "facts").select(f.col("id").alias("place"), "ms", "seq")
    undone = audit.undone(facts, "place", older)
    if gone is None:
        return undone, older
    untold = audit.holding(gone, "place", inputs.silver["fact_lost"].unionByName(older))
    losses = older.unionByName(audit.set_back(untold, inputs.silver["fact_published"])).localCheckpoint()
    return gone.unionByName(undone).distinct(), losses


def _gone(spark: SparkSession, inputs: Inputs, address: Address, after: Extent) -> tuple[DataFrame | None, EntryId]:
    """Return the facts that the tables have, and that the store lacks beside others; None if there are none. Also the place
    up to which the store says nothing. Facts that were deleted one by one are none: what they said did happen."""
    stored = inputs.sources.tables
    now = _look(address, "facts")["facts"]
    below = _silent(now)
    facts = inputs.raw.where(f.col("key") == "facts")
    is_there, is_beyond = ~_is_upto(below) & _is_upto(after.newest), ~_is_upto(now.newest)
    number, beyond = facts.agg(f.count_if(is_there), f.count_if(is_beyond)).collect()[0]
    if not beyond and number <= now.length - (now.added - after.added):
        return None, below
    sure = stored.read(RAW).where((f.col("key") == "facts") & (is_there | is_beyond))
    there = load(spark, address, "facts", start=str(below)).where(f.col("key") == "facts").select("id")
    missing = sure.join(there, "id", "left_anti").select(f.col("id").alias("place"), "ms", "seq").localCheckpoint()
    # What was trimmed while the store was read is not lost.
    below = _silent(_look(address, "facts")["facts"])
    gone = missing.where(~_is_upto(below))
    return (None if gone.isEmpty() else gone), below


def _silent(stream: Extent) -> EntryId:
    """Return the place up to which a stream does not tell what there was."""
    return max(_before(stream.oldest), stream.deleted) if stream.length else stream.newest


def unread_facts(inputs: Inputs, stream: Extent, gone: DataFrame | None = None) -> tuple[int, int | None]:
    """Return how many facts are missing, and when the last time ended of which facts are missing or could not be understood;
    None if there are all. `gone` has those of the tables that the store has lost; those beyond its end do not count.

    The stream tells how many facts there ever were. What it still has was read: what is missing is older, or was deleted on
    its own.
    """
    facts = _until(inputs.raw.where(f.col("key") == "facts"), stream)
    corrupt = _until(inputs.silver["corrupt"].where(f.col("key") == "facts"), stream).agg(f.max("ms")).collect()[0][0]
    lost = 0 if gone is None else _until(gone, stream).count()
    missing = max(stream.added - (facts.count() - lost) - inputs.sources.tables.forgotten, 0)
    ends = [stream.oldest.ms if stream.length else stream.newest.ms, stream.deleted.ms] if missing else []
    return missing, max([*ends, *([] if corrupt is None else [corrupt])], default=None)


def _until(rows: DataFrame, extent: Extent) -> DataFrame:
    return rows.where(_is_upto(extent.newest))


def _before(place: EntryId) -> EntryId:
    return EntryId(place.ms, place.seq - 1) if place.seq else EntryId.before(place.ms)


def _is_upto(place: EntryId) -> Column:
    ms, seq = (min(half, LARGEST) for half in place)
    return (f.col("ms") < ms) | ((f.col("ms") == ms) & (f.col("seq") <= seq))


def _within(found: DataFrame, options: Options) -> DataFrame:
    at = f.timestamp_micros("log_id")
    if options.since is not None:
        found = found.where(f.col("log_id").isNull() | (at >= f.lit(options.since)))
    if options.until is not None:
        found = found.where(f.col("log_id").isNull() | (at < f.lit(options.until)))
    return found
