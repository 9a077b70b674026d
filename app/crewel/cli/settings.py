"""`crewel settings`: every setting with its value and where that comes from, here or in a running server."""

from typing import Annotated, Any

import typer

from crewel.cli import admin_client, bayeux_client, output
from crewel.cli.admin_client import Admin
from crewel.cli.bayeux_client import Config, Overrides
from crewel.errors import CrewelError

app = typer.Typer(name="settings", help="Look at settings, and change those of a running server.")


def register(parent: typer.Typer) -> None:
    """Add `settings` to the command line."""
    parent.add_typer(app)


@app.callback(invoke_without_command=True)
def settings(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Print the settings as `serve` would see them here."""
    from crewel.settings import load
    from crewel.settings.table import rows

    if context.invoked_subcommand is not None:
        return
    found = rows(load(config, overrides or ()))
    _print(found, as_json=as_json)


@app.command(name="get")
def get(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these: bayeux.timeout_ms.")
    ] = None,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Print the settings that a running server has."""

    async def work(admin: Admin) -> None:
        found = (await admin.get("/settings"))["settings"]
        if names:
            unknown = set(names) - {row["name"] for row in found}
            if unknown:
                raise CrewelError(f"{min(unknown, key=names.index)}: unknown setting")
            found = [row for row in found if row["name"] in names]
        _print(found, as_json=output.wants_json(as_json))

    admin_client.operate(url, token, work)


@app.command(name="set")
def change(
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="bayeux.timeout_ms=20000")],
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Change settings of a running server, all or none. They hold until it ends."""
    asked = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected NAME=VALUE, not {value}")
        asked[name.strip()] = text

    async def work(admin: Admin) -> None:
        found = (await admin.patch("/settings", asked))["settings"]
        _print(found, as_json=output.wants_json(as_json))

    admin_client.operate(url, token, work)


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
