"""How dead letters match what an operator asks for: by code, channel and receiver, as the indexes of the store have them, and
by the shape of their data, whatever its values."""

from __future__ import annotations

from hashlib import sha1
from typing import Any, Final

import orjson

from crewel.bayeux.channel import parse

_MOST_CHARACTERS: Final = 300
_MOST_DEPTH: Final = 8
_EMPTY: Final = "nothing"


def beginning(kind: str, text: str) -> tuple[str, str]:
    """Return the value that is asked for, and what others that may be wanted begin with. Either may be empty: then there is no
    one value, or all may be wanted."""
    if not text:
        return "", ""
    if kind == "channel":
        channel = parse(text)
        name = channel.name if channel is not None else text
        return ("", name.rstrip("*")) if channel is not None and channel.is_wildcard else (name, name)
    return text, text + ("." if kind == "code" else "/")


def fits(kind: str, text: str, value: str) -> bool:
    """Whether a code, a receiver or a channel is what `text` asks for."""
    if kind == "channel":
        channel, asked = parse(value), parse(text)
        return channel is not None and asked is not None and asked.name in channel.patterns
    return value == text or value.startswith(beginning(kind, text)[1])


def shape_of(body: bytes) -> str:
    """The shape of the data in a stored body: `{order: number, lines: [{sku: text}]}`, with the fields in their order by name.
    A list has the shapes that occur among its first items."""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _EMPTY
    data = message.get("data") if isinstance(message, dict) else None
    return _shape(data, 0)[:_MOST_CHARACTERS]


def _shape(value: Any, depth: int) -> str:
    match value:
        case None:
            return _EMPTY
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


def likeness_of(shape: str) -> str:
    """A short name of a shape, for filters."""
    return sha1(shape.encode(), usedforsecurity=False).hexdigest()[:12]
