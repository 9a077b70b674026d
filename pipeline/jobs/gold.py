"""Writes those tables of gold anew that show how much there was and how long it took."""

from __future__ import annotations

from pyspark.sql import DataFrame

from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import capacity, intervals, latency, owing

__all__ = ["write"]


def write(tables: Tables, progress: Progress = quiet) -> None:
    """Write the intervals of silver, and latency, backlog and capacity, by all that the tables hold."""

    def read(name: str) -> DataFrame:
        return tables.read(TABLES[name])

    progress("intervals")
    tables.replace(
        TABLES["intervals"], intervals.intervals(read("fact_subscribed"), read("fact_unsubscribed")).coalesce(1)
    )
    progress("latency")
    tables.replace(TABLES["latency"], latency.latency(read("event_settled")).coalesce(1))
    published, addressed, redriven = read("fact_published"), read("fact_addressed"), read("fact_redriven")
    leased, ended = read("fact_leased"), read("fact_ended")
    progress("backlog")
    owed = latency.backlog(published, read("intervals"), addressed, leased, read("fact_returned"), redriven, ended)
    tables.replace(TABLES["backlog"], owed.coalesce(1))
    progress("capacity")
    figures = capacity.capacity(
        tables.read(RAW),
        published,
        addressed,
        ended,
        owing.channels(published, addressed, redriven),
        read("event_settled"),
        read("event_traffic"),
        read("event_failed"),
    )
    tables.replace(TABLES["capacity"], figures.coalesce(1))
