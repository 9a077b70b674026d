"""What reports and the audit are made of: the tables as far as they go, and what the store has beyond them.

So both work with the resident job, after a backfill, and without either.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline.connection import Address
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.source import NAME
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze, silver
from crewel.pipeline.transformations.intervals import intervals
from crewel.pipeline.transformations.letters import letters

__all__ = ["Inputs", "gather"]


@dataclass(slots=True)
class Inputs:
    """Everything, each entry once."""

    raw: DataFrame
    """Facts and events."""
    silver: dict[str, DataFrame]
    """All tables of silver by name."""
    _fresh: DataFrame

    def forget(self) -> None:
        """Let go of what was kept in memory."""
        self._fresh.unpersist()


def gather(
    spark: SparkSession,
    tables: Tables,
    address: Address,
    streams: tuple[str, ...] = ("facts", "events"),
    end: str = "latest",
) -> Inputs:
    """Return what there is of these streams, of facts up to the entry `end`, and the letters that are there now."""
    known = tables.read(RAW).where(f.col("key").isin(*streams))
    has_tables = bool(tables.days(RAW))
    fresh = _load(spark, address, ",".join(streams), end)
    if has_tables:
        fresh = bronze.missing(fresh, known)
    fresh = fresh.persist(StorageLevel.MEMORY_AND_DISK)
    found = {
        **silver.facts(fresh),
        **(silver.events(fresh) if "events" in streams else {}),
        "corrupt": silver.corrupt(fresh),
    }
    if has_tables:
        found = {name: tables.read(TABLES[name]).unionByName(frame) for name, frame in found.items()}
    found["intervals"] = intervals(found["fact_subscribed"], found["fact_unsubscribed"])
    found["letters"] = letters(_load(spark, address, "dead", "latest"))
    return Inputs(known.unionByName(fresh) if has_tables else fresh, found, fresh)


def _load(spark: SparkSession, address: Address, streams: str, end: str) -> DataFrame:
    return spark.read.format(NAME).option("prefix", address.prefix).option("streams", streams).option("end", end).load()
