"""Sends dead letters again that a condition in SQL chooses.

Spark chooses, the server sends: each letter is moved by one step of the store, which happens once or not at all, and only if
the letter is still there. What was chosen is kept under the name of the job before the first letter is sent. The same name
again continues with the same letters, so that nothing is sent twice, and new dead letters are not sent at all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone knows it by

from crewel.errors import CrewelError, SettingsError
from crewel.pipeline.admin_client import DEFAULT_URL, AdminClient
from crewel.pipeline.connection import Address
from crewel.pipeline.file_system import FileSystem, literal
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.output import in_one_line
from crewel.pipeline.transformations.dead_letters import letters

_PORTION: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_GONE: Final = "user.illegalArgument"
"""What the server says of an id that there is no letter of."""
_CHOICE: Final = "letter STRING, condition STRING"
"""What is stored of a job: its letters and its condition, which a row without a letter has if there are none."""

ALIASES: Final = {"letter": "place", "error_code": "code", "first_seen": "died"}
"""More names of columns, for conditions."""


class BadCondition(SettingsError):
    """A condition is no SQL, names what there is not, or is not true or false."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to send again."""

    address: Address
    directory: Path | str
    """Of all tables; what was chosen is kept there."""
    where: str
    """A condition in SQL over the columns of `letters`, and `ALIASES`."""
    job: str
    """Name of this piece of work."""
    dry_run: bool = False
    rate: float | None = None
    """Letters a second at most."""
    url: str = DEFAULT_URL
    """Of the server, as its clients know it."""
    token: str | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)
    """The HTTP proxy on the way to it; None: as the environment has it."""


@dataclass(frozen=True, slots=True)
class Stayed:
    """A letter that could not be sent."""

    letter: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to it."""

    job: str
    chosen: int
    redriven: int
    gone: int
    """Letters that were not there any more: sent before by this job, or by someone else."""
    stayed: tuple[Stayed, ...] = ()
    by_code: tuple[tuple[str, int], ...] = ()
    """How many were chosen, by error code; of a dry run only."""


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Choose letters, keep what was chosen, and have them sent. Raises CrewelError; BadCondition before anything is done."""
    if _NAME.fullmatch(options.job) is None:
        raise SettingsError(f"{options.job!r} is not a job name: letters, digits, dots, dashes, at most 100")
    found = chosen(searchable(_stored(spark)), options.where)
    if options.dry_run:
        counts = _safely(lambda: found.groupBy("code").count().orderBy(F.desc("count"), "code").collect())
        by_code = tuple((row["code"], row["count"]) for row in counts)
        return Result(options.job, sum(count for _, count in by_code), 0, 0, by_code=by_code)
    number, ids = _choice(spark, options, found)
    progress(f"job {options.job}: {number:,} dead letters selected")
    return _send(number, ids, options, progress)


def searchable(frame: DataFrame) -> DataFrame:
    """Return letters with the further names that conditions may use."""
    return frame.select("*", *(F.col(column).alias(name) for name, column in ALIASES.items()))


def chosen(frame: DataFrame, where: str) -> DataFrame:
    """Return the letters that a condition is true for. Raises BadCondition, which tells what is wrong with it."""
    try:
        return frame.where(where)
    except ParseException as error:
        raise BadCondition(f"--where {where!r} is no condition in SQL: {in_one_line(error)}") from None
    except AnalysisException as error:
        raise BadCondition(f"--where {where!r}: {_told(error, frame)}") from None


def _told(error: AnalysisException, frame: DataFrame) -> str:
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = parameters.get("objectName", "?").strip("`")
        return f"there is no column {name}; there are {', '.join(sorted(frame.columns))}"
    if "FILTER_NOT_BOOLEAN" in condition:
        return f"it must be true or false, and is {parameters.get('type', 'neither')}"
    return in_one_line(error)


def _stored(spark: SparkSession) -> DataFrame:
    """The letters that are in the store now."""
    return letters(spark.read.format("crewel-events").option("streams", "dead").load())


def _choice(spark: SparkSession, options: Options, found: DataFrame) -> tuple[int, Iterator[str]]:
    """How many letters this job is about, and their ids, the oldest first: those that it has chosen before, or these, which are
    stored first. They come from the files of the job, a part at a time."""
    path = f"{str(options.directory).rstrip('/')}/redrives/{options.job}"
    if not FileSystem(spark).names(path, "_SUCCESS"):  # which Spark writes last
        _store_choice(found, options.where, path)
    rows = spark.read.schema(_CHOICE).parquet(literal(path))
    where = rows.select("condition").head()
    if where is not None and where[0] != options.where:
        raise SettingsError(
            f"job {options.job} was about another condition, {where[0]!r}: give this one another name, or leave the name out"
        )
    ids = rows.where("letter <> ''").select("letter")
    halves = F.split("letter", "-")
    ordered = ids.orderBy(halves[0].cast("bigint"), halves[1].cast("bigint"))
    return ids.count(), (row[0] for row in ordered.toLocalIterator())


def _store_choice(found: DataFrame, where: str, path: str) -> None:
    ids = found.select(F.col("place").alias("letter")).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        _safely(ids.count)
        none = ids.sparkSession.range(1).select(F.lit("").alias("letter"))
        rows = ids.unionByName(none).withColumn("condition", F.lit(where)).hint("rebalance")
        rows.write.mode("overwrite").parquet(path)
    finally:
        ids.unpersist()


def _safely(step: Callable[[], Any]) -> Any:
    """Run it; a condition that fails with a value is a bad one as well."""
    try:
        return step()
    except PySparkException as error:
        if (error.getCondition() or "").startswith(("CAST_", "DIVIDE_", "INVALID_", "ARITHMETIC_", "CANNOT_PARSE_")):
            raise BadCondition(f"--where: {in_one_line(error)}") from None
        raise


# Sending


def _send(number: int, ids: Iterator[str], options: Options, progress: Progress) -> Result:
    admin = AdminClient(options.url, options.token, tell=progress, proxy=options.proxy)
    redriven = gone = 0
    stayed: list[Stayed] = []
    try:
        for answer in _answers(admin, ids, options.rate):
            redriven += answer["redriven"]
            for each in answer["undone"]:
                if each["errorCode"] == _GONE:
                    gone += 1
                else:
                    stayed.append(Stayed(each["id"], each["errorCode"], each["message"]))
            progress(f"{redriven:,} of {number:,} redriven, {gone:,} were gone, {len(stayed):,} stay")
    except CrewelError as error:
        done = f"{redriven:,} are redriven, {gone:,} were gone"
        raise CrewelError(f"{error}; {done}; --job {options.job} continues with the others") from None
    return Result(options.job, number, redriven, gone, tuple(stayed))


def _answers(admin: AdminClient, ids: Iterator[str], rate: float | None) -> Iterator[dict]:  # type: ignore[type-arg]
    """Ask for all of them, a portion at a time, and so slowly as the server says."""
    limits = {"count": _PORTION} if rate is None else {"count": max(1, min(_PORTION, int(rate))), "rate": rate}
    while portion := list(islice(ids, _PORTION)):
        while portion:
            answer = admin.redrive({"ids": portion, **limits})
            yield answer
            portion = portion[portion.index(answer["next"]) + 1 :] if answer["next"] else []
            time.sleep(answer["waitMs"] / 1000)
