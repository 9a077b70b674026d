"""The log of one table, as Delta Lake defines it: it says which files count, so that every program that knows Delta sees the
same rows as Spark does here.

Spark writes the files, and deltalake, the Python package of delta-rs, writes the log. No jar is needed for it, and a commit
takes some milliseconds. Each commit bears the job and the number of its batch: one that is repeated changes nothing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from crewel.errors import CrewelError
from crewel.pipeline.schemas.table import BATCH, Table

KEEP_HOURS: Final = 7 * 24
"""How long a file that does not count any more stays for those who read it."""

_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 2 days",
    "delta.enableExpiredLogCleanup": "true",
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS} hours",
}
_BEGUN_HOURS: Final = 24
"""No write takes longer."""
_BOUNDED: Final = "delta.dataSkippingStatsColumns"
_READER: Final = 1
"""The version of the protocol whose files can be read one by one. Later ones delete rows beside the files."""
_TRIES: Final = 10
_LARGE: Final = 64 * 1024 * 1024
"""Bytes; files from this size on are not merged."""
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_COUNTED: Final = frozenset({"bigint", "int"})
"""Types of the columns whose least and largest value the log tells of each file."""
_CLOCK: Final = "ms"
"""The column that tells when, in all tables of silver."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a job writes at one time. Numbers of a job grow."""

    job: str
    number: int

    @classmethod
    def parse(cls, name: str) -> Batch | None:
        """Return what a name says; None if it is none of a batch."""
        job, _, number = name.rpartition(".")
        return cls(job, int(number)) if job and number.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.job}.{self.number}"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a table by date."""

    path: str
    day: date
    first_ms: int | None
    last_ms: int | None
    """The bounds of its column `ms`, since 1970; None if the log does not have them."""


