"""The commands of the pipeline. `crewel pipeline` runs them, and so does `python -m crewel.pipeline`, which spark-submit takes.

Jobs are imported when they are run: without Spark the commands are there still, and say what is missing. Exit status: 0, 1
with one line on stderr, 2 for wrong usage.
"""

import dataclasses
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from crewel.errors import CrewelError
from crewel.pipeline.admin_client import DEFAULT_URL, AdminClient, origin
from crewel.pipeline.job_runner import Common, run_job, show, show_csv, show_rows
from crewel.standard_output import Commands, closed_pipe_ends

FindToken = Callable[[str, str | None], str | None]

app = typer.Typer(
    name="pipeline",
    cls=Commands,
    help="Analyse the facts and events of the server with Spark: tables and reports.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_AGO = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_CONFIG = Path("crewel.toml")
_CHECK_S = 5.0
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

# Options that several commands have


def _moment(text: str) -> datetime:
    """A point in time; one without a zone is UTC."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r}: such as 2026-11-20, 2026-11-20T15:30, or 2h ago, written 2h") from None


def _file(text: str) -> Path:
    """A file to write, looked at before a minute of work is done for it."""
    path = Path(text)
    if _looked_at(path, Path.is_dir):
        raise typer.BadParameter(f"{text}: this is a directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{text}: nothing can be written to {path.parent}")
    return path


def _settings_file(text: str) -> Path:
    path = Path(text)
    if path != _CONFIG and not _looked_at(path, Path.is_file):
        raise typer.BadParameter(f"{text}: there is no such file")
    return path


def _looked_at(path: Path, look: Callable[[Path], bool]) -> bool:
    try:
        return look(path)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None


Directory = Annotated[
    str,
    typer.Option(
        "--dir",
        envvar="CREWEL_PIPELINE__DIR",
        metavar="DIRECTORY",
        help="Where the tables are: a local directory, or an address that the whole cluster can reach, s3a://...",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        envvar="CREWEL_PIPELINE__MASTER",
        help="Where Spark runs: spark://host:7077, local[4]. Default: as spark-submit sets it, or all local cores.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--spark", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", parser=_settings_file, help="Settings file of the server.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object in one line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not report progress.")]
Since = Annotated[
    datetime | None,
    typer.Option(
        "--from", metavar="TIME", parser=_moment, help="Start of the period: 2026-11-20T15:30 (UTC), or 2h ago."
    ),
]
Until = Annotated[datetime | None, typer.Option("--to", metavar="TIME", parser=_moment, help="End of the period.")]

KeepDays = Annotated[
    int,
    typer.Option(
        min=0,
        max=100_000,
        metavar="DAYS",
        envvar="CREWEL_PIPELINE__KEEP_DAYS",
        help="Remove older days of bronze and silver; 0: keep all. Gold, subscriptions, holds and losses stay.",
    ),
]

_DIRECTORY = "./data/pipeline"


# Commands


@app.command()
def live(
    directory: Directory = _DIRECTORY,
    trigger: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to read new entries.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Stop when up to date.")] = False,
    held_for: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Raise an alert after this time on hold; 0: never.")
    ] = 600.0,
    keep_days: KeepDays = 0,
    fail_on_loss: Annotated[
        bool,
        typer.Option("--fail-on-loss", help="Stop when entries were trimmed unread, instead of recording a gap."),
    ] = False,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Follow the streams: tables, minutes, alerts.

    Ends with SIGINT or SIGTERM. You can kill it at any moment; the next start continues where it was.
    """
    common = Common(directory, master, spark, config, as_json, quiet)
    options = {"hold_limit_s": held_for, "keep_days": keep_days, "fails_on_loss": fail_on_loss}
    show(run_job("live", common, trigger_s=trigger, once=once, **options), common)


@app.command()
def backfill(
    repair: Annotated[
        bool, typer.Option("--repair", help="First write tables again that another program has damaged.")
    ] = False,
    since: Since = None,
    until: Until = None,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make tables from the streams.

    From all entries or a period, without the resident job.
    """
    common = Common(directory, master, spark, config, as_json, quiet)
    show(run_job("backfill", common, repair=repair, **_span(since, until)), common)


@app.command()
def report(
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=_file, help="Write a self-contained HTML page.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="FILE", parser=_file, help="Write the same as JSON.")] = None,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Bring the tables up to date first, in the same session of Spark.")
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Run the audit too, or show the findings of the last one.")
    ] = True,
    url: Annotated[
        str | None,
        typer.Option(envvar="CREWEL_URL", help="The server's address: the page links to its console."),
    ] = None,
    since: Since = None,
    until: Until = None,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Report dead letters and failing receivers.

    Also poison messages, latencies and volumes; by default, of the last day.
    """
    common = Common(directory, master, spark, config, as_json, quiet)
    if url is not None:
        origin(url)
    options = {"html": html, "json": data, "backfill": backfill, "audit": audit, "url": url}
    show(run_job("report", common, **options, **_span(since, until)), common)


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
    """Prove that nothing was lost.

    Each delivery has ended or is pending, exactly once. Exits with 1 if the facts do not balance.
    """
    common = Common(directory, master, spark, config, as_json, quiet)
    result = run_job("audit", common, **_span(since, until))
    status = int(not result.is_clean)
    with closed_pipe_ends(status):
        show(result, common)
        if not common.is_json:
            print("The facts balance." if result.is_clean else "The facts do not balance; see the table `audit`.")
    raise typer.Exit(status)


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
    rate: Annotated[
        float | None, typer.Option(min=0.001, max=1_000_000, help="Maximum dead letters per second.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the job. The same name continues an earlier job and adds nothing to it."
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="CREWEL_TOKEN", help="Token of an operator, as in `crewel dead-letters`.")
    ] = None,
    url: Annotated[str, typer.Option(envvar="CREWEL_URL", help="The server's address.")] = DEFAULT_URL,
    proxy: Annotated[
        str | None,
        typer.Option(envvar="CREWEL_PROXY", metavar="URL", help="The HTTP proxy, as in `crewel dead-letters`."),
    ] = None,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Redrive the dead letters that match an SQL condition.

    Each goes to its receiver.
    """
    common = Common(directory, master, spark, config, as_json, quiet)
    origin(url)
    find: FindToken = context.obj or (lambda url, proxy: None)
    token = token or find(url, proxy)
    if not dry_run:
        AdminClient(url, token, _CHECK_S, proxy=proxy).check()
    name = job or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    result = run_job(
        "redrive", common, where=where, job=name, dry_run=dry_run, rate=rate, url=url, token=token, proxy=proxy
    )
    try:
        show(result, common)
    finally:
        if result.stayed:
            first = result.stayed[0]
            raise CrewelError(f"{len(result.stayed):,} stayed; the first, {first.letter}: {first.message}")


@app.command()
def query(
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help='"SELECT code, count(*) FROM letters GROUP BY ALL": tables by their names.'),
    ],
    limit: Annotated[int, typer.Option(min=1, metavar="ROWS", help="Print at most this many rows.")] = 1000,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print the rows as CSV. Texts that a spreadsheet would run as a formula begin with '."
        ),
    ] = False,
    is_raw: Annotated[
        bool,
        typer.Option("--raw", help="With --csv: print texts as they are, for programs; no spreadsheet should open it."),
    ] = False,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Query the tables alone, without newer entries of the store.")
    ] = False,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Query the tables with SQL.

    All functions of Spark are available. `SHOW TABLES` lists the tables, `DESCRIBE fact_ended` the columns of one.
    """
    if is_raw and not as_csv:
        raise typer.BadParameter("--raw needs --csv")
    common = Common(directory, master, spark, config, as_json, quiet)
    result = run_job("query", common, sql=sql, limit=limit, from_store=not no_store)
    if as_json:
        show(result, common)
    elif as_csv:
        show_csv(result.columns, result.rows, is_raw=is_raw)
    else:
        show_rows(result.columns, result.rows)
    if result.is_cut and not quiet:
        print(f"There are more rows than {limit:,}; --limit prints more.", file=sys.stderr)


@app.command()
def compact(
    keep: Annotated[
        int,
        typer.Option(
            min=0, max=1_000_000, metavar="HOURS", help="Keep replaced files for this time, for their readers."
        ),
    ] = 7 * 24,
    keep_days: KeepDays = 0,
    directory: Directory = _DIRECTORY,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Merge small files of the tables.

    Removes the files that they replace. The resident job may run meanwhile.
    """
    common = Common(directory, master, spark, config, as_json, quiet)
    show(run_job("compact", common, keep_hours=keep, keep_days=keep_days), common)


@app.command()
def doctor(
    directory: Directory = _DIRECTORY,
    try_spark: Annotated[
        bool, typer.Option("--try-spark/--no-spark", help="Start a session, which takes a while.")
    ] = True,
    master: Master = None,
    spark: Settings = None,
    config: Config = _CONFIG,
    as_json: Json = False,
) -> None:
    """Check that everything the pipeline needs is present.

    Exits with 1 if something is missing or wrong.
    """
    from crewel.pipeline.jobs.doctor import Options, examine

    common = Common(directory, master, spark, config, as_json)
    worst = 0
    for result in examine(Options(common.address, directory, master, try_spark, common.settings)):
        worst = max(worst, result.state == "wrong")
        if as_json:
            print(json.dumps(dataclasses.asdict(result)), flush=True)
        else:
            advice = f"  ({result.advice})" if result.advice else ""
            print(f"{result.check:10} {result.state:8} {result.found}{advice}", flush=True)
    if worst:
        raise typer.Exit(1)


# Running


def run(arguments: Sequence[str] | None = None, find_token: FindToken | None = None) -> None:
    """Run a command, and end as a command does. `find_token` knows the token of a server on this machine."""
    app(args=None if arguments is None else list(arguments), prog_name="crewel pipeline", obj=find_token)


def _span(since: datetime | None, until: datetime | None) -> dict[str, datetime | None]:
    if since is not None and since >= (until or datetime.now(UTC)):
        raise typer.BadParameter("--from has to be before --to, and before now")
    return {"since": since, "until": until}
