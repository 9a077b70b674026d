"""The fields of requests: each has its check, its JSON schema and its meaning, from which OpenAPI and the documentation follow.

The checks that several resources share are here too. The command line reads this module, which knows no part of the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.qos.fields import Check, flag, list_of, one_of, text, text_that, whole

MAX_PAGE: Final = 1000
"""Most entries in a page of a list."""
PAGE: Final = 100
"""Entries in a page whose size the request does not say."""
_MAX_TEXT: Final = 1024
SEALED: Final = "~"
"""What cursors begin with whose place is sealed."""
NEXT: Final = "the `next` of the previous page"
"""What a cursor has to be."""
place: Final = text_that(re.compile(r"\d{1,15}-\d{1,15}", re.ASCII).fullmatch, NEXT)
"""The check of a cursor that is the id of an entry."""


class Field(NamedTuple):
    """One field of a query or of a body: its name, its check, its JSON schema, and its meaning."""

    name: str
    check: Check
    schema: Mapping[str, Any]
    meaning: str
    required: str = ""
    """What it has to be, for the error if it is left out; empty: it may be left out."""


def text_field(name: str, meaning: str, check: Check | None = None, required: str = "") -> Field:
    """A text, in a query or a body."""
    return Field(name, check or text(_MAX_TEXT), {"type": "string"}, meaning, required)


def choice_field(name: str, meaning: str, words: Iterable[str], required: str = "") -> Field:
    """One of these words, in a query or a body; the meaning lists them."""
    known = tuple(words)
    schema = {"type": "string", "enum": list(known)}
    return Field(name, one_of(*known), schema, f"{meaning}: {', '.join(known)}.", required)


def list_field(name: str, meaning: str, check_item: Check) -> Field:
    """A list of texts in a body, each of which this check accepts."""
    schema = {"type": "array", "items": {"type": "string"}, "maxItems": MAX_PAGE}
    return Field(name, list_of(check_item, MAX_PAGE), schema, meaning)


def json_field(name: str, meaning: str, required: str = "") -> Field:
    """Any JSON in a body."""
    return Field(name, lambda value: value, {}, meaning, required)


def flag_field(name: str, meaning: str) -> Field:
    """A boolean in a body."""
    return Field(name, flag, {"type": "boolean", "default": False}, meaning)


def number_field(name: str, meaning: str, low: int, high: int, default: int) -> Field:
    """A whole number in a body."""
    return Field(name, whole(low, high), _number(low, high, default), meaning)


def _number(low: int, high: int, default: int) -> Mapping[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


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

    return Field(name, check, _number(low, high, default), meaning)


def count_text(meaning: str, default: int = PAGE) -> Field:
    """How many entries a query asks for."""
    return number_text("count", meaning, 1, MAX_PAGE, default)


def page_fields(things: str, check: Check | None = None) -> tuple[Field, Field]:
    """The fields of a query for a page of a list, whose cursors this check accepts."""
    return text_field("after", "`next` of the previous page.", check), count_text(f"At most this many {things}.")


def cursor(check: Check) -> Check:
    """The check of a cursor: a place that this check accepts, or one that is sealed."""

    def read(value: object) -> object:
        is_sealed = isinstance(value, str) and value.startswith(SEALED) and len(value) <= _MAX_TEXT
        return value if is_sealed else check(value)

    return read


WITH_REASON: Final = text_field("reason", "Reason, for the audit.")


def pattern(value: object) -> str:
    """The check of a channel or a pattern. Raises ValueError, with what was expected."""
    channel = parse(value) if isinstance(value, str) else None
    if channel is None:
        raise ValueError("a channel or a pattern such as /chat/**")
    return channel.name
