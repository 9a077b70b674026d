"""Runs a job for a command: looks whether it can work, starts Spark, and ends as a command does."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer
from rich.table import Table
from rich.text import Text

from crewel.errors import CrewelError, StoreUnavailable
from crewel.pipeline.output import as_cell, as_json, as_text_cell, in_one_line, lines, plain
from crewel.standard_output import console

Words = Callable[[str], None]

_INTERRUPTED: Final = 128 + signal.SIGINT
_REACH_S: Final = 5.0
_PIPED_COLUMNS: Final = 10_000
"""Width of a table that is not for a terminal: no row is folded."""
_IS_DEBUGGED = bool(os.environ.get("CREWEL_PIPELINE__DEBUG"))
_TALKATIVE: Final = "SQLQueryContextLogger"
"""PySpark's, which describes each error in a condition of SQL in ten kilobytes."""

_USAGE: Final = frozenset({"BadCondition", "BadQuery"})
"""Errors of a job that are the user's words."""

_WRITERS: Final = frozenset({"live", "backfill"})
"""Jobs of which one at a time may run."""

_SPARK_LEVEL = "WARN" if _IS_DEBUGGED else "OFF"
"""A failure is reported in one line anyway; Spark would say the same in a hundred."""


@dataclasses.dataclass(frozen=True, slots=True)
class Common:
    """The options of each command."""

    directory: str
    master: str | None
    spark: list[str] | None
    config: Path
    is_json: bool = False
    is_quiet: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Spark. Raises typer.BadParameter."""
        return dict(map(_setting, self.spark or ()))

    @property
    def is_here(self) -> bool:
        """Whether the tables are on this machine."""
        return "://" not in self.directory

    @property
    def address(self) -> Any:
        """Where the store is. Raises SettingsError."""
        from crewel.pipeline.connection import Address

        return Address.found(config=self.config)


def run_job(name: str, common: Common, **options: Any) -> Any:
    """Run one job on a session of its own, and return its result. Wrong usage ends the command with 2."""
    from crewel.pipeline.spark_session import ready, session

    ready()
    settings, address, tell = common.settings, common.address, _teller(common)
    needs_store = name != "compact" and options.get("from_store", True)
    with _as_commands_end():
        if not needs_store and common.is_here and not Path(common.directory, "bronze").is_dir():
            raise CrewelError(f"{common.directory}: there are no tables; --dir says where they are")
        if common.is_here:
            Path(common.directory).mkdir(parents=True, exist_ok=True)
        if needs_store:
            _reach(address, tell, waits=name == "live" and not options["once"])
        if name in _WRITERS or options.get("backfill"):
            import_module("crewel.pipeline.jobs.lock").check(common.directory)
        tell("starting Spark" if common.master is None else f"starting Spark at {common.master}")
        spark = session(address, common.master, settings, _SPARK_LEVEL)
        # PySpark would talk to Java from within the signal, about a call that is under way. What is left undone no one sees.
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
        try:
            module = import_module(f"crewel.pipeline.jobs.{name}")
            if name == "live" and not options["once"]:
                tell("following the streams; SIGINT (Ctrl-C) or SIGTERM ends it")
            return module.run(spark, module.Options(address=address, directory=common.directory, **options), tell)
        except CrewelError as error:
            if type(error).__name__ in _USAGE:
                raise typer.BadParameter(str(error)) from None
            raise
        finally:
            with suppress(Exception):  # of a Java that is gone already
                spark.stop()


def _reach(address: Any, tell: Words, *, waits: bool) -> None:
    """Try the store, before Spark takes its time. Raises StoreUnavailable; a command that `waits` only reports it."""
    from redis import RedisError

    from crewel.pipeline.connection import patiently

    try:
        with address.client() as client:
            patiently(client.ping, 0 if waits else _REACH_S)
    except StoreUnavailable as error:
        if not waits:
            raise StoreUnavailable(f"{address!r}: {error}; CREWEL_STORAGE__URL says where the store is") from None
        tell(f"{address!r}: {error}; waiting for it")
    except RedisError as error:
        raise StoreUnavailable(f"{address!r}: {error}") from None


@contextmanager
def _as_commands_end() -> Iterator[None]:
    """Turn what Spark, deltalake and the file system raise into one line, and a signal into the status that a shell expects."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger(_TALKATIVE).disabled = not _IS_DEBUGGED
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except (PySparkException, Py4JError, DeltaError, OSError) as error:
        if _IS_DEBUGGED:
            raise
        if isinstance(error, OSError):
            raise CrewelError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
        where = "the tables" if isinstance(error, DeltaError) else "Spark"
        raise CrewelError(f"{where}: {in_one_line(error)} (CREWEL_PIPELINE__DEBUG=1 shows all)") from None


def _teller(common: Common) -> Words:
    """What shows how far a job is: lines on stderr, with the seconds since the start."""
    if common.is_quiet:
        return lambda words: None
    start = time.monotonic()

    def tell(words: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {words}", file=sys.stderr, flush=True)

    return tell


def show(result: Any, common: Common) -> None:
    """Print a result. With `--quiet`, people get no list of what was written; programs get it with `--json`."""
    if common.is_json:
        print(json.dumps(as_json(result)), flush=True)
        return
    values = dataclasses.asdict(result)
    if common.is_quiet:
        values.pop("paths", None)
    for line in lines(values):
        print(line)


def show_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, is_raw: bool) -> None:
    """Print the rows of an answer as CSV, for spreadsheets: texts that they would run as formulas begin with an apostrophe.
    `is_raw`: as the texts are, for programs. All texts have quotes, because some spreadsheets separate cells at a semicolon
    too, and some programs rows at a carriage return."""
    writer = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for cells in (columns, *rows):
        shown = map(as_cell, cells)
        writer.writerow(shown if is_raw else map(as_text_cell, shown))


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the rows of an answer as a table for people."""
    printer = console()
    if not printer.is_terminal:
        printer.width = _PIPED_COLUMNS
    shown = Table(box=None, pad_edge=False)
    for name in columns:
        shown.add_column(Text(name), overflow="fold")
    for row in rows:
        shown.add_row(*(Text("" if cell is None else plain(as_cell(cell))) for cell in row))
    printer.print(shown)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise typer.BadParameter(f"{text!r}: such as spark.sql.shuffle.partitions=64")
    return name, value
