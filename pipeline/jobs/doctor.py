"""Whether everything is as the pipeline needs it: packages, Java, the store and its streams, how far the resident job is, and
Spark itself. Each look tells and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import redis

from crewel.check_result import CheckResult, State
from crewel.errors import CrewelError
from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.output import in_one_line
from crewel.pipeline.spark_session import INSTALL_EXTRA, INSTALL_JAVA, LEAST_JAVA, java_version

_PACKAGES: Final = ("pyspark", "deltalake", "pyarrow", "pandas", "numpy")
_PATIENCE_S: Final = 5.0
_STREAMS: Final = ("facts", "events", "dead")
_BOUNDS: Final = {"facts": "storage.facts_max_entries", "events": "events.max_bytes"}
_BEHIND: Final = 0.5
"""Share of a stream that may be unread before that is worth a warning."""
_LEAST_DISK: Final = 2 * 1024**3  # bytes
_LEAST_MEMORY: Final = 3 * 1024**3  # bytes


@dataclass(frozen=True, slots=True)
class Options:
    """Where to look."""

    address: Address
    directory: Path | str
    master: str | None = None
    starts_spark: bool = True
    """Whether to try a session of Spark, which takes some seconds."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark."""


def examine(options: Options) -> Iterator[CheckResult]:
    """Yield what is found, the cheap looks first. Spark is tried only if what it needs is there."""
    needed = [*_packages(), _java()]
    yield from needed
    yield _memory()
    store = list(_store(options.address))
    yield from store
    yield _directory(str(options.directory))
    if options.starts_spark and not any(result.state is State.WRONG for result in (*needed, store[0])):
        yield _spark(options)


def _packages() -> Iterator[CheckResult]:
    for name in _PACKAGES:
        try:
            yield CheckResult(name, State.OK, version(name))
        except PackageNotFoundError:
            yield CheckResult(name, State.WRONG, "not installed", INSTALL_EXTRA)


def _java() -> CheckResult:
    found = java_version()
    if found is None:
        return CheckResult("java", State.WRONG, "not found", INSTALL_JAVA)
    if found < LEAST_JAVA:
        return CheckResult("java", State.WRONG, f"{found}, too old", INSTALL_JAVA)
    return CheckResult("java", State.OK, str(found))


def _memory() -> CheckResult:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{total / 2**30:,.1f} GiB"
    if total < _LEAST_MEMORY:
        return CheckResult("memory", State.WARNING, found, "the resident job takes about 1.3 GB")
    return CheckResult("memory", State.OK, found)


# The store


def _store(address: Address) -> Iterator[CheckResult]:
    try:
        with address.client() as client:
            patiently(client.ping, _PATIENCE_S)
            yield CheckResult("store", State.OK, repr(address))
            yield from _streams(client, address)
    except (CrewelError, redis.RedisError) as error:
        yield CheckResult(
            "store",
            State.WRONG,
            str(error),
            "does a server run here, with its data in ./data? Where else the store is, CREWEL_STORAGE__URL says",
        )


def _streams(client: Any, address: Address) -> Iterator[CheckResult]:
    keys = address.keys
    positions = client.hgetall(keys.positions)
    for name in _STREAMS:
        try:
            extent = client.xinfo_stream(getattr(keys, name))
        except redis.ResponseError:
            yield CheckResult(name, State.OK, "nothing yet")
            continue
        found = f"{extent['length']:,} entries"
        if name in _BOUNDS:
            yield _followed(name, found, extent, positions.get(name.encode()))
        else:
            yield CheckResult(name, State.OK, found)


def _followed(name: str, found: str, extent: dict[str, Any], position: bytes | None) -> CheckResult:
    """How far the resident job is with a stream, and whether it may lose some of it."""
    count = _count(position)
    if count is None:
        return CheckResult(name, State.OK, f"{found}; no job has committed a position")
    added, length = extent["entries-added"], extent["length"]
    trimmed = added - length
    if trimmed > count:
        return CheckResult(
            name,
            State.WRONG,
            f"{found}; {trimmed - count:,} were trimmed before they were read",
            f"run `crewel pipeline live`, or raise {_BOUNDS[name]}",
        )
    unread = max(added - count, 0)
    is_behind = unread > _BEHIND * max(length, 1) and trimmed > 0
    return CheckResult(
        name,
        State.WARNING if is_behind else State.OK,
        f"{found}; {unread:,} of them not read yet",
        "the oldest are trimmed soon: is `crewel pipeline live` running?" if is_behind else "",
    )


def _count(position: bytes | None) -> int | None:
    try:
        count = json.loads(position or b"{}").get("count")
    except (ValueError, AttributeError):
        return None
    return count if type(count) is int else None


# Tables and Spark


def _directory(directory: str) -> CheckResult:
    if "://" in directory:
        return CheckResult("tables", State.OK, directory)
    path = Path(directory)
    there = next(each for each in (path, *path.absolute().parents) if _is_there(each))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return CheckResult("tables", State.WRONG, f"{there} cannot be written to", "see --dir")
    free = shutil.disk_usage(there).free
    found = f"{directory}{'' if there == path else ' (is made by the first job)'}, {free / 2**30:,.1f} GiB free"
    if free < _LEAST_DISK:
        return CheckResult(
            "tables", State.WARNING, found, "tables grow every day, and need twice the space while they are compacted"
        )
    return CheckResult("tables", State.OK, found)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it may not be looked at, or is none
        return False


def _spark(options: Options) -> CheckResult:
    """Start a session, let a Python worker count, and write and read a file."""
    from pyspark.errors import PySparkException

    from crewel.pipeline.file_system import FileSystem
    from crewel.pipeline.spark_session import session

    try:
        spark = session(options.address, options.master, options.settings)
    except (CrewelError, PySparkException, RuntimeError, OSError) as error:
        return CheckResult("spark", State.WRONG, in_one_line(error), "see the lines of Spark above")
    try:
        counted = _tried(lambda: f"{spark.version} at {spark.sparkContext.master}, {_counted(spark)}")
        try:
            FileSystem(spark).names(str(options.directory))
        except CrewelError as error:  # jars that the directory needs
            return CheckResult(
                "spark", State.WRONG, in_one_line(error), "Spark has to reach the directory of the tables"
            )
        return counted
    finally:
        spark.stop()


def _counted(spark: Any) -> str:
    """Read dead letters through the source: so a worker has the packages, and reaches the store."""
    rows = spark.read.format("crewel-events").option("streams", "dead").load().count()
    return f"its workers reach the store ({rows:,} dead letters)"


def _tried(step: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult("spark", State.OK, step())
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is what is to be reported
        return CheckResult(
            "spark",
            State.WRONG,
            in_one_line(error),
            "do the workers have the same Python packages, and a way to the store?",
        )
