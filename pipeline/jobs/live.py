"""The resident job: what the store's streams bring becomes bronze, silver and minutes, and the newest figures go to the store.

One query does all of it, so that one checkpoint tells how far everything is. A batch writes parts that bear its number; after a
crash it is done again, and its parts take the place of those that were there. So each table holds each entry once, whenever the
job ends. On an idle machine the store is asked every `trigger_s` whether there is anything new, and nothing else happens.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from crewel.errors import CrewelError
from crewel.pipeline import parts
from crewel.pipeline.connection import Address
from crewel.pipeline.failures import in_one_line
from crewel.pipeline.jobs import batches, compact, gold, watching
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.lock import TablesBusy, merging, writing
from crewel.pipeline.schemas import RAW, TABLES
from crewel.pipeline.sink import Command, Sink
from crewel.pipeline.source import NAME
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze

VERSION: Final = 1
"""Version of the checkpoint. With another one the job continues after what bronze holds."""

_MINUTES: Final = TABLES["minutes"]
_FIGURES_S: Final = 24 * 3600
"""Seconds that the figures of a minute stay in the store."""

_LOOK_S: Final = 0.5
_PAUSE_S: Final = 5.0
"""Seconds before the next attempt when the store has been away for too long."""

_AWAY: Final = "StoreUnavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    address: Address
    directory: Path | str
    trigger_s: float = 10.0
    """Seconds between batches, at least."""
    rows: int = 200_000
    """Most entries of a batch."""
    once: bool = False
    """Whether it ends when it has read what is there."""
    upkeep_s: float = 600.0
    """Seconds between two times at which parts are put together and the other tables of gold written again; 0: never."""
    hold_limit_s: float = 600.0
    """Seconds for which a receiver may be on hold before an alert is raised; 0: none is."""
    fails_on_loss: bool = False
    """Whether it ends when entries were trimmed before it read them. Otherwise a row of bronze reports the gap."""


@dataclass(slots=True)
class Result:
    """What it has done."""

    batches: int = 0
    entries: int = 0
    corrupt: int = 0


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job until it is stopped by SIGTERM or SIGINT, or until it has read all if that was asked for.

    A store that goes away is waited for, as long as it takes. Raises CrewelError.
    """
    job = _Job(spark, options, progress)
    with writing(options.directory, "the live job"), _stopping() as is_over:
        job.prepare()
        while True:
            queries = job.start()
            try:
                while not is_over(_LOOK_S) and all(query.isActive for query in queries):
                    pass
                for query in queries:
                    query.stop()
                for query in queries:
                    if (trouble := query.exception()) is not None:
                        raise trouble
            except StreamingQueryException as error:
                if _AWAY not in str(error):
                    raise CrewelError(f"the live job has ended: {error}") from error
                progress("the store is unavailable; waiting for it")
                if is_over(_PAUSE_S):
                    return job.result
            else:
                job.keep_up(is_due=True)
                return job.result


