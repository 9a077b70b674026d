"""What reports and the audit are made of: the tables as far as they go, and what the store has beyond them.

So both work with the resident job, after a backfill, and without either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline.connection import PATIENCE_S, Address
from crewel.pipeline.few_rows import MOST
from crewel.pipeline.hours import HOUR_MS
from crewel.pipeline.jobs import batches
from crewel.pipeline.jobs.gold import Sources
from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import GAP, RAW, TABLES
from crewel.pipeline.source import near, spread
from crewel.pipeline.source.arrow import LARGEST
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.positions import EntryId, Extent
from crewel.pipeline.tables import Tables, empty
from crewel.pipeline.transformations import bronze, silver
from crewel.pipeline.transformations.dead_letters import letters
from crewel.pipeline.transformations.intervals import intervals
from crewel.pipeline.transformations.shapes import EVENTS, FACTS


@dataclass(slots=True)
class Inputs:
    """Everything, each entry once."""

    raw: DataFrame
    """Facts and events."""
    silver: Mapping[str, DataFrame]
    """All tables of silver by name."""
    sources: Sources
    """The tables of silver in two parts: the tables at one moment, and what the store has beyond them."""
    _fresh: DataFrame

    def forget(self) -> None:
        """Let go of what was kept in memory."""
        self._fresh.unpersist()


def gather(
    spark: SparkSession,
    tables: Tables,
    address: Address,
    streams: tuple[str, ...] = ("facts", "events"),
    until: Mapping[str, Extent] | None = None,
) -> Inputs:
    """Return what there is of these streams, as far as they went `until` someone looked, and the letters that are there
    now. Without `until` it is looked now. Raises StoreUnavailable."""
    until = _extents(address, streams) if until is None else until
    tables = tables.pinned()
    known = tables.read(RAW).where(f.col("key").isin(*streams))
    fresh, has = _unknown(spark, address, known if tables.days(RAW) else None, until, tables.start)
    # Who knows what there is none of spares Spark the search for it, in a dozen plans.
    present = _present(has)
    stored, new = tables.silver(), silver.tables(fresh)

    def whole(name: str) -> DataFrame:
        return stored[name].unionByName(new[name]) if name in present else stored[name]

    found: LazyMapping[DataFrame] = LazyMapping(
        {
            **{name: partial(whole, name) for name in new},
            "intervals": lambda: intervals(found["fact_subscribed"], found["fact_unsubscribed"]),
            "letters": lambda: letters(load(spark, address, "dead")),
        }
    )
    hour = f.expr(f"ms div {HOUR_MS}").alias("hour")
    hours = {row["hour"] for row in fresh.select(hour).distinct().collect()} if has.entries else set()
    sources = Sources(
        tables, LazyMapping({name: partial(new.__getitem__, name) for name in new if name in present}), hours
    )
    return Inputs(known.unionByName(fresh), found, sources, fresh)


def is_few(tables: Tables, address: Address) -> bool:
    """Whether tables and store together have few entries. Raises StoreUnavailable."""
    return tables.rows(RAW) + sum(each.length for each in _extents(address, ("facts", "events")).values()) <= MOST


def _extents(address: Address, streams: tuple[str, ...]) -> Mapping[str, Extent]:
    extents = Extents(address, PATIENCE_S)
    try:
        return extents.look(streams)
    finally:
        extents.close()


def _unknown(
    spark: SparkSession, address: Address, known: DataFrame | None, until: Mapping[str, Extent], start: str | None
) -> tuple[DataFrame, batches.Found]:
    """Return what is in the store and not in the tables, kept in memory, and how much it is.

    Nearly always that is what comes after the newest entry that the tables have: then they have as many of those before as the
    store has. If they do not, a backfill of some time only has left a hole, and all is read and compared.
    """
    if known is None:
        return _cached(load(spark, address, *until, start=start, end=until))
    there = {row["key"]: row for row in known.groupBy("key").agg(*_overlap(until)).collect()}
    newer = [
        load(spark, address, key, start=there[key]["newest"] if key in there else start, end=until) for key in until
    ]
    fresh, has = _cached(reduce(DataFrame.unionByName, newer))
    if all(
        extent.length - has.of(key) == (there[key]["number"] if key in there else 0) for key, extent in until.items()
    ):
        return fresh, has
    fresh.unpersist()
    return _cached(bronze.missing(load(spark, address, *until, start=start, end=until), known))


def _cached(fresh: DataFrame) -> tuple[DataFrame, batches.Found]:
    fresh = fresh.persist(StorageLevel.MEMORY_AND_DISK)
    return fresh, batches.found(fresh)


def _overlap(until: Mapping[str, Extent]) -> tuple[Column, Column]:
    """Return `number`, how many entries the tables have of those that the store had, and `newest`, the id of the last one."""
    place = f.struct("ms", "seq")

    def at(entry: EntryId) -> Column:
        return f.struct(*(f.lit(min(half, LARGEST)).cast("bigint") for half in entry))

    is_there = reduce(
        Column.__or__,
        (
            (f.col("key") == key) & (place >= at(extent.oldest)) & (place <= at(extent.newest))
            for key, extent in until.items()
        ),
    )
    newest = f.max(f.when(is_there, f.struct("ms", "seq", "id")))["id"]
    return f.count_if(is_there).alias("number"), newest.alias("newest")


def _present(has: batches.Found) -> set[str]:
    """Return the tables that some entries may have rows for."""
    return {
        "corrupt",
        *(each.table.name for each in FACTS if has.of("facts", each.types)),
        *(("event_groups", *(each.table.name for each in EVENTS)) if has.of("events") else ()),
        *(("gaps",) if any(key.endswith(GAP) for key, _ in has.counts) else ()),
    }


def write_letters(spark: SparkSession, tables: Tables, address: Address) -> None:
    """Write the dead letters that the store holds now, with their bodies, if there are any, or were."""
    table = TABLES["letters"]
    if _extents(address, ("dead",))["dead"].length:
        tables.replace(table, letters(load(spark, address, "dead")))
    elif not tables.is_empty(table):
        tables.replace(table, empty(spark, table))


def load(
    spark: SparkSession,
    address: Address,
    *streams: str,
    start: str | None = None,
    end: Mapping[str, Extent] | None = None,
) -> DataFrame:
    """Return entries of streams from one on, exclusive, or from the oldest; to the newest, or as far as they went together."""
    last = "latest" if end is None else str(max(end[stream].newest for stream in streams))
    return read(spark, address, streams=",".join(streams), start=start or "earliest", end=last)


def read(spark: SparkSession, address: Address, **options: str) -> DataFrame:
    """Return what the source reads with these options: what is there now. Few entries are read at once, by this process."""
    address = Address(address.url, options.get("prefix", address.prefix))
    table = near.few(address, options)
    if table is None:
        return spread.many(spark, address, options)
    # The plan of no rows is one that Spark leaves out wherever it is used.
    return spark.createDataFrame(table, RAW.struct()) if table.num_rows else empty(spark, RAW)
