"""What a REST resource is made of: a row that says method, path, fields and answers, and what its handler is called with.

The application's routes and the OpenAPI document are both made of these rows. Handlers are called with fields that were
checked, and return what JSON can say, or a response of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from crewel.admin.administration import Administration
from crewel.errors import IllegalArgument, Refused
from crewel.qos.fields import Check, flag, read_fields, text, whole
from crewel.transports.connection import Connection

API: Final = "/admin/api"
_MAX_TEXT: Final = 1024


class NotThere(Refused):
    """What a path names is not there: 404."""

    def __init__(self, message: str) -> None:
        super().__init__("404::user.illegalArgument", "user.illegalArgument", message)


class Field(NamedTuple):
    """One field of a query or of a body: what is looked at, what it must be, and what OpenAPI says of it."""

    name: str
    check: Check
    schema: Mapping[str, Any]
    meaning: str


@dataclass(slots=True)
class Ask:
    """One request: who asks, and what for."""

    admin: Administration
    who: str
    request: web.Request
    path: Mapping[str, str]
    fields: dict[str, Any]
    """Those of the query, or of the body, that were given."""

    def is_given_up(self) -> bool:
        """Whether long work had better end: nobody waits for the answer any more, as far as the connection tells, or the
        server is going down."""
        connection = self.request.protocol
        is_gone = self.request.transport is None or (isinstance(connection, Connection) and connection.is_half_closed)
        return is_gone or self.admin.broker.is_draining


Handler = Callable[[Ask], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One resource under one method."""

    method: str
    path: str
    """Below `API`; `{name}` is a variable."""
    summary: str
    handler: Handler
    answer: str
    """What the body of a 200 holds, in one line."""
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] = ()
    is_public: bool = False
    """Whether it needs no token. What operators see or do is never public."""
    media_type: str = "application/json"
    refusals: Mapping[int, str] = field(default_factory=dict)
    """What it answers besides, by status."""


def read(route: Route, query: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The fields of a request, checked. Raises IllegalArgument, which names the field."""
    given = read_fields(dict(query), {each.name: each.check for each in route.query}, "query")
    if not route.body:
        if body.strip():
            raise IllegalArgument("body", "must be empty")
        return given
    return given | read_fields(_object(body), {each.name: each.check for each in route.body}, "body")


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise IllegalArgument("body", "must be a JSON object in UTF-8") from None
    if not isinstance(value, dict):
        raise IllegalArgument("body", "must be a JSON object")
    return value


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