class _Job:
    def __init__(self, spark: SparkSession, options: Options, progress: Progress) -> None:
        self.result = Result()
        self._spark = spark
        self._options = options
        self._progress = progress
        self._tables = Tables(spark, options.directory)
        self._sink: Sink | None = None
        self._kept_up = time.monotonic()
        self._is_changed = False

    def prepare(self) -> None:
        """Remove what a backfill has left behind that did not come to its end."""
        for part in self._tables.unfinished():
            self._tables.forget(part, (*batches.MADE, RAW))

    def start(self) -> list[StreamingQuery]:
        """Start the query that does all, and with it the watch, which needs none of the tables."""
        options = self._options
        started = [self._start()]
        if options.hold_limit_s and not options.once:
            started.append(watching.start(self._spark, self._tables, options.address, options.hold_limit_s))
        return started

    def _start(self) -> StreamingQuery:
        options = self._options
        source = (
            self._spark.readStream.format(NAME)
            .option("prefix", options.address.prefix)
            .option("start", self._begin())
            .option("maxRows", options.rows)
            .option("failOnDataLoss", str(options.fails_on_loss).lower())
            .option("notePositions", "true")
            .option("partitions", 2)
        )
        writer = (
            source.load()
            .writeStream.queryName("crewel-live")
            .option("checkpointLocation", self._tables.checkpoint("live", VERSION))
            .foreachBatch(self._take)
        )
        if options.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{max(round(options.trigger_s * 1000), 1)} milliseconds")
        query = writer.start()
        self._sink = Sink(options.address, f"live.{query.id}")
        return query

    def keep_up(self, *, is_due: bool = False) -> None:
        """Put parts together and write gold again, if it is time and there is anything new."""
        options = self._options
        if not self._is_changed or not options.upkeep_s:
            return
        if is_due or time.monotonic() - self._kept_up >= options.upkeep_s:
            self._kept_up = time.monotonic()
            try:
                with suppress(TablesBusy), merging(options.directory, "the live job"):
                    compact.tidy(self._tables, self._progress)
                gold.write(self._tables, self._progress)
            except (PySparkException, Py4JJavaError) as error:
                # Nothing is lost by it: bronze and silver have all, and gold is made of them again.
                self._progress(
                    f"the upkeep has failed and is tried again in {options.upkeep_s:.0f} s: {in_one_line(error)}"
                )
            else:
                self._is_changed = False

    def _begin(self) -> str:
        """Return where a query without a checkpoint begins: with the last millisecond that bronze has anything of. It stays so:
        Spark asks again when the first batch is repeated."""
        begun = self._tables.begin_of("live", VERSION)
        if begun is None:
            days = self._tables.days(RAW)
            newest = self._tables.read(RAW, since=days[-1].date).agg(f.max("ms")).collect()[0][0] if days else None
            begun = "earliest" if newest is None else str(newest)
            self._tables.note_begin("live", VERSION, begun)
        return begun

    def _take(self, frame: DataFrame, number: int) -> None:
        """Write one batch. Spark may ask for the same one again."""
        tables, part = self._tables, parts.live(VERSION, number)
        raw = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            new = raw if number else self._unknown(raw, part)
            has = batches.found(new)
            if not has.entries:
                return
            batches.write_raw(tables, new, part, has.entries)
            written = batches.write(tables, new, has, part)
            assert self._sink is not None
            self._sink.write(number, (*self._figures(part), *self._releases(part)))
        finally:
            raw.unpersist()
        self.result.batches += 1
        self.result.entries += has.entries
        self.result.corrupt += written.corrupt
        self._is_changed = True
        self._progress(
            f"batch {number}: {has.entries:,} entries" + (f", {written.corrupt} corrupt" if written.corrupt else "")
        )
        self.keep_up()

    def _unknown(self, raw: DataFrame, part: str) -> DataFrame:
        """Return what bronze does not have yet but from this part: a new checkpoint begins a little before its end."""
        days = self._tables.days(RAW)
        if not days:
            return raw
        known = self._tables.read(RAW, since=days[-1].date, without=part)
        return bronze.missing(raw, known)

    def _figures(self, part: str) -> Iterator[Command]:
        """Yield what the store gets: how often each thing has happened by now in the minutes of a batch."""
        touched = self._tables.part(_MINUTES, part).select("minute").distinct()
        bounds = touched.agg(f.min("minute"), f.max("minute")).collect()[0]
        if bounds[0] is None:
            return
        now = datetime.now(UTC)
        counts = self._tables.read(_MINUTES, since=bounds[0].date(), until=bounds[1].date()).join(touched, "minute")
        keys = self._options.address.keys
        words: dict[str, list[Any]] = {}
        is_recent = f.col("minute") >= f.lit(now - timedelta(seconds=_FIGURES_S))
        for row in counts.where(is_recent).select(f.unix_millis("minute").alias("ms"), "what", "count").collect():
            words.setdefault(f"{keys.base}pipeline:minute:{row['ms']}", []).extend((row["what"], row["count"]))
        for key, fields in words.items():
            yield ("HSET", key, *fields)
            yield ("EXPIRE", key, _FIGURES_S)

    def _releases(self, part: str) -> Iterator[Command]:
        """Yield what takes the alerts away of those that are held no more."""
        released = self._tables.part(TABLES["fact_released"], part).select("session")
        closed = self._tables.part(TABLES["fact_sessions"], part).where("what = 'closed'").select("session")
        sessions = [row["session"] for row in released.union(closed).distinct().collect()]
        if sessions:
            yield ("HDEL", self._options.address.keys.alerts, *sessions)


@contextmanager
def _stopping() -> Iterator[Callable[[float], bool]]:
    """Take SIGTERM and SIGINT for a wish to stop; what is yielded waits some seconds and tells whether there was one."""
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish.wait
        return
    before = {each: signal.signal(each, lambda *_: wish.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield wish.wait
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
