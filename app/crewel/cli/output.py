"""How commands print: JSON lines for programs, tables and a progress bar for people."""

import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from crewel.errors import CrewelError
from crewel.standard_output import console

Show = Callable[[int], None]
_PIPED_COLUMNS = 200  # wide enough for each row to stay on one line
_PARTS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[,:]')
"""What is looked at in JSON to put spaces between its parts: texts, and what separates parts outside of texts."""


def wants_json(asked: bool | None) -> bool:
    """Whether to print JSON: as asked, else where there is no terminal."""
    return not sys.stdout.isatty() if asked is None else asked


def print_json(value: Any) -> None:
    """Print one value in one line."""
    from crewel.bayeux.codec import encode
    from crewel.logs import escaped_json

    text = encode(value).decode()
    print(escaped_json(text) if sys.stdout.isatty() else text, flush=True)


def print_answer(answer: Mapping[str, Any], text: str, as_json: bool | None) -> None:
    """Print an answer of the server, for people as this text."""
    if wants_json(as_json):
        print_json(answer)
    else:
        from crewel.logs import escaped

        print(escaped(text, is_one_line=False))


def print_fields(answer: Mapping[str, Any], name: str, as_json: bool | None) -> None:
    """Print all fields of an answer, for people as a table headed by the field `name`."""
    if wants_json(as_json):
        print_json(answer)
    else:
        print_table((answer[name], ""), list(answer.items()))


async def print_entries(
    entries: AsyncIterator[Mapping[str, Any]] | Iterable[Mapping[str, Any]],
    headings: Sequence[str],
    row: Callable[[Mapping[str, Any]], Sequence[Any]],
    as_json: bool | None,
) -> int:
    """Print the entries of a list as they come, for people as a table of their rows. Returns how many rows it has."""
    rows = []
    async for entry in _in_turn(entries):
        if wants_json(as_json):
            print_json(entry)
        else:
            rows.append(row(entry))
    if not wants_json(as_json):
        print_table(headings, rows)
    return len(rows)


async def _in_turn(
    entries: AsyncIterator[Mapping[str, Any]] | Iterable[Mapping[str, Any]],
) -> AsyncIterator[Mapping[str, Any]]:
    if isinstance(entries, Iterable):
        for entry in entries:
            yield entry
    else:
        async for entry in entries:
            yield entry


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], piped_columns: int = _PIPED_COLUMNS) -> None:
    """Print a table for people. Cells are values, or `rich` texts that have a style. `piped_columns`: the width where there is
    no terminal."""
    from rich.table import Table
    from rich.text import Text

    printer = console()
    if not printer.is_terminal:
        printer.width = piped_columns
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(readable(cell)) for cell in row))
    printer.print(table)


def readable(value: Any) -> str:
    """The value for people: texts as they are, unless they could steer a terminal, and all else as JSON with spaces, in which
    numbers keep their digits."""
    from crewel.bayeux.codec import encode
    from crewel.logs import escaped_json

    if isinstance(value, str):
        if value.isprintable():
            return value
        import json

        return escaped_json(json.dumps(value, ensure_ascii=False))  # a name of a file may be no valid Unicode
    return escaped_json(_PARTS.sub(_spaced, encode(value).decode()))


def _spaced(part: re.Match[str]) -> str:
    return part[0] if part[0][0] == '"' else f"{part[0]} "


@contextmanager
def file_errors(file: Path) -> Iterator[None]:
    """Turn what the machine refuses to do with this file into one line."""
    try:
        yield
    except OSError as error:
        raise CrewelError(f"{error.filename or file}: {error.strerror or error}") from None


@contextmanager
def progress(what: str, unit: str, total: int | None = None) -> Iterator[Show]:
    """Show how far it is; the value is to be called with the amount done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    printer = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.completed:,}} {unit}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=printer, transient=True, disable=not printer.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
