"""How results and errors are printed for people: a name and a value a line, of long lists the first few, and of all that Spark
says in an error the line that one of our workers raised."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final

_MOST: Final = 20
_WIDE: Final = 14
_OURS: Final = re.compile(r"^(?:crewel|redis)\.[\w.]+: (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE:.*")
_BRIDGE: Final = re.compile(r"\AAn error occurred while calling [^\n]*\n: (?:[\w.$]+: )?")
"""What the bridge to Java puts before the words of an exception."""

_LONGEST: Final = 500
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]")
"""How a text begins that spreadsheets run as a formula: OWASP's list on CSV injection, full-width forms included."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a result; what is empty has none."""
    for name, value in values.items():
        label = name.replace("_", " ")
        for shown in _shown(value):
            yield f"{label:{_WIDE}} {shown}"
            label = ""


def _shown(value: Any) -> list[str]:
    if value is None or value in ((), [], {}):
        return []
    if isinstance(value, Mapping):
        value = [f"{name} {plain(each)}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        shown = [plain(each) for each in value[:_MOST]]
        return [*shown, f"and {len(value) - _MOST:,} more"] if len(value) > _MOST else shown
    return [plain(value)]


def plain(value: Any) -> str:
    """Return a value as text."""
    match value:
        case Mapping():
            return "  ".join(plain(each) for each in value.values() if each is not None)
        case list() | tuple():
            return "  ".join(map(plain, value))
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)


def as_json(value: Any) -> Any:
    """Return a value as JSON has it: structs become objects, and binary becomes Base64.

    What JSON has no form of becomes a text: moments, dates, decimals with all their digits, and NaN. Keys of a map that are no
    texts become their JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case bytes() | bytearray():
            return b64encode(value).decode()
        case Mapping():
            return {_key(key): as_json(each) for key, each in value.items()}
        case list() | tuple():
            names = getattr(value, "__fields__", None)  # of a Row, which is known without Spark too
            return list(map(as_json, value)) if names is None else dict(zip(names, map(as_json, value), strict=True))
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    return str(value)


def _key(key: Any) -> str:
    shown = as_json(key)
    return shown if isinstance(shown, str) else json.dumps(shown)


def as_cell(value: Any) -> Any:
    """Return a value as a cell of a table or of CSV: as it is, but JSON if it has parts, and binary in Base64."""
    if isinstance(value, bytes | bytearray):
        return as_json(value)
    return json.dumps(as_json(value), ensure_ascii=False) if isinstance(value, Mapping | list | tuple) else value


def as_text_cell(value: Any) -> Any:
    """Return a value as a cell of CSV that no spreadsheet runs: with an apostrophe before what would be a formula. Numbers stay
    numbers, and nothing stays nothing."""
    if value is None or isinstance(value, int | float | Decimal):
        return value
    text = str(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def in_one_line(error: BaseException) -> str:
    """Return the words of an error for people."""
    text = _BRIDGE.sub("", str(error))
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])[:_LONGEST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (_CLASS.sub("", lines[0]) if lines else type(error).__name__)[:_LONGEST]