class DeltaLog:
    """The log of one table. It is looked at again each time, unless it is `pinned`."""

    def __init__(self, table: Table, path: str, opened: DeltaTable | None = None, *, is_pinned: bool = False) -> None:
        self.path = path
        self._table = table
        self._opened = opened
        self._is_pinned = is_pinned

    def pinned(self) -> DeltaLog:
        """Return the log as it is now: what comes later is not seen."""
        return DeltaLog(self._table, self.path, None if self._current() is None else self._fresh(), is_pinned=True)

    @property
    def version(self) -> int:
        """Number of the newest commit; -1 if there is no table yet."""
        found = self._current()
        return -1 if found is None else found.version()

    def files(self, predicate: str | None = None) -> list[str]:
        """Return the files that count, those only that may have rows for a predicate in SQL. Raises CrewelError."""
        found = self._current()
        if found is None:
            return []
        if found.protocol().min_reader_version > _READER:
            raise CrewelError(f"{self.path}: another program has given this table features that are not known here")
        paths = found.file_uris(file_pruning_predicate=predicate) if predicate else found.file_uris()
        return sorted(map(self._read, paths))

    def added(self, since: int | None) -> list[Part]:
        """Return the files by which rows have come to a table by date since an earlier version, also those that were merged
        meanwhile: the files that they became bring nothing new. With None, and if the log does not reach back so far, these are
        all files that count."""
        found = self._current()
        if found is None or (since is not None and since >= found.version()):
            return []
        parts = None if since is None else self._brought(found, since)
        return [replace(each, path=self._whole(each.path)) for each in (_parts(found) if parts is None else parts)]

    def _brought(self, found: DeltaTable, since: int) -> list[Part] | None:
        """Return these files by the commits since then; None if one of the commits, or of the files, is gone."""
        system = _system(found)
        parts: dict[str, Part] = {}
        for version in range(since + 1, found.version() + 1):
            commit = f"_delta_log/{version:020}.json"
            if not _is_file(system, commit):
                return None
            with system.open_input_file(commit) as file:
                actions = [json.loads(line) for line in file.read().splitlines()]
            for action in actions:
                if (brought := action.get("add")) and brought["dataChange"]:
                    parts[brought["path"]] = _part(brought)
                elif (forgotten := action.get("remove")) and forgotten["dataChange"]:
                    parts.pop(forgotten["path"], None)
        counting = {each.path for each in _parts(found)}
        are_there = all(path in counting or _is_file(system, self._read(path)) for path in parts)
        return [*parts.values()] if are_there else None

    @property
    def number(self) -> int:
        """How many rows there are."""
        found = self._current()
        if found is None:
            return 0
        return sum(number or 0 for number in pa.table(found.get_add_actions(flatten=True))["num_records"].to_pylist())

    def days(self) -> list[date]:
        """Return the days that a table which is partitioned by date has something of, the oldest first."""
        found = self._current()
        return [] if found is None else sorted({date.fromisoformat(each["date"]) for each in found.partitions()})

    def has(self, batch: Batch) -> bool:
        """Whether a batch is there."""
        found = self._current()
        newest = None if found is None else found.transaction_version(batch.job)
        return newest is not None and newest >= batch.number

    def newest(self, job: str) -> int | None:
        """Return the number of the newest batch of a job, or one that was noted; None if there is none."""
        found = self._current()
        return None if found is None else found.transaction_version(job)

    def written(self) -> datetime | None:
        """Return when rows were written last; None if they never were."""
        found = self._current()
        commits = [] if found is None else found.history()
        # A table that was made with files had them before; one that was made without has never been written.
        writes = ("WRITE", "CREATE") if found is not None and found.file_uris() else ("WRITE",)
        at = next((each["timestamp"] for each in commits if each["operation"].startswith(writes)), None)
        return None if at is None else datetime.fromtimestamp(at / 1000, UTC)

    def add(self, folder: str, batch: Batch) -> list[str]:
        """Let all files of a folder of the table count from now on, as this batch. Return their paths."""
        table = self._ready()
        actions = self._actions(table, folder)
        if actions:
            self._commit(table, actions, "append", [Transaction(batch.job, batch.number)])
        return [f"{self.path}/{each.path}" for each in actions]

    def write(self, rows: pa.Table, folder: str, batch: Batch) -> None:
        """Write rows into a folder of the table, a file a day, and let them count from now on, as this batch."""
        table = self._ready()
        system = _system(table)
        rows = rows.append_column(BATCH, pa.array([str(batch)] * rows.num_rows, pa.string()))
        schema = pa.schema([field for field in self._schema() if field.name not in self._table.partitions])
        for day in pc.unique(rows["date"]).to_pylist():
            path = f"{folder}/date={day.isoformat()}"
            system.create_dir(path, recursive=True)
            part = rows.filter(pc.equal(rows["date"], pa.scalar(day, pa.date32()))).select(schema.names).cast(schema)
            with system.open_output_stream(f"{path}/part-0.snappy.parquet") as file:
                pq.write_table(part, file)
        self.add(folder, batch)

    def rows(self, first: date, last: date, where: pc.Expression) -> pa.Table:
        """Return the rows of some days, both inclusive, for which a condition holds."""
        found = self._current()
        if found is None:
            return self._schema().empty_table()
        days = f"date >= '{first.isoformat()}' AND date <= '{last.isoformat()}'"
        return found.to_pyarrow_dataset(file_pruning_predicate=days).to_table(filter=where)

    def create(self) -> None:
        """Make the table if there is none, so that all programs find it, and bring its columns and properties up to date."""
        self._ready()

    def replace(self, folder: str, days: Iterable[date] | None = None, notes: Mapping[str, int] | None = None) -> None:
        """Let the files of a folder count from now on, and no others, or no others of these days. `notes` are numbers that
        `newest` tells by their names. Raises CrewelError."""
        only = None if days is None else [("date", "in", [each.isoformat() for each in days])]
        noted = [Transaction(name, number) for name, number in (notes or {}).items()]

        def step() -> None:  # another job may replace it meanwhile
            table = self._ready()
            # A merge that another program has committed meanwhile would stay beside it: deltalake counts it as no conflict.
            self._commit(table, self._actions(table, folder), "overwrite", noted, only, retries=0)

        self._retried(step)

    def forget(self, before: date, notes: Mapping[str, int]) -> int:
        """Let no file of earlier days count any more; return how many rows they had. `notes` are as in `replace`."""
        if not any(day < before for day in self.days()):
            return 0
        noted = [Transaction(name, number) for name, number in notes.items()]
        properties = CommitProperties(app_transactions=noted)
        where = f"date < '{before.isoformat()}'"
        told = self._retried(lambda: self._fresh().delete(where, commit_properties=properties))
        return int(told["num_deleted_rows"])

    def compact(self, today: date, fewest: int) -> tuple[int, int]:
        """Merge the small files of each day: of a day that is over all of them, of today from `fewest` on. Return how many
        files there were and are."""
        found = self._current()
        if found is None:
            return 0, 0
        actions = pa.table(found.get_add_actions(flatten=True))
        small: Counter[date] = Counter()
        for day, size in zip(actions["partition.date"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True):
            small[day] += size < _LARGE
        before = after = 0
        for day, number in sorted(small.items()):
            if number < (2 if day < today else fewest):
                continue
            done = self._retried(partial(self._merge, day))
            before += done["numFilesRemoved"]
            after += done["numFilesAdded"]
        return before, after

    def vacuum(self, keep_hours: int) -> int:
        """Remove the files that have not counted for so long; return how many. What a write has begun counts later: files that
        never counted stay for a day at least, and are then of a write that was killed."""
        if self._current() is None:
            return 0
        begun_hours = max(keep_hours, _BEGUN_HOURS)
        gone = [*self._vacuumed(keep_hours, full=False), *self._vacuumed(begun_hours, full=True)]
        if "://" not in self.path:
            self._sweep(begun_hours)
        return len(gone)

    def _vacuumed(self, keep_hours: int, *, full: bool) -> list[str]:
        gone: list[str] = self._retried(
            lambda: self._fresh().vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=full)
        )
        return gone

    # Within

    def _read(self, path: str) -> str:
        """Return the path of a file as Spark wants it."""
        return path if "://" in self.path else unquote(path)

    def _whole(self, path: str) -> str:
        """Return the whole path of a file, of that within the table."""
        return f"{self.path}/{self._read(path)}"

    def _fresh(self) -> DeltaTable:
        return DeltaTable(self.path)

    def _current(self) -> DeltaTable | None:
        """Return the table as it is now, or was when it was pinned; None if there is none."""
        if self._is_pinned:
            return self._opened
        if self._opened is None:
            try:
                self._opened = self._fresh()
            except TableNotFoundError:
                return None
        else:
            try:
                self._opened.update_incremental()
            except DeltaError:  # the commits in between are gone: a checkpoint has all of them
                self._opened = self._fresh()
        return self._opened

    def _ready(self) -> DeltaTable:
        """Return the table, made or given new columns if need be."""
        found = self._current()
        if found is None:
            found = self._opened = DeltaTable.create(self.path, self._schema(), mode="ignore", **self._creation())
            found.update_incremental()
        known = {field.name for field in found.schema().fields}
        added = [field for field in Schema.from_arrow(self._schema()).fields if field.name not in known]
        if added:
            found.alter.add_columns([Field(each.name, each.type, metadata=each.metadata) for each in added])
            found.update_incremental()
        bounded = self._bounded()
        if found.metadata().configuration.get(_BOUNDED) != bounded[_BOUNDED]:
            found.alter.set_table_properties(bounded)
            found.update_incremental()
        return found

    def _bounded(self) -> dict[str, str]:
        """Return the property that says of which columns the log has bounds. Readers would take a bound that is missing for a
        null, and leave the file out."""
        return {_BOUNDED: ",".join(each.name for each in self._table.columns if each.type in _COUNTED)}

    def _creation(self) -> dict[str, Any]:
        return {
            "partition_by": list(self._table.partitions),
            "name": self._table.name,
            "description": self._table.meaning,
            "configuration": {**_PROPERTIES, **self._bounded()},
        }

    def _schema(self) -> pa.Schema:
        fields = [
            pa.field(each.name, _arrow(each.type), each.nullable, {"comment": each.meaning})
            for each in self._table.columns
        ]
        if not self._table.is_derived:
            fields.append(pa.field(BATCH, pa.string(), metadata={"comment": "The batch that the row came with."}))
        return pa.schema(fields)

    def _commit(
        self,
        table: DeltaTable,
        actions: list[AddAction],
        mode: str,
        transactions: list[Transaction],
        only: list[tuple[str, str, Any]] | None = None,
        retries: int | None = None,
    ) -> None:
        table.create_write_transaction(
            list(actions),
            mode,
            table.schema(),
            list(self._table.partitions),
            only,
            commit_properties=CommitProperties(app_transactions=transactions, max_commit_retries=retries),
        )

    def _actions(self, table: DeltaTable, folder: str) -> list[AddAction]:
        system = _system(table)
        found = system.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
        return [self._action(system, each.path) for each in found if each.path.endswith(".parquet")]

    def _action(self, system: PyFileSystem, path: str) -> AddAction:
        """Return what the log says of a file: its size, its day, how many rows it has, and the bounds of whole numbers."""
        info = system.get_file_info(path)
        with system.open_input_file(path) as file:
            told = pq.read_metadata(file)
        values = dict(step.split("=", 1) for step in path.split("/")[:-1] if "=" in step)
        changed = info.mtime_ns // 1_000_000 if info.mtime_ns else time.time_ns() // 1_000_000
        days: dict[str, str | None] = {name: values[name] for name in self._table.partitions}
        return AddAction(path, info.size, days, changed, True, json.dumps(self._statistics(told)))

    def _statistics(self, told: pq.FileMetaData) -> dict[str, Any]:
        counted = {each.name for each in self._table.columns if each.type in _COUNTED}
        least: dict[str, int] = {}
        largest: dict[str, int] = {}
        unknown: set[str] = set()
        for group in range(told.num_row_groups):
            for number in range(told.num_columns):
                column = told.row_group(group).column(number)
                name = column.path_in_schema
                if name not in counted:
                    continue
                bounds = column.statistics
                if bounds is None or not bounds.has_min_max:
                    unknown.add(name)
                else:
                    least[name] = min(least.get(name, bounds.min), bounds.min)
                    largest[name] = max(largest.get(name, bounds.max), bounds.max)
        return {
            "numRecords": told.num_rows,
            "minValues": {name: value for name, value in least.items() if name not in unknown},
            "maxValues": {name: value for name, value in largest.items() if name not in unknown},
        }

    def _retried(self, step: Callable[[], Any]) -> Any:
        """Do a step on the newest version until no other commit comes in between. Raises CrewelError."""
        for attempt in range(_TRIES):
            try:
                return step()
            except CommitFailedError as error:
                if attempt == _TRIES - 1:
                    raise CrewelError(f"{self.path}: {error}") from error
        raise AssertionError

    def _merge(self, day: date) -> dict[str, int]:
        return self._fresh().optimize.compact(partition_filters=[("date", "=", day.isoformat())])

    def _sweep(self, keep_hours: int) -> None:
        """Remove the folders of writes that have no file left: on this machine a folder is more than a prefix of names."""
        before = (datetime.now(UTC) - timedelta(hours=keep_hours)).timestamp()
        for folder in Path(self.path).iterdir():
            is_old = folder.is_dir() and not folder.name.startswith("_") and folder.stat().st_mtime <= before
            if is_old and next(folder.rglob("*.parquet"), None) is None:
                shutil.rmtree(folder, ignore_errors=True)


def _system(table: DeltaTable) -> PyFileSystem:
    return PyFileSystem(DeltaStorageHandler.from_table(table._table))  # noqa: SLF001 - as deltalake itself does it


def _is_file(system: PyFileSystem, path: str) -> bool:
    return bool(system.get_file_info(path).type is FileType.File)


def _parts(table: DeltaTable) -> list[Part]:
    """Return the files of a table by date that count."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        Part(each["path"], each["partition.date"], each.get(f"min.{_CLOCK}"), each.get(f"max.{_CLOCK}"))
        for each in actions
    ]


def _part(action: Mapping[str, Any]) -> Part:
    """Return a file as a commit adds it."""
    told = json.loads(action.get("stats") or "{}")
    least, largest = (told.get(name, {}).get(_CLOCK) for name in ("minValues", "maxValues"))
    return Part(action["path"], date.fromisoformat(action["partitionValues"]["date"]), least, largest)


def _arrow(name: str) -> pa.DataType:
    if name.startswith("array<"):
        return pa.list_(_arrow(name.removeprefix("array<").removesuffix(">")))
    return _TYPES[name]
