"""Where the tables lie, how they are read, and how a step of a job adds to them so that it may be done twice.

    <root>/<layer>/<name>/v<version>/date=2026-11-20/part=live.1.17/*.parquet     what jobs add to
    <root>/<layer>/<name>/v<version>/generation=1790000000000/*.parquet           what is rewritten as a whole
    <root>/checkpoints/<job>/v<version>                                           where a stream continues
    <root>/unfinished/<part>                                                      a backfill that is not done

Tables are always read by the schema that they are documented with, never by what a file contains: so a column that was
added is null in older files, and an empty day is a table all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline.files import Files
from crewel.pipeline.lazily import Lazily
from crewel.pipeline.parts import Live, visible
from crewel.pipeline.schemas import RAW, TABLES, Layer, Table
from crewel.pipeline.transformations import minutes

ROWS_A_FILE = 4_000_000
"""At most about as many rows come into one file when parts are put together."""

_UNITED = {"minutes": minutes.united}
"""Tables whose rows of different parts belong together."""


@dataclass(frozen=True, slots=True)
class Day:
    """What a table has of one day."""

    date: date
    parts: tuple[str, ...]
    """The names of all parts, also of those that others hide."""


def empty(spark: SparkSession, table: Table) -> DataFrame:
    """Return a table without rows. Spark knows that it has none, and leaves out what would be done with them."""
    columns = (f.lit(None).cast(field.dataType).alias(field.name) for field in table.struct())
    return spark.range(0).where(f.lit(False)).select(*columns)


class Tables:
    """All tables below one directory, which `spark` can reach: a path here, or an address such as `hdfs://...`."""

    def __init__(self, spark: SparkSession, root: Path | str) -> None:
        self.root = str(root).rstrip("/")
        self._spark = spark
        self._files = Files(spark)

    def read(
        self, table: Table, since: date | None = None, until: date | None = None, without: str | None = None
    ) -> DataFrame:
        """Return a table with the columns of its schema, if asked of some days only, both inclusive, and less one part."""
        if table.is_derived:
            paths = [path] if (path := self._newest(table)) else []
        else:
            hidden = {*self.unfinished(), without}
            paths = [
                self._part(table, day.date, part)
                for day in self.days(table)
                if (since is None or day.date >= since) and (until is None or day.date <= until)
                for part in visible(day.parts)
                if part not in hidden
            ]
        united = _UNITED.get(table.name)
        frame = self._load(table, paths)
        return united(frame) if united else frame

    def silver(self) -> Mapping[str, DataFrame]:
        """Return all tables of silver by name, each read when it is asked for."""
        return Lazily(
            {name: partial(self.read, table) for name, table in TABLES.items() if table.layer is Layer.SILVER}
        )

    def write(self, table: Table, frame: DataFrame, part: str) -> None:
        """Add rows as a part. Rows that this part had of the same days are replaced; each day of it appears at once."""
        (
            frame.select(*table.names)
            .withColumn("part", f.lit(part))
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy("date", "part")
            .parquet(self._path(table))
        )

    def replace(self, table: Table, frame: DataFrame) -> None:
        """Write a table again as a whole. Readers see what was there before, or all of what is there now."""
        before = self._generations(table)
        number = max(time.time_ns() // 1_000_000, (before[-1] + 1) if before else 0)
        path = self._path(table)
        staged = f"{path}/.new-{number}"
        frame.select(*table.names).write.mode("overwrite").parquet(staged)
        self._files.rename(staged, f"{path}/generation={number}")
        for old in before[:-1]:  # who reads the one before may continue
            self._files.delete(f"{path}/generation={old}")

    def written(self, table: Table) -> datetime | None:
        """Return when a table that is rewritten as a whole was written last; None if it never was."""
        found = self._generations(table)
        return datetime.fromtimestamp(found[-1] / 1000, UTC) if found else None

    def part(self, table: Table, part: str) -> DataFrame:
        """Return what one part has of a table, whether it is finished or not."""
        return self._load(table, self._files.matching(f"{self._path(table)}/date=*/part={part}"))

    def days(self, table: Table) -> list[Day]:
        """Return the days that a table has something of, the oldest first."""
        found: dict[date, list[str]] = {}
        for path in self._files.matching(f"{self._path(table)}/date=*/part=*"):
            *_, day, part = path.split("/")
            found.setdefault(date.fromisoformat(day.removeprefix("date=")), []).append(part.removeprefix("part="))
        return [Day(day, tuple(parts)) for day, parts in sorted(found.items())]

    def newest_batch(self) -> Live | None:
        """Return the newest batch of the live job that has begun to write."""
        found = (Live.parse(part) for day in self.days(RAW) for part in day.parts)
        return max((part for part in found if part and part.first == part.last), default=None)

    def merge(self, table: Table, day: date, parts: Iterable[Live], order: Iterable[Column | str] = ()) -> int:
        """Put parts of the live job together in one, which hides them from then on until they are swept. Return its rows."""
        found = sorted(parts)
        merged = Live(found[0].version, found[0].first, max(part.last for part in found))
        frame = self._load(table, [self._part(table, day, str(part)) for part in found])
        united = _UNITED.get(table.name)
        frame = united(frame) if united else frame
        rows = frame.count()
        frame = frame.coalesce(max(rows // ROWS_A_FILE, 1))
        self.write(table, frame.sortWithinPartitions(*order) if order else frame, str(merged))
        return rows

    def sweep(self, table: Table, day: Day) -> int:
        """Remove the parts of a day that others hide, and return how many there were."""
        hidden = set(day.parts) - set(visible(day.parts))
        for part in hidden:
            self._files.delete(self._part(table, day.date, part))
        return len(hidden)

    def sweep_debris(self, table: Table, older_than_ms: int) -> int:
        """Remove what steps that were killed have left behind, if it is older than that moment; return how much it was."""
        found = [
            path
            for pattern in (".spark-staging-*", ".new-*")
            for path in self._files.matching(f"{self._path(table)}/{pattern}")
            if self._files.changed_ms(path) < older_than_ms
        ]
        for path in found:
            self._files.delete(path)
        return len(found)

    def begin(self, part: str) -> None:
        """Note that a part is being written to several tables: no one reads it until it is finished."""
        self._files.create(f"{self.root}/unfinished/{part}")

    def finish(self, part: str) -> None:
        """Note that a part is in all its tables."""
        self._files.delete(f"{self.root}/unfinished/{part}")

    def unfinished(self) -> set[str]:
        """Return the parts that were begun and not finished."""
        return set(self._files.names(f"{self.root}/unfinished"))

    def forget(self, part: str, tables: Iterable[Table]) -> None:
        """Remove a part that was not finished from all its tables."""
        for table in tables:
            for path in self._files.matching(f"{self._path(table)}/date=*/part={part}"):
                self._files.delete(path)
        self.finish(part)

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

    def _load(self, table: Table, paths: list[str]) -> DataFrame:
        if not paths:
            return empty(self._spark, table)
        reader = self._spark.read.schema(table.struct()).option("basePath", self._path(table))
        return reader.parquet(*paths).select(*table.names)

    def _path(self, table: Table) -> str:
        return f"{self.root}/{table.path}"

    def _part(self, table: Table, day: date, part: str) -> str:
        return f"{self._path(table)}/date={day.isoformat()}/part={part}"

    def _generations(self, table: Table) -> list[int]:
        names = self._files.names(self._path(table), "generation=*")
        return sorted(int(name.removeprefix("generation=")) for name in names)

    def _newest(self, table: Table) -> str | None:
        found = self._generations(table)
        return f"{self._path(table)}/generation={found[-1]}" if found else None
