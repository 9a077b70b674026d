"""Brings those tables of gold up to date that show how much there was and how long it took. Only hours are made again that
something was added to since: each table notes which versions of its sources it was made of. Of the days of these hours gold is
written again, which is little beside what it is made of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from crewel.pipeline import hours as hours_of
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import TABLES, Table
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import capacity, intervals, latency

_SUBSCRIPTIONS: Final = ("fact_subscribed", "fact_unsubscribed")
_MESSAGES: Final = ("fact_published", "fact_addressed", "fact_redriven", "fact_ended")
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "intervals": _SUBSCRIPTIONS,
    "latency": ("event_settled",),
    "backlog": (*_SUBSCRIPTIONS, *_MESSAGES, "fact_leased", "fact_returned"),
    "capacity": (*_MESSAGES, "event_traffic", "event_settled", "event_failed"),
}
"""What each table is made of."""

_INTERVALS, _LATENCY, _BACKLOG, _CAPACITY = (TABLES[name] for name in _SOURCES)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Sources:
    """Silver as it was at one moment, and what the store has beyond it."""

    tables: Tables
    """As they are at one moment."""
    fresh: Mapping[str, DataFrame] = field(default_factory=dict)
    """Tables of silver that there is something of beyond these."""
    fresh_hours: Collection[int] = ()
    """The hours of that."""

    def read(self, name: str, where: str | None = None) -> DataFrame:
        """Return a table of silver. `where` leaves out files that have no row for it."""
        return self._both(name, None, where)

    def read_hours(self, name: str, hours: Collection[int]) -> DataFrame:
        """Return the rows of these hours that a table of silver has."""
        within = hours_of.condition(hours)
        return self._both(name, hours_of.days_of(hours), within).where(within)

    def _both(self, name: str, days: Collection[date] | None, where: str | None) -> DataFrame:
        stored = self.tables.read(TABLES[name], days=days, where=where)
        return stored.unionByName(self.fresh[name].select(*TABLES[name].names)) if name in self.fresh else stored

    def of(self, hours: Collection[int]) -> Mapping[str, DataFrame]:
        """Return all tables that gold is made of, of these hours only."""
        names = {name for sources in _SOURCES.values() for name in sources}
        return LazyMapping({name: partial(self.read_hours, name, hours) for name in names})

    def added(self, name: str, since: int | None) -> DataFrame:
        """Return what was added to a table since a version of it."""
        stored = self.tables.added(TABLES[name], since)
        return stored.unionByName(self.fresh[name].select(*TABLES[name].names)) if name in self.fresh else stored

    def versions(self, name: str) -> dict[str, int]:
        """Return what a table of gold notes: the versions of what it was made of. With a batch that is on its way nothing is
        noted, because it comes to be seen without another version."""
        if self.tables.unfinished():
            return {}
        versions = {source: self.tables.version(TABLES[source]) for source in _SOURCES[name]}
        return {source: version for source, version in versions.items() if version >= 0}


def write(tables: Tables, progress: Progress = quiet, sources: Sources | None = None) -> None:
    """Bring the intervals of silver, and latency, backlog and capacity up to date, by what the tables hold, or `sources`."""
    gold = _Gold(tables, Sources(tables.pinned()) if sources is None else sources)
    for name, step in {
        "intervals": gold.write_intervals,
        "latency": gold.write_latency,
        "backlog": gold.write_backlog,
        "capacity": gold.write_capacity,
    }.items():
        hours = gold.changed(name)
        if hours:
            progress(f"{name}: {len(hours):,} hours")
            step(hours)


class _Gold:
    def __init__(self, tables: Tables, sources: Sources) -> None:
        self._tables = tables
        self._sources = sources

    def changed(self, name: str, table: Table | None = None) -> set[int]:
        """Return the hours of which something was added to the sources of a table since it, or another one, was made."""
        made, sources = table or TABLES[name], self._sources
        found = {*sources.fresh_hours} if any(source in sources.fresh for source in _SOURCES[name]) else set()
        for source in _SOURCES[name]:
            found |= sources.tables.changed(TABLES[source], self._tables.noted(made, source))
        return found

    def write_intervals(self, _: Collection[int]) -> None:
        """Subscriptions are few beside messages: these are made of all."""
        self._tables.replace(_INTERVALS, self._intervals(), notes=self._sources.versions("intervals"))

    def write_latency(self, hours: Collection[int]) -> None:
        days = hours_of.days_of(hours)
        made = latency.latency(self._sources.read_hours("event_settled", hours)).unionByName(
            self._other(_LATENCY, "minute", hours, days)
        )
        self._tables.replace(_LATENCY, made, days, self._sources.versions("latency"))

    def write_backlog(self, hours: set[int]) -> None:
        """What waits is summed up from the first minute on: from the first day that has changed, all rows are written again."""
        since = self._first_touched()
        there = {*self._tables.days(_BACKLOG)}
        if since is not None:
            touched = (day for day in self._sources.tables.days(TABLES["fact_published"]) if day >= since)
            hours = hours | hours_of.of_days(touched)
        days = hours_of.days_of(hours)
        later = {day for day in there | days if day >= min(days)}
        silver = {**self._sources.of(hours), "intervals": self._intervals()}
        known = self._other(_BACKLOG, "minute", hours).select("minute", "owed", "ended")
        made = latency.backlog(known.unionByName(latency.movements(silver))).where(f.col("date").isin([*later]))
        self._tables.replace(_BACKLOG, made, later, self._sources.versions("backlog"))

    def write_capacity(self, hours: Collection[int]) -> None:
        """The trend of a day's first hour is that beside the last hour of the day before."""
        days = hours_of.days_of(hours)
        after = {day + _DAY for day in days} - days
        near = self._other(_CAPACITY, "hour", hours, days | after | {day - _DAY for day in days})
        silver = self._sources.of(hours)
        volumes = capacity.volumes(silver, self._messages(silver))
        written = days | (after & {*self._tables.days(_CAPACITY)})
        made = capacity.capacity(volumes.unionByName(near.select(*volumes.columns)))
        self._tables.replace(
            _CAPACITY, made.where(f.col("date").isin([*written])), written, self._sources.versions("capacity")
        )

    def _other(
        self, table: Table, moment: str, hours: Collection[int], days: Collection[date] | None = None
    ) -> DataFrame:
        """Return the rows that a table of gold has of other hours, by this column of it; if asked, of these days only."""
        return self._tables.read(table, days=days).where(f"NOT {hours_of.condition(hours, f'unix_millis({moment})')}")

    def _intervals(self) -> DataFrame:
        return intervals.intervals(*(self._sources.read(name) for name in _SUBSCRIPTIONS))

    def _first_touched(self) -> date | None:
        """Return the first day whose messages another subscription holds, or one less, by what was added; None if none has."""
        since = {name: self._tables.noted(_BACKLOG, name) for name in (*_SUBSCRIPTIONS, "fact_published")}
        # Where no messages were known, all days are made.
        if since.pop("fact_published") is None or not self.changed("intervals", _BACKLOG):
            return None
        subscribed, unsubscribed = (self._sources.added(name, version) for name, version in since.items())
        subscribed = subscribed.where("begins")
        # One whose begin no fact tells holds messages from its first one on.
        known = self._sources.read("fact_subscribed").where("begins")
        unknown = unsubscribed.join(known, ["session", "pattern", "from_id"], "left_anti")
        touched = subscribed.select("from_id").union(unsubscribed.select("until_id")).union(unknown.select("from_id"))
        least = touched.agg(f.min("from_id")).collect()[0][0]
        return None if least is None else datetime.fromtimestamp(least / 1_000_000, UTC).date()

    def _messages(self, silver: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        """Return the tables that tell the channels of what ended on some days, by the files that may have its messages."""
        ended, again = silver["fact_ended"].select("log_id"), self._sources.read("fact_redriven")
        where = None
        if self._tables.noted(_CAPACITY, "fact_ended") is not None:
            earlier = again.join(ended, "log_id", "left_semi").selectExpr("try_cast(message_id AS BIGINT) AS log_id")
            least, largest = ended.union(earlier).agg(f.min("log_id"), f.max("log_id")).collect()[0]
            where = None if least is None else f"log_id >= {least} AND log_id <= {largest}"
        messages = {name: self._sources.read(name, where=where) for name in ("fact_published", "fact_addressed")}
        return {**messages, "fact_redriven": again}
