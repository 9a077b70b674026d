"""Where the tables lie, how they are read, and how a step of a job adds to them so that it may be done twice.

    <root>/<layer>/<name>/v<version>/_delta_log                                   which files count, by Delta Lake's protocol
    <root>/<layer>/<name>/v<version>/<batch>-<random>/date=2026-11-20/*.parquet   what a batch has added
    <root>/checkpoints/<job>/v<version>                                           where a stream continues
    <root>/unfinished/<batch>                                                     a batch that is not in all its tables yet

Tables are always read by the schema that they are documented with, never by what a file contains: so a column that was
added is null in older files, and an empty day is a table all the same.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from crewel.pipeline import hours
from crewel.pipeline.delta import KEEP_HOURS, Batch, DeltaLog
from crewel.pipeline.file_system import FileSystem, literal
from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import RAW, TABLES, Layer, Table
from crewel.pipeline.schemas.table import BATCH

_DAYS = {"minutes": "minute", "latency": "minute", "backlog": "minute", "capacity": "hour"}
"""The column whose day is the date of a row, where that is not `at`. The date itself is no column of the files."""

_STAYING = frozenset(
    {"fact_subscribed", "fact_unsubscribed", "fact_lost", "fact_held", "fact_released", "fact_sessions"}
)
"""What later messages and times are compared with. Losses say which subscriptions do not hold; ends of sessions end holds."""
_KEPT_FROM, _FORGOTTEN = "kept.from", "forgotten.facts"

_TRIES = 50
_PAUSE_S = 0.05


def empty(spark: SparkSession, table: Table) -> DataFrame:
    """Return a table without rows. Spark knows that it has none, and leaves out what would be done with them."""
    columns = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in table.struct())
    return spark.range(0).where("false").selectExpr(*columns)


def _quoted(day: date) -> str:
    return f"'{day.isoformat()}'"


@dataclass(frozen=True, slots=True)
class _Moment:
    """The tables as they were at one moment."""

    logs: Mapping[str, DeltaLog]
    hidden: set[str]


class Tables:
    """All tables below one directory, which `spark` can reach: a path here, or an address such as `hdfs://...`. Raises
    SettingsError if Spark has no file system for it."""

    def __init__(self, spark: SparkSession, root: Path | str, moment: _Moment | None = None) -> None:
        self.root = str(root).rstrip("/")
        self._spark = spark
        self._files = FileSystem(spark)
        self._files.check(self.root)
        self._moment = moment
        self._logs = (
            {table.name: DeltaLog(table, f"{self.root}/{table.path}") for table in TABLES.values()}
            if moment is None
            else moment.logs
        )

    # Reading

    def read(
        self,
        table: Table,
        since: date | None = None,
        until: date | None = None,
        *,
        days: Collection[date] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Return a table with the columns of its schema, if asked of some days only: from one to another, both inclusive, or
        these. Batches that are not in all their tables yet are left out. `where` leaves out files that have no row for it."""
        bounds = [
            *([] if since is None else [f"date >= '{since.isoformat()}'"]),
            *([] if until is None else [f"date <= '{until.isoformat()}'"]),
            *([] if days is None else [f"date IN ({', '.join(map(_quoted, sorted(days)))})"]),
            *([] if where is None else [where]),
        ]
        files = [] if days is not None and not days else self._logs[table.name].files(" AND ".join(bounds) or None)
        return self._load(table, files, self._is_shown(table))

    def added(self, table: Table, since: int | None) -> DataFrame:
        """Return the rows that have come to a table since an earlier version; with None all."""
        return self._load(table, [each.path for each in self._logs[table.name].added(since)], self._is_shown(table))

    def changed(self, table: Table, since: int | None) -> set[int]:
        """Return the hours (`pipeline.hours`) that these rows may be of."""
        added = self._logs[table.name].added(since)
        return {hour for part in added for hour in hours.of_part(part.day, part.first_ms, part.last_ms)}

    def version(self, table: Table) -> int:
        """Return the version of a table; -1 if there is none yet."""
        return self._logs[table.name].version

    def noted(self, table: Table, name: str) -> int | None:
        """Return a number that was noted when a table was replaced; None if none was."""
        return self._logs[table.name].newest(name)

    def part(self, table: Table, batch: Batch) -> DataFrame:
        """Return what one batch has added to a table, whether it is finished or not."""
        return self._load(table, self._logs[table.name].files(), f.col(BATCH) == str(batch))

    def silver(self) -> Mapping[str, DataFrame]:
        """Return all tables of silver by name, each read when it is asked for."""
        return LazyMapping(
            {name: partial(self.read, table) for name, table in TABLES.items() if table.layer is Layer.SILVER}
        )

    def pinned(self) -> Tables:
        """Return the tables as they are at one moment, for reading: each batch is in all of them, or in none.

        A batch is noted before it comes to bronze, and until it is in all its tables. So there was such a moment if bronze and
        the notes were the same before and after all others were looked at.
        """
        for _ in range(_TRIES):
            hidden, version = self.unfinished(), self._logs[RAW.name].version
            moment = _Moment({name: log.pinned() for name, log in self._logs.items()}, hidden)
            if (hidden, version) == (self.unfinished(), self._logs[RAW.name].version):
                break
            time.sleep(_PAUSE_S)
        return Tables(self._spark, self.root, moment)

    def days(self, table: Table) -> list[date]:
        """Return the days that a table has something of, the oldest first."""
        return self._logs[table.name].days()

    def is_empty(self, table: Table) -> bool:
        """Whether a table has no file."""
        return not self._logs[table.name].files()

    def rows(self, table: Table) -> int:
        """Return how many rows a table has."""
        return self._logs[table.name].number

    def has(self, table: Table, batch: Batch) -> bool:
        """Whether a table has a batch."""
        return self._logs[table.name].has(batch)

    def newest(self, job: str) -> int | None:
        """Return the number of the newest batch of a job that bronze has; None if there is none."""
        return self._logs[RAW.name].newest(job)

    def written(self, table: Table) -> datetime | None:
        """Return when rows of a table were written last; None if they never were."""
        return self._logs[table.name].written()

    def minutes(self, first: datetime, last: datetime) -> pa.Table:
        """Return the rows of `minutes` of some time, both inclusive, into the memory of this process: few, beside all that is
        counted there. All batches count."""
        table = TABLES["minutes"]
        within = (pc.field("minute") >= first) & (pc.field("minute") <= last)
        return self._logs[table.name].rows(first.date(), last.date(), within).select(table.names)

    # Writing

    def create(self) -> None:
        """Make all tables that are not there yet: other programs then find each documented table, be it empty."""
        for log in self._logs.values():
            log.create()

    def write(self, table: Table, frame: DataFrame, batch: Batch) -> DataFrame:
        """Add rows as a batch, and return them as the table has them. If it has the batch already, nothing is written, and the
        frame itself is returned."""
        if self.has(table, batch):
            return frame.select(*table.names)
        log, folder = self._logs[table.name], f"{batch}-{token_hex(4)}"
        self._save(frame.select(*table.names).withColumn(BATCH, f.lit(str(batch))), table, folder)
        return self._load(table, log.add(folder, batch))

    def write_arrow(self, table: Table, rows: pa.Table, batch: Batch) -> None:
        """Add rows that are in the memory of this process as a batch. A batch that the table has is not written again."""
        log = self._logs[table.name]
        if not log.has(batch):
            log.write(rows, f"{batch}-{token_hex(4)}", batch)

    def replace(
        self,
        table: Table,
        frame: DataFrame,
        days: Collection[date] | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """Write a table again, as a whole or these days of it. Readers see what was there before, or all of what is there now.

        `notes` are numbers that come with it, for `noted`.
        """
        folder = f"whole-{token_hex(4)}"
        # As few files as are good for what there is, of which each task writes its share.
        self._save(frame.select(*table.names).hint("rebalance", *table.partitions), table, folder)
        self._logs[table.name].replace(folder, days, notes)

    def forget(self, before: date) -> int:
        """Remove earlier days of bronze and silver; return how many rows those had. Gold stays, and what later
        messages and times are compared with (`_STAYING`)."""
        facts = self.read(RAW, until=before - timedelta(days=1)).where("key = 'facts'").count()
        notes = {_KEPT_FROM: before.toordinal(), _FORGOTTEN: self.forgotten + facts}
        gone = self._logs[RAW.name].forget(before, notes)
        for table in TABLES.values():
            if table.layer is Layer.SILVER and not table.is_derived and table.name not in _STAYING:
                gone += self._logs[table.name].forget(before, {})
        return gone

    @property
    def retained_from(self) -> date | None:
        """The first day that was not removed on purpose; None if none ever was."""
        ordinal = self.noted(RAW, _KEPT_FROM)
        return None if ordinal is None else date.fromordinal(ordinal)

    @property
    def start(self) -> str | None:
        """Where the entries of the first day begin that was not removed, as the source wants it; None for the oldest entry."""
        day = self.retained_from
        return None if day is None else day.isoformat()

    @property
    def forgotten(self) -> int:
        """How many facts were removed on purpose."""
        return self.noted(RAW, _FORGOTTEN) or 0

    def compact(self, table: Table, today: date, fewest: int) -> tuple[int, int]:
        """Merge small files of a table, while others may read and add. Return how many files there were and are."""
        return self._logs[table.name].compact(today, fewest)

    def vacuum(self, table: Table, keep_hours: int = KEEP_HOURS) -> int:
        """Remove the files that have not counted for so long. Return how many it were."""
        return self._logs[table.name].vacuum(keep_hours)

    # Batches and streams

    def begin(self, batch: Batch) -> None:
        """Note that a batch is being written to several tables: no one reads it until it is finished."""
        self._files.create(f"{self.root}/unfinished/{batch}")

    def finish(self, batch: Batch | str) -> None:
        """Note that a batch is in all its tables."""
        self._files.delete(f"{self.root}/unfinished/{batch}")

    def unfinished(self) -> set[str]:
        """Return the names of the batches that were begun and not finished."""
        return set(self._files.names(f"{self.root}/unfinished")) if self._moment is None else self._moment.hidden

    def checkpoint(self, job: str, version: int = 1) -> str:
        """Return where a stream notes how far it is. Another version begins again: the old notes do not fit what it does."""
        return f"{self.root}/checkpoints/{job}/v{version}"

    def begin_of(self, job: str, version: int) -> str | None:
        """Return where a stream with this checkpoint began; None if it has not yet."""
        found = self._files.names(f"{self.root}/checkpoints/{job}", f"v{version}.begin.*")
        return found[0].removeprefix(f"v{version}.begin.") if found else None

    def note_begin(self, job: str, version: int, begin: str) -> None:
        """Note where a stream begins, in the name of a file: it is there whole or not at all."""
        self._files.create(f"{self.root}/checkpoints/{job}/v{version}.begin.{begin}")

    # Files

    def _is_shown(self, table: Table) -> Column | None:
        hidden = () if table.is_derived else self.unfinished()
        return f.col(BATCH).isNull() | ~f.col(BATCH).isin(*hidden) if hidden else None

    def _load(self, table: Table, paths: Iterable[str], where: Column | None = None) -> DataFrame:
        found = list(paths)
        if not found:
            return empty(self._spark, table)
        within = [field for field in table.struct() if field.name not in table.partitions]
        if not table.is_derived:
            within.append(StructField(BATCH, StringType()))
        frame = self._spark.read.schema(StructType(within)).parquet(*map(literal, found))
        if where is not None:
            frame = frame.where(where)
        if table.partitions:
            frame = frame.withColumn("date", f.to_date(_DAYS.get(table.name, "at")))
        return frame.select(*table.names)

    def _save(self, frame: DataFrame, table: Table, folder: str) -> None:
        writer = frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        if table.partitions:
            writer = writer.partitionBy(*table.partitions)
        writer.parquet(f"{self.root}/{table.path}/{folder}")
