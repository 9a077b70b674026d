"""`crewel doctor`: whether everything is as the server needs it."""

from typing import TYPE_CHECKING, Annotated

import typer

from crewel.cli import output
from crewel.cli.bayeux_client import Config, Overrides, finished
from crewel.standard_output import closed_pipe_ends

if TYPE_CHECKING:
    from crewel.check_result import CheckResult
    from crewel.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red", "unknown": "yellow"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Repair damaged files of the server's own store; asks before it cuts anything."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do not ask.")] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Check the store and this machine. Exits with 1 if something is wrong; a warning does not count. The server may run;
    if not, the embedded store runs during the check."""
    from crewel.settings import load

    if repair:
        from crewel.cli.diagnosis import repair_files

        repair_files(load(config, overrides or ()).storage, is_sure=yes)
        return
    results = finished(_collect(load(config, overrides or ())))
    status = int(any(result.state == "wrong" for result in results))
    with closed_pipe_ends(status):
        if as_json:
            for result in results:
                output.print_json(result)
        else:
            _print_table(results)
    raise typer.Exit(status)


async def _collect(settings: "Settings") -> "list[CheckResult]":
    from crewel.cli.diagnosis import examine

    return [result async for result in examine(settings)]


def _print_table(results: "list[CheckResult]") -> None:
    from rich.text import Text

    rows = [(each.check, Text(each.state, style=_STYLES[each.state]), each.found, each.advice) for each in results]
    output.print_table(("check", "state", "found", "advice"), rows)
