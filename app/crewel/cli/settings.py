"""`crewel settings`: every setting with its value and where that comes from, here or in a running server."""

import sys
from typing import Annotated, Any

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin, command
from crewel.cli.bayeux_client import AsJson, Config, Overrides
from crewel.errors import CrewelError

app = typer.Typer(name="settings", help="Show settings, and change those of a running server.")


@app.callback(invoke_without_command=True)
def settings(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Print the settings that `serve` would use here."""
    from crewel.settings import load
    from crewel.settings.table import rows

    if context.invoked_subcommand is None:
        _print(rows(load(config, overrides or ())), as_json=as_json)


@command(app)
async def get(
    admin: Admin,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these settings, such as bayeux.timeout_ms.")
    ] = None,
    as_json: AsJson = None,
) -> None:
    """Print the settings of a running server: of the node or worker that answers."""
    from crewel.settings.sources import unknown

    found = {row["name"]: row for row in (await admin.call("GET", "/settings"))["settings"]}
    for name in names or ():
        if name not in found:
            raise CrewelError(f"{name}: {unknown(name, found)}")
    _print([row for name, row in found.items() if not names or name in names], as_json=output.wants_json(as_json))


@command(app, "set")
async def change(
    admin: Admin,
    values: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="Settings with their values, such as bayeux.timeout_ms=20000."),
    ],
    as_json: AsJson = None,
) -> None:
    """Change settings of a running server, all or none. They apply to the node or worker that answers, until it stops."""
    asked = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected NAME=VALUE, not {value}")
        asked[name.strip()] = text
    answer = await admin.call("PATCH", "/settings", body=asked)
    _print(answer["settings"], as_json=output.wants_json(as_json))
    if others := answer.get("unchanged"):  # one that is alone does not tell it, nor do servers of before
        rest = "another one keeps its values" if others == 1 else f"{others} others keep their values"
        print(f"crewel: only the node or worker that answered has changed, {answer['node']}; {rest}", file=sys.stderr)


def _print(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for row in found:
            output.print_json(row)
        return
    from rich.text import Text

    from crewel.settings.table import as_text

    rows = []
    for row in found:
        can_change = "can change" if row["live"] else ""
        cells = row["name"], as_text(row["value"]), row["unit"], as_text(row["default"]), row["source"], can_change
        rows.append([Text(cell, style="" if row["source"] == "default" else "bold") for cell in cells])
    output.print_table(("setting", "value", "unit", "default", "source", "while running"), rows)
