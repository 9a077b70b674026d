"""The commands of the pipeline. `crewel pipeline` runs them, and so does `python -m crewel.pipeline`, which spark-submit takes.

Jobs are imported when they are run: without Spark the commands are there still, and say what is missing. Exit status: 0, 1
with one line on stderr, 2 for wrong usage.
"""

import dataclasses
import json
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from crewel.errors import CrewelError
from crewel.pipeline.failures import in_one_line

Words = Callable[[str], None]
FindToken = Callable[[str], str | None]

app = typer.Typer(
    name="pipeline",
    help="Ask what happened: tables and reports that Spark makes of the facts and events of the server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_AGO = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_INTERRUPTED = 128 + signal.SIGINT
_MOST_SHOWN = 20

# Options that several commands have


def _moment(text: str) -> datetime:
    """A point in time; one without a zone is UTC."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r}: such as 2026-11-20, 2026-11-20T15:30, or 2h ago, written 2h") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise typer.BadParameter(f"{text!r}: such as spark.sql.shuffle.partitions=64")
    return name, value


Directory = Annotated[
    str,
    typer.Option(
        "--dir",
        envvar="CREWEL_PIPELINE__DIR",
        metavar="DIRECTORY",
        help="Where the tables are: a directory here, or an address that a whole cluster reaches, hdfs://...",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        envvar="CREWEL_PIPELINE__MASTER",
        help="Where Spark runs: spark://host:7077, local[4]. Not given: as spark-submit says, or on all cores here.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--spark", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Settings file of the server.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object in one line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not tell how far it is.")]
Since = Annotated[
    datetime | None,
    typer.Option("--from", metavar="TIME", parser=_moment, help="From when on: 2026-11-20T15:30 (UTC), or 2h ago."),
]
Until = Annotated[datetime | None, typer.Option("--to", metavar="TIME", parser=_moment, help="Until when.")]

_DIRECTORY = "./data/pipeline"
_CONFIG = Path("crewel.toml")


@dataclasses.dataclass(frozen=True, slots=True)
class _Common:
    """What each command was told."""

    directory: str
    master: str | None
    spark: list[str] | None
    config: Path
    is_json: bool = False
    is_quiet: bool = False

    @property
    def settings(self) -> dict[str, str]:
        return {"spark.log.level": "ERROR", **dict(map(_setting, self.spark or ()))}

    @property
    def address(self) -> Any:
        from crewel.pipeline.connection import Address

        return Address.found(config=self.config)


# Commands


@app.command()
def live(
    directory: Directory = _DIRECTORY,
    trigger: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often new entries are taken.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Take what there is, and end.")] = False,
    held_for: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="After how long a holdback is worth an alert; 0: never.")
    ] = 600.0,
    fail_on_loss: Annotated[
        bool,
        typer.Option("--fail-on-loss", help="End when entries were trimmed unread, instead of telling of the gap."),
    ] = False,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Follow the streams until it is stopped, with SIGINT or SIGTERM: tables, minutes, alerts. It may be killed at any moment
    and goes on where it was."""
    common = _Common(directory, master, spark, config, as_json, quiet)
    _show(_job("live", common, trigger_s=trigger, once=once, hold_limit_s=held_for, fails_on_loss=fail_on_loss), common)


@app.command()
def backfill(
    since: Since = None,
    until: Until = None,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the tables of what the streams hold, all of it or a part, without the resident job."""
    common = _Common(directory, master, spark, config, as_json, quiet)
    _show(_job("backfill", common, since=since, until=until), common)


@app.command()
def report(
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="A page that needs nothing else.")] = None,
    data: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as JSON.")] = None,
    since: Since = None,
    until: Until = None,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What died and why, which messages are poison, which receivers are sick, how long settling takes, how much there is."""
    common = _Common(directory, master, spark, config, as_json, quiet)
    _show(_job("report", common, html=html, json=data, since=since, until=until), common)


@app.command()
def audit(
    since: Since = None,
    until: Until = None,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove that each message that was owed has ended or waits, once. Ends with 1 if something does not add up."""
    common = _Common(directory, master, spark, config, as_json, quiet)
    result = _job("audit", common, since=since, until=until)
    _show(result, common)
    if not result.is_clean:
        raise typer.Exit(1)


@app.command()
def redrive(
    context: typer.Context,
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION", help="SQL: \"error_code = 'user.update.error' and channel like '/orders/%'\"."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.001, max=1_000_000, help="Letters a second at most.")] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of this work. Again with the same one, it ends what it began and adds none."
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="CREWEL_TOKEN", help="Who this is, as in `crewel dead-letters`.")
    ] = None,
    url: Annotated[
        str, typer.Option(envvar="CREWEL_URL", help="The server's address.")
    ] = "http://127.0.0.1:8080/cometd",
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send dead letters again that a condition in SQL chooses, each to the receiver that it was for."""
    common = _Common(directory, master, spark, config, as_json, quiet)
    find: FindToken = context.obj or (lambda url: None)
    name = job or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    result = _job(
        "redrive", common, where=where, job=name, dry_run=dry_run, rate=rate, url=url, token=token or find(url)
    )
    _show(result, common)
    if result.stayed:
        first = result.stayed[0]
        raise CrewelError(f"{len(result.stayed):,} stayed; the first, {first.letter}: {first.message}")


@app.command()
def compact(
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put the many small files of the resident job together. It may run meanwhile."""
    common = _Common(directory, master, spark, config, as_json, quiet)
    _show(_job("compact", common), common)


@app.command()
def doctor(
    directory: Directory = _DIRECTORY,
    try_spark: Annotated[
        bool, typer.Option("--try-spark/--no-spark", help="Start a session, which takes a while.")
    ] = True,
    master: Master = None,
    config: Config = _CONFIG,
    as_json: Json = False,
) -> None:
    """Look whether everything is there that the pipeline needs. Ends with 1 if something is wrong."""
    from crewel.pipeline.jobs.doctor import Options, examine

    common = _Common(directory, master, None, config, as_json)
    worst = 0
    for finding in examine(Options(common.address, directory, master, try_spark)):
        worst = max(worst, finding.state == "wrong")
        if as_json:
            print(json.dumps(dataclasses.asdict(finding)), flush=True)
        else:
            advice = f"  ({finding.advice})" if finding.advice else ""
            print(f"{finding.check:10} {finding.state:8} {finding.found}{advice}", flush=True)
    if worst:
        raise typer.Exit(1)


# Running


def run(arguments: Sequence[str] | None = None, find_token: FindToken | None = None) -> None:
    """Run a command, and end as a command does. `find_token` knows the token of a server on this machine."""
    app(args=None if arguments is None else list(arguments), prog_name="crewel pipeline", obj=find_token)


def _job(name: str, common: _Common, **options: Any) -> Any:
    """Run one job on a session of its own, and return its result. Wrong usage ends the command with 2."""
    from crewel.pipeline.session import ready, session

    ready()
    settings, address = common.settings, common.address
    module = import_module(f"crewel.pipeline.jobs.{name}")
    tell = _teller(common)
    with _as_commands_end():
        tell("starting Spark")
        spark = session(address, common.master, settings)
        try:
            return module.run(spark, module.Options(address=address, directory=common.directory, **options), tell)
        except CrewelError as error:
            if type(error).__name__ == "BadCondition":
                raise typer.BadParameter(str(error)) from None
            raise
        finally:
            with suppress(Exception):  # of a Java that is gone already
                spark.stop()


@contextmanager
def _as_commands_end() -> Iterator[None]:
    """Turn what Spark raises into one line, and a signal into the status that a shell expects."""
    from pyspark.errors import PySparkException

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except PySparkException as error:
        if os.environ.get("CREWEL_PIPELINE__DEBUG"):
            raise
        raise CrewelError(f"Spark: {in_one_line(error)}") from None


def _teller(common: _Common) -> Words:
    """What shows how far a job is: lines on stderr, with the seconds since the start."""
    if common.is_quiet:
        return lambda words: None
    start = time.monotonic()

    def tell(words: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {words}", file=sys.stderr, flush=True)

    return tell


def _show(result: Any, common: _Common) -> None:
    values = dataclasses.asdict(result)
    if common.is_json:
        print(json.dumps(values, default=str), flush=True)
        return
    for name, value in values.items():
        for line in _lines(value):
            print(f"{name.replace('_', ' '):14} {line}")


def _lines(value: Any) -> list[str]:
    """A value for people; a list in lines of its own, not too many of them."""
    if value is None or value in ((), [], {}):
        return []
    if isinstance(value, Mapping):
        value = [f"{name} {_plain(each)}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        shown = [_plain(each) for each in value[:_MOST_SHOWN]]
        return [*shown, f"and {len(value) - _MOST_SHOWN} more"] if len(value) > _MOST_SHOWN else shown
    return [_plain(value)]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "  ".join(str(each) for each in value.values())
    if isinstance(value, list | tuple):
        return "  ".join(_plain(each) for each in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
