"""How dead letters match what an operator asks for: by code, channel and receiver, as the indexes of the store have them, and
by what their data holds."""

from __future__ import annotations

import re
from hashlib import sha1
from typing import Any, Final

import orjson

from crewel.bayeux.channel import parse

_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_MOST_REASON: Final = 200


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


def likeness_of(shape: str) -> str:
    """A short name of a shape, for filters."""
    return sha1(shape.encode(), usedforsecurity=False).hexdigest()[:12]


def shape_of_reason(reason: str) -> str:
    """The reason with `#` in place of its numbers: `order # is cold` of `order 17 is cold`. Such a shape has the shape that it
    is."""
    return _NUMBER.sub("#", reason)[:_MOST_REASON]


def parse_field(text: str) -> tuple[tuple[str, ...], str]:
    """Return the path and the value of `order=100` or `lines.sku=A7`. Raises ValueError for any other text."""
    path, equals, value = text.partition("=")
    names = tuple(name.strip() for name in path.split("."))
    if not equals or not all(names):
        raise ValueError("a field of the data and its value: order=100 or lines.sku=A7")
    return names, value.strip()


def has_field(body: bytes, text: str) -> bool:
    """Whether the data in a stored body has this field with exactly this value, as a text, a number, true, false or null. On
    the way to the field, each item of a list counts."""
    path, value = parse_field(text)
    last = path[-1]
    if last.isascii() and last.encode() not in body:  # most bodies need not be parsed
        return False
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(message, dict) and _has(message.get("data"), path, value)


def _has(data: Any, path: tuple[str, ...], value: str) -> bool:
    if isinstance(data, list):
        return any(_has(item, path, value) for item in data)
    if not path:
        return _is(data, value)
    if not isinstance(data, dict):
        return False
    # A name may have dots itself.
    ends = (end for end in range(1, len(path) + 1) if ".".join(path[:end]) in data)
    return any(_has(data[".".join(path[:end])], path[end:], value) for end in ends)


def _is(found: Any, value: str) -> bool:
    match found:
        case str():
            return found == value
        case bool() | None:
            return orjson.dumps(found).decode() == value
        case int() | float():
            return _number(value) == found
        case _:
            return False


def _number(text: str) -> int | float | None:
    """The number that the text is in JSON; None if it is none."""
    try:
        number = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None
