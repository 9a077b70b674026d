"""`crewel settings`: every setting with its value and where that comes from, here or in a running server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from crewel.cli import administering, connecting
from crewel.cli.administering import Admin
from crewel.cli.options import Config, Overrides
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from rich.table import Table

_PIPED_COLUMNS = 200  # wide enough for each row to stay on one line


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
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print the settings that a running server has."""

    async def work(admin: Admin) -> None:
        found = (await admin.get("/settings"))["settings"]
        if names:
            _require(names, {row["name"] for row in found})
            found = [row for row in found if row["name"] in names]
        _print(found, as_json=administering.wants_json(as_json))

    administering.operate(url, token, work)


@app.command(name="set")
def change(
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="bayeux.timeout_ms=20000")],
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
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
        _print(found, as_json=administering.wants_json(as_json))

    administering.operate(url, token, work)


def _require(names: list[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise CrewelError(f"{name}: unknown setting")


def _print(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for row in found:
            administering.print_json(row)
    else:
        _print_table(found)


def _print_table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_COLUMNS
    console.print(_table(found))


def _table(found: list[dict[str, Any]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from crewel.settings.table import as_text

    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "unit", "default", "source", "while running"):
        table.add_column(heading, overflow="fold")
    for row in found:
        cells = (
            row["name"],
            as_text(row["value"]),
            row["unit"],
            as_text(row["default"]),
            row["source"],
            "can change" if row["live"] else "",
        )
        style = "" if row["source"] == "default" else "bold"
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table
