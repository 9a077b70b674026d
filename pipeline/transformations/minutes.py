"""The live figures: what happened by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import TABLES

_MINUTES: Final = TABLES["minutes"]


@dataclass(frozen=True, slots=True)
class Counted:
    """What a row of a table counts as: `what`, followed by the column `of`, and `after`. It counts as often as the column
    `count` says, or once."""

    what: str
    of: str | None = None
    after: str = ""
    count: str | None = None


COUNTED: Final[Mapping[str, Counted]] = {
    "fact_published": Counted("published"),
    "fact_scheduled": Counted("scheduled"),
    "fact_cancelled": Counted("cancelled"),
    "fact_addressed": Counted("addressed"),
    "fact_leased": Counted("leased"),
    "fact_returned": Counted("returned"),
    "fact_ended": Counted("ended:", "reason"),
    "fact_sessions": Counted("", "what", "-session"),
    "fact_subscribed": Counted("subscribed", count="begins"),
    "fact_unsubscribed": Counted("unsubscribed"),
    "fact_redriven": Counted("redriven"),
    "fact_discarded": Counted("discarded"),
    "fact_restored": Counted("restored"),
    "fact_erased": Counted("erased"),
    "fact_held": Counted("held"),
    "fact_released": Counted("released"),
    "event_failed": Counted("failed"),
    "event_settled": Counted("settled", count="count"),
    "event_redelivered": Counted("redelivered", count="count"),
    "event_overflow": Counted("overflow", count="count"),
    "event_traffic": Counted("traffic", count="published"),
    "event_visitors": Counted("visitors", count="opened"),
    "corrupt": Counted("corrupt"),
}
"""What is counted of a table. Sessions that came, went and were held are counted as facts."""


def minutes(tables: Mapping[str, DataFrame]) -> DataFrame | None:
    """Return the table `minutes` of some tables, by their names; None if none of them is counted."""
    every = [
        tables[name].select(
            f.date_trunc("minute", "at").alias("minute"),
            "date",
            (
                f.concat(f.lit(counted.what), counted.of, f.lit(counted.after)) if counted.of else f.lit(counted.what)
            ).alias("what"),
            f.lit(1).cast("bigint").alias("count")
            if counted.count is None
            else f.col(counted.count).cast("bigint").alias("count"),
        )
        for name, counted in COUNTED.items()
        if name in tables
    ]
    return united(reduce(DataFrame.unionByName, every)) if every else None


def united(counts: DataFrame) -> DataFrame:
    """Return counts of the same in one row each: several batches may report the same minute."""
    return counts.groupBy("minute", "date", "what").agg(f.sum("count").alias("count")).select(*_MINUTES.names)
