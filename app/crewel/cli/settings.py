"""`crewel settings`: every setting with its value and where that comes from."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from crewel.cli.options import Config, Overrides

if TYPE_CHECKING:
    from rich.table import Table

    from crewel.settings import Settings

_PIPED_COLUMNS = 200  # wide enough for each row to stay on one line


def register(app: typer.Typer) -> None:
    """Add `settings` to the command line."""
    app.command(name="settings")(settings)


def settings(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Print the settings as `serve` would see them here."""
    from crewel.settings import load

    loaded = load(config, overrides or ())
    if as_json:
        _print_json(loaded)
    else:
        _print_table(loaded)


def _rows(loaded: "Settings") -> list[dict[str, Any]]:
    from crewel.settings.table import declared, declared_as, rules_of, shown

    values = {name: shown(loaded, name) for name in declared()} | rules_of(loaded)
    return [
        {
            "name": name,
            "value": value,
            "unit": setting.unit,
            "default": setting.default,
            "source": loaded.source(name),
            "live": setting.live,
            "why": setting.why,
        }
        for name, value in values.items()
        if (setting := declared_as(name)) is not None
    ]


def _print_json(loaded: "Settings") -> None:
    import orjson

    for row in _rows(loaded):
        print(orjson.dumps(row).decode())


def _print_table(loaded: "Settings") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_COLUMNS
    console.print(_table(loaded))


def _table(loaded: "Settings") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from crewel.settings.table import as_text

    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "unit", "default", "source", "while running"):
        table.add_column(heading, overflow="fold")
    for row in _rows(loaded):
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
