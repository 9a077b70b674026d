"""The live figures: what happened by minute."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES

_MINUTES: Final = TABLES["minutes"]

COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "fact_published": ("'published'", "1"),
    "fact_addressed": ("'addressed'", "1"),
    "fact_leased": ("'leased'", "1"),
    "fact_returned": ("'returned'", "1"),
    "fact_ended": ("concat('ended:', reason)", "1"),
    "fact_sessions": ("concat(what, '-session')", "1"),
    "fact_subscribed": ("'subscribed'", "CAST(begins AS INT)"),
    "fact_unsubscribed": ("'unsubscribed'", "1"),
    "fact_redriven": ("'redriven'", "1"),
    "fact_discarded": ("'discarded'", "1"),
    "fact_erased": ("'erased'", "1"),
    "fact_held": ("'held'", "1"),
    "fact_released": ("'released'", "1"),
    "event_failed": ("'failed'", "1"),
    "event_settled": ("'settled'", "count"),
    "event_redelivered": ("'redelivered'", "count"),
    "event_overflow": ("'overflow'", "count"),
    "event_traffic": ("'traffic'", "published"),
    "event_visitors": ("'visitors'", "opened"),
    "corrupt": ("'corrupt'", "1"),
}
"""What is counted of a table, and how many each row counts for. Sessions that came, went and were held are counted as facts."""


def minutes(tables: Mapping[str, DataFrame]) -> DataFrame | None:
    """Return the table `minutes` of some tables, by their names; None if none of them is counted."""
    counted = [
        tables[name].select(
            f.date_trunc("minute", "at").alias("minute"),
            "date",
            f.expr(what).alias("what"),
            f.expr(count).cast("bigint").alias("count"),
        )
        for name, (what, count) in COUNTED.items()
        if name in tables
    ]
    return united(reduce(DataFrame.unionByName, counted)) if counted else None


def united(counts: DataFrame) -> DataFrame:
    """Return counts of the same in one row each: several batches may report the same minute."""
    return counts.groupBy("minute", "date", "what").agg(f.sum("count").alias("count")).select(*_MINUTES.names)
