"""The resident job: what the store's streams bring becomes bronze, silver and minutes, and the newest figures go to the store.

One query does all of it, so that one checkpoint tells how far everything is. A batch adds to the tables under its number; after
a crash it is done again, and adds only what is not there yet. So each table holds each entry once, whenever the job ends. On an
idle machine the store is asked every `trigger_s` whether there is anything new, and nothing else happens.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from crewel.errors import CrewelError
from crewel.pipeline.connection import Address
from crewel.pipeline.delta import KEEP_HOURS, Batch
from crewel.pipeline.few_rows import MOST, tuned
from crewel.pipeline.jobs import batches, compact, gold, holdback_watch
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import write_letters
from crewel.pipeline.jobs.lock import writing
from crewel.pipeline.output import in_one_line
from crewel.pipeline.schemas import RAW
from crewel.pipeline.sink import Command, Sink
from crewel.pipeline.source import NAME
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import bronze

VERSION: Final = 1
"""Version of the checkpoint. With another one the job continues after what bronze holds."""

_FIGURES_S: Final = 24 * 3600
"""Seconds that the figures of a minute stay in the store."""

_LOOK_S: Final = 0.5
_PAUSE_S: Final = 5.0
"""Seconds before the next attempt when the store has been away for too long, or Spark could not start."""

_VACUUM_S: Final = 24 * 3600.0
"""Seconds between two times at which files are removed that have not counted for long."""

_AWAY: Final = "StoreUnavailable"
_LATE: Final = "Python worker failed to connect back"
"""What Spark says of a process that has not started within 10 s, which no setting of Spark changes. On a busy machine it may
take longer."""
_MOST_LATE: Final = 20
"""How often that is tried again without a batch in between: a Python that cannot start at all never comes."""
_GONE: Final = (
    "FileNotFoundException",
    "FileNotFoundError",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "NoSuchFileException",
    "PATH_NOT_FOUND",  # before it was opened
)
"""What is raised where a file of the tables was removed, as `compact --keep 0` does, while a batch needed it."""
_MOST_GONE: Final = 5
"""How often such a batch is tried again: by then a file that is missing is missing for good."""
_IDLE: Final = "Waiting for"
"""How Spark describes a query that waits for its next trigger, or for data."""


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
    keep_days: int = 0
    """How many days of bronze and silver stay, today included; 0: all."""
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

    A store that goes away is waited for, as long as it takes, and a Spark that starts too slowly for itself is started
    again. Raises CrewelError.
    """
    job = _Job(spark, options, progress)
    with writing(options.directory, "the live job"), _stopping() as is_over:
        late = gone = 0
        while True:
            before = job.result.batches
            try:
                job.prepare()
                job.follow(is_over)
            except (PySparkException, Py4JJavaError, DeltaError) as error:
                if job.result.batches > before:
                    late = gone = 0
                if _AWAY in str(error):
                    progress(f"{in_one_line(error)}; waiting for it")
                elif _LATE in str(error) and late < _MOST_LATE:
                    late += 1
                    progress("a Python process of Spark did not start within its 10 s; trying again")
                elif any(words in str(error) for words in _GONE) and gone < _MOST_GONE:
                    gone += 1
                    progress("a file of the tables was removed meanwhile; trying again")
                else:
                    raise CrewelError(f"the live job has ended: {in_one_line(error)}") from error
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
        self._has_started = threading.Event()
        self._has_taken = threading.Event()
        self._kept_up = time.monotonic()
        self._vacuumed: float | None = None
        self._is_changed = self._is_prepared = False
        self._known_until: int | None = None
        """Up to which millisecond bronze may have entries that the query has not read; None if there are none."""

    def prepare(self) -> None:
        """Complete what a job that was killed has left behind, once."""
        if self._is_prepared:
            return
        try:
            self._tables.create()
        except (DeltaError, OSError) as error:  # a reader of such a table gets the error; messages need not wait for it
            self._progress(f"a table could not be made: {in_one_line(error)}")
        batches.complete(self._tables, self._progress)
        self._known_until = self._newest()
        self._is_prepared = True

    def follow(self, is_over: Callable[[float], bool]) -> None:
        """Run the queries until a stop is asked for, or one of them ends. Raises what has ended it."""
        queries = [self._start()]
        try:
            while not is_over(_LOOK_S) and all(query.isActive for query in queries):
                if len(queries) == 1 and self._is_watch_due(queries[0]):
                    options = self._options
                    queries.append(
                        holdback_watch.start(self._spark, self._tables, options.address, options.hold_limit_s)
                    )
        finally:
            for query in queries:
                query.stop()
        for query in queries:
            if (trouble := query.exception()) is not None:
                raise trouble

    def _is_watch_due(self, query: StreamingQuery) -> bool:
        """Whether to start the watch: after the first batch, or when there is nothing to read. Before, both would share the
        processors while Java loads and compiles the code of each."""
        if not self._options.hold_limit_s or self._options.once:
            return False
        return self._has_taken.is_set() or query.status["message"].startswith(_IDLE)

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
        # A new checkpoint counts its batches from 0 again, and has another id: so they are not taken for those of before.
        self._job = f"live.{query.id}"
        self._sink = Sink(options.address, self._job)
        self._has_started.set()
        return query

    def keep_up(self, *, is_due: bool = False) -> None:
        """Put parts together and write gold again, if it is time and there is anything new."""
        options = self._options
        if not self._is_changed or not options.upkeep_s:
            return
        if is_due or time.monotonic() - self._kept_up >= options.upkeep_s:
            self._kept_up = time.monotonic()
            try:
                is_old = self._vacuumed is None or time.monotonic() - self._vacuumed >= _VACUUM_S
                compact.tidy(
                    self._tables,
                    self._progress,
                    keep_hours=KEEP_HOURS if is_old else None,
                    keep_days=options.keep_days if is_old else 0,
                )
                self._vacuumed = time.monotonic() if is_old else self._vacuumed
                with tuned(self._spark, is_few=self._tables.rows(RAW) <= MOST):
                    write_letters(self._spark, self._tables, options.address)
                    gold.write(self._tables, self._progress)
            except (PySparkException, Py4JJavaError, DeltaError, CrewelError, OSError) as error:
                # Nothing is lost by it: bronze and silver have all, and gold is made of them again.
                self._progress(
                    f"the upkeep has failed and is tried again in {options.upkeep_s:.0f} s: {in_one_line(error)}"
                )
            else:
                self._is_changed = False

    def _begin(self) -> str:
        """Return where a query without a checkpoint begins: with the last millisecond that bronze has anything of. It stays so:
        Spark asks again when the first batch is repeated."""
        begin = self._tables.begin_of("live", VERSION)
        if begin is None:
            newest = self._newest()
            begin = self._tables.start or "earliest" if newest is None else str(newest)
            self._tables.note_begin("live", VERSION, begin)
        return begin

    def _newest(self) -> int | None:
        """Return the last millisecond that bronze has anything of; None if it is empty."""
        days = self._tables.days(RAW)
        if not days:
            return None
        newest: int | None = self._tables.read(RAW, since=days[-1]).agg(f.max("ms")).collect()[0][0]
        return newest

    def _take(self, frame: DataFrame, number: int) -> None:
        """Write one batch. Spark may ask for the same one again."""
        self._has_started.wait()
        tables, batch = self._tables, Batch(self._job, number)
        raw = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            new = self._new(raw, batch)
            has = batches.looked(new)
            if not has.entries:
                return
            is_first_time = not tables.has(RAW, batch)
            tables.begin(batch)
            if has.is_small:
                with tuned(new.sparkSession):
                    written = batches.write_small(tables, new, has, batch)
            else:
                batches.write_raw(tables, new, batch, has.entries)
                written = batches.write(tables, new, has, batch)
            tables.finish(batch)
            self._give_figures(written, number, is_first_time=is_first_time)
            holdback_watch.end(self._options.address, written.released())
        finally:
            raw.unpersist()
        self.result.batches += 1
        self.result.entries += has.entries
        self.result.corrupt += written.corrupt
        self._is_changed = True
        self._progress(
            f"batch {number}: {has.entries:,} entries" + (f", {written.corrupt} corrupt" if written.corrupt else "")
        )
        self._has_taken.set()
        self.keep_up()

    def _new(self, raw: DataFrame, batch: Batch) -> DataFrame:
        """Return what a batch adds. What bronze has of it already it had from the same entries, of which some may be trimmed by
        now. A backfill may have taken entries since the checkpoint, and a new checkpoint begins before the end of bronze."""
        if self._tables.has(RAW, batch):
            return self._tables.part(RAW, batch)
        if self._known_until is None:
            return raw
        least = raw.agg(f.min("ms")).collect()[0][0]
        if least is None:
            return raw
        if least > self._known_until:
            # A batch takes all streams up to the same place: so those after it have only newer entries, too.
            self._known_until = None
            return raw
        since = datetime.fromtimestamp(least / 1000, UTC).date()
        return bronze.missing(raw, self._tables.read(RAW, since=since))

    def _give_figures(self, written: batches.Written, number: int, *, is_first_time: bool) -> None:
        """Write the newest figures into the store."""
        assert self._sink is not None
        commands = [*self._figures(written)]
        if not self._sink.write(number, commands) and is_first_time:
            # The tables were put back from a copy, and Spark counts on from there: the store has passed these numbers.
            self._sink = Sink(self._options.address, f"{self._job}.{number}")
            self._sink.write(number, commands)

    def _figures(self, written: batches.Written) -> Iterator[Command]:
        """Yield what the store gets: how often each thing has happened by now in the minutes of a batch."""
        if written.minutes is None:
            return
        since = datetime.now(UTC) - timedelta(seconds=_FIGURES_S)
        touched = {minute for minute in written.minutes["minute"].to_pylist() if minute >= since}
        if not touched:
            return
        counts: Counter[tuple[datetime, str]] = Counter()
        for row in self._tables.minutes(min(touched), max(touched)).to_pylist():
            counts[row["minute"], row["what"]] += row["count"]
        words: dict[str, list[Any]] = {}
        for (minute, what), count in counts.items():
            if minute in touched:
                ms = round(minute.timestamp()) * 1000
                words.setdefault(f"{self._options.address.keys.base}pipeline:minute:{ms}", []).extend((what, count))
        for key, fields in words.items():
            yield ("HSET", key, *fields)
            yield ("EXPIRE", key, _FIGURES_S)


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
