"""Writes those tables of gold again that show how much there was and how long it took."""

from __future__ import annotations

from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import capacity, intervals, latency


def write(tables: Tables, progress: Progress = quiet) -> None:
    """Write the intervals of silver, and latency, backlog and capacity, by all that the tables hold."""
    silver = tables.silver()
    progress("intervals")
    tables.replace(
        TABLES["intervals"], intervals.intervals(silver["fact_subscribed"], silver["fact_unsubscribed"]).coalesce(1)
    )
    progress("latency")
    tables.replace(TABLES["latency"], latency.latency(silver["event_settled"]).coalesce(1))
    progress("backlog")  # whose intervals are read now, after they were written
    tables.replace(TABLES["backlog"], latency.backlog(silver).coalesce(1))
    progress("capacity")
    tables.replace(TABLES["capacity"], capacity.capacity(silver).coalesce(1))
