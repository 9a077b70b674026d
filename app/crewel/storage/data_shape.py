"""The shape of data: which fields it has, and of which types, whatever their values. Dead letters are grouped by it, and events
and the tables of the pipeline have it."""

from __future__ import annotations

from typing import Any, Final

import orjson

EMPTY: Final = "nothing"
"""The shape of a message without data."""

_MOST_CHARACTERS: Final = 300
_MOST_DEPTH: Final = 8


def shape_of(body: bytes) -> str:
    """The shape of the data in a message, given as JSON: `{order: number, lines: [{sku: text}]}`, with the fields in their
    order by name. A list has the shapes that occur among its first items."""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return EMPTY
    data = message.get("data") if isinstance(message, dict) else None
    return _shape(data, 0)[:_MOST_CHARACTERS]


def _shape(value: Any, depth: int) -> str:
    match value:
        case None:
            return EMPTY
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case dict() | list() if depth >= _MOST_DEPTH:
            return "…"
        case dict():
            fields = (f"{name}: {_shape(value[name], depth + 1)}" for name in sorted(value))
            return "{" + ", ".join(fields) + "}"
        case _:
            return "[" + " | ".join(dict.fromkeys(_shape(item, depth + 1) for item in value[:20])) + "]"
