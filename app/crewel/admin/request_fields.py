"""The fields of requests: each has its check, its JSON schema and its meaning, from which OpenAPI and the documentation follow.

The checks that several resources share are here too. The command line reads this module, which knows no part of the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.qos.fields import Check, flag, text, whole

MAX_PAGE: Final = 1000
"""Most entries in a page of a list."""
PAGE: Final = 100
"""Entries in a page whose size the request does not say."""
_MAX_TEXT: Final = 1024
SEALED: Final = "~"
"""What cursors begin with whose place is sealed."""
_PLACE: Final = re.compile(r"\d{1,15}-\d{1,15}", re.ASCII)


class Field(NamedTuple):
    """One field of a query or of a body: its name, its check, its JSON schema, and its meaning."""

    name: str
    check: Check
    schema: Mapping[str, Any]
    meaning: str


def text_field(name: str, meaning: str, check: Check | None = None) -> Field:
    """A text, in a query or a body."""
    return Field(name, check or text(_MAX_TEXT), {"type": "string"}, meaning)


def flag_field(name: str, meaning: str) -> Field:
    """A boolean in a body."""
    return Field(name, flag, {"type": "boolean", "default": False}, meaning)


def flag_text(name: str, meaning: str) -> Field:
    """A boolean in a query."""

    def check(value: object) -> bool:
        if value not in ("true", "false"):
            raise ValueError("true or false")
        return value == "true"

    return Field(name, check, {"type": "boolean"}, meaning)


def number_text(name: str, meaning: str, low: int, high: int, default: int) -> Field:
    """A whole number in a query."""
    in_bounds = whole(low, high)

    def check(value: object) -> int:
        is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(high))
        number: int = in_bounds(int(str(value)) if is_number else None)
        return number

    return Field(name, check, {"type": "integer", "minimum": low, "maximum": high, "default": default}, meaning)


def page_fields(things: str) -> tuple[Field, Field]:
    """The fields of a query for a page of a list."""
    return (
        text_field("after", "`next` of the previous page."),
        number_text("count", f"At most this many {things}.", 1, MAX_PAGE, PAGE),
    )


def cursor(check: Check) -> Check:
    """The check of a cursor: a place that this check accepts, or one that is sealed."""

    def read(value: object) -> object:
        is_sealed = isinstance(value, str) and value.startswith(SEALED) and len(value) <= _MAX_TEXT
        return value if is_sealed else check(value)

    return read


def pattern(value: object) -> str:
    """The check of a channel or a pattern. Raises ValueError, with what was expected."""
    channel = parse(value) if isinstance(value, str) else None
    if channel is None:
        raise ValueError("a channel or a pattern such as /chat/**")
    return channel.name


def place(value: object) -> str:
    """The check of a cursor that is the id of an entry. Raises ValueError, with what was expected."""
    if not isinstance(value, str) or not _PLACE.fullmatch(value):
        raise ValueError("the `next` of the previous page")
    return value
