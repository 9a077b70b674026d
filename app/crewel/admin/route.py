"""What one REST resource is: a row that says method, path, fields and answers, and what its handler is called with.

The application's routes, the OpenAPI document and the table of the documentation are made of these rows. Handlers are called
with fields that were checked, and return what JSON can say, or a response of their own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Final

import orjson
from aiohttp import web

from crewel.admin.administration import Administration
from crewel.admin.audit import Action
from crewel.admin.call import Call
from crewel.admin.example import SAMPLES, VARIABLES, Example
from crewel.admin.merges import Merge, Pages, Parts
from crewel.admin.operation import OPERATIONS, About, Level, Operation
from crewel.admin.places import open_place, seal_place
from crewel.admin.request_fields import Field
from crewel.admin.resource_path import IN_QUERY, VARIABLE
from crewel.admin.role_scopes import NotCovered, refused, role_on_subject
from crewel.admin.scope_coverage import covers_channel, covers_session
from crewel.bayeux.numbers import parse
from crewel.broker.session import Session
from crewel.errors import IllegalArgument, Refused, StoreError
from crewel.qos.fields import Check, read_fields
from crewel.security.grants import Role, Scope
from crewel.storage.sight import WHOLE, Sight
from crewel.transports.forwarded import Client
from crewel.transports.http_connection import Connection

log = logging.getLogger(__name__)

API: Final = "/admin/api"
_ERROR: Final = {
    "type": "object",
    "required": ["errorCode", "message"],
    "properties": {"errorCode": {"type": "string"}, "message": {"type": "string"}},
}
_ALWAYS: Final = {
    400: "A field is unknown or has a wrong value; the message names it (user.illegalArgument).",
    403: "Requests from the page's origin are not allowed, or the token is not an operator's, or does not have this role.",
    429: "A rate is exceeded, such as that of invalid tokens: try again after Retry-After (resource.temporary.unavailable).",
    503: "The store is unavailable, or the server has none (resource.unavailable).",
}
_CLOSED: Final = {401: "The token is missing or invalid."}
_OF_ALL: Final = (
    " With `cluster.enabled` it is of all nodes, and has `unreached`: how many of them did not answer, `failed` of those"
    " because of an internal error."
)


class NotThere(Refused):
    """What a path names is not there: 404."""

    def __init__(self, message: str) -> None:
        super().__init__("404::user.illegalArgument", "user.illegalArgument", message)


class NotSeen(NotThere):
    """Something that a body names is not there, or the operator does not see it. The audit has it, for it may be the latter."""


@dataclass(slots=True)
class Ask:
    """One request: the operator, and what is asked."""

    admin: Administration
    who: str
    request: web.Request | None
    """None if another node has handed it over; that one knows the shared queues."""
    path: Mapping[str, str]
    fields: dict[str, Any]
    """Those of the query, or of the body, that were given."""
    client: Client
    scope: Scope
    """The operator's roles, and where they hold."""
    expires: float | None
    """When what the operator has shown expires, in seconds since 1970; None: never."""
    page: str = ""
    """The id of the sign-in of the page that asks; empty if it has shown a token."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The query as it came, without what the path names."""
    body: bytes = b""
    """The body as it came."""
    is_part: bool = False
    """Whether the answer becomes a part of that of several nodes."""
    _on_subjects: dict[str, Role | None] = field(default_factory=dict)
    """What `role_on_subject` has answered."""

    @property
    def role(self) -> Role:
        """The highest of the roles."""
        return self.scope.highest or Role.VIEW

    @property
    def covers_all(self) -> bool:
        """Whether the operator sees all there is."""
        return self.scope.allows(Role.VIEW)

    @property
    def session_name(self) -> str:
        """The name of the session that the path is about, as the operator wrote it."""
        return f"client/{self.path['subject']}/{self.path['number']}"

    def covers(self, name: str, needed: Role = Role.VIEW) -> bool:
        """Whether the role that is needed holds for this channel or pattern."""
        return covers_channel(self.scope, needed, name)

    def covers_session(self, session: Session, needed: Role = Role.VIEW) -> bool:
        """Whether it holds for the session."""
        return covers_session(self.scope, needed, session)

    async def role_on_subject(self, subject: str) -> Role | None:
        """The highest role that holds for the sessions of the subject here and for its queue, which is read once. Raises
        StoreError."""
        if subject not in self._on_subjects:
            self._on_subjects[subject] = await role_on_subject(self.admin, self.scope, subject)
        return self._on_subjects[subject]

    def may(self, is_covered: Callable[[Role], bool]) -> str:
        """The highest of the roles that hold, by its word."""
        return max((role for role in Role if is_covered(role)), default=Role.VIEW).word

    @property
    def sight(self) -> Sight:
        """What the operator sees of the store's streams, from now on."""
        return WHOLE if self.covers_all else Sight(self.covers)

    def after(self, check: Check) -> str:
        """The place after which the page begins, by the field `after`, whose places this check accepts. Raises
        IllegalArgument."""
        return open_place(self.admin.admin_token, self.fields.get("after", ""), check)

    def following(self, place: str) -> str:
        """What the next page is asked for with. For an operator of some channels it hides the place, which may be that of
        something on other channels."""
        return place if self.covers_all else seal_place(self.admin.admin_token, place)

    def action(self, what: str, *, about: str = "", reason: str = "", **details: Any) -> AbstractContextManager[Action]:
        """The entry of the audit of what is done meanwhile."""
        return self.admin.audit.action(self.who, self.role, what, about=about, reason=reason, **details)

    def is_given_up(self) -> bool:
        """Whether long work had better end: the client has gone, as far as the connection tells, or the
        server is going down."""
        if self.request is None:
            return self.admin.life.is_draining
        connection = self.request.protocol
        is_gone = self.request.transport is None or (
            isinstance(connection, Connection) and connection.owner.is_half_closed
        )
        return is_gone or self.admin.life.is_draining


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
    example: Example
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] = ()
    is_public: bool = False
    """Whether it needs no token. What operators see or do is never public."""
    media_type: str = "application/json"
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Further answers, by status."""
    role: Role | None = None
    """The role that it needs; None: VIEW for GET, else DESTROY, so that a row that says nothing opens nothing."""
    about: About = About.SERVER
    """What it is about; a row that says nothing opens nothing to operators of some channels."""
    action: str = ""
    """What the audit calls it, `hold session`; empty: it changes nothing, or has several names."""
    merge: Merge | None = None
    """How the answers of several nodes become one; None: that of the node that is asked is the whole."""

    @property
    def is_stream(self) -> bool:
        """Whether its answer has no bound: it is written while it is read."""
        return self.media_type != "application/json"

    @property
    def audited_as(self) -> str:
        """What the audit calls a refusal of it."""
        return self.action or f"{self.method} {self.path}"

    @property
    def needs(self) -> Role:
        """The role that it needs."""
        if self.role is not None:
            return self.role
        return Role.VIEW if self.method == "GET" else Role.DESTROY


async def answered(route: Route, ask: Ask) -> Any:
    """What the handler of the route answers. Raises Refused if the operator's roles do not cover what it is about, and
    IllegalArgument for a field that is left out."""
    await admit(route, ask)
    for each in (*route.query, *route.body):
        if each.required and each.name not in ask.fields:
            raise IllegalArgument(each.name, f"is required: {each.required}")
    return await route.handler(ask)


async def admit(route: Route, ask: Ask) -> None:
    """Raise Refused, and note it in the audit, if the operator's roles do not cover what the route is about. Raises
    StoreError."""
    needed, about = route.needs, route.about
    if ask.scope.allows(needed) or await _covers(about, ask, needed):
        return
    is_seen = about in (About.CHANNEL, About.SERVER) or await _covers(about, ask, Role.VIEW)
    error = refused(needed, about) if is_seen else NotCovered(needed, about)
    ask.admin.audit.refused(ask.who, ask.role, route.audited_as, error.code, **ask.path)
    raise error


async def _covers(about: About, ask: Ask, needed: Role) -> bool:
    """Whether the role that is needed holds for what the path names. Raises NotThere if it names nothing here."""
    admin, scope = ask.admin, ask.scope
    match about:
        case About.CHANNEL:
            return covers_channel(scope, needed, "/" + ask.path["channel"])
        case About.SESSION:
            session = admin.find(ask.session_name)
            if session is None:
                raise NotThere(f"there is no session {ask.session_name} here")
            return covers_session(scope, needed, session)
        case About.SUBJECT:
            if not admin.sessions_of(ask.path["subject"]):
                raise NotThere(f"there is no session of {ask.path['subject']} here")  # another node may have one
            held = await ask.role_on_subject(ask.path["subject"])
            return held is not None and held >= needed
        case About.SERVER:
            return False
    return True


def missing(route: Route, ask: Ask) -> NotThere | None:
    """The one answer about what the path names that is not there, or that the operator does not see. None if the operator sees
    all there is, or the path names nothing of that kind."""
    if ask.covers_all or route.about not in (About.SESSION, About.SUBJECT):
        return None
    name = ask.session_name if route.about is About.SESSION else f"client/{ask.path['subject']}"
    return NotThere(f"there is no {name}, or the operator's roles do not cover it")


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
        value = parse(body)
    except orjson.JSONDecodeError:
        raise IllegalArgument("body", "must be a JSON object in UTF-8") from None
    if not isinstance(value, dict):
        raise IllegalArgument("body", "must be a JSON object")
    return value


def json_response(body: bytes, status: int = 200, **headers: str) -> web.Response:
    """The response with this JSON; no proxy and no browser keeps it."""
    return web.Response(
        status=status,
        body=body,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **headers},
    )


async def send_lines(ask: Ask, portions: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Answer with lines of JSON. They are read as fast as they are taken, so that no more than one portion is in memory. An
    answer that the store breaks off has no end, so that the client knows that something is missing."""
    assert ask.request is not None  # no node hands over what has no bound
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    await response.prepare(ask.request)
    try:
        async with aclosing(portions):
            async for portion in portions:
                await response.write(portion)  # waits while the client reads slowly
    except ConnectionError:
        pass  # the client has gone
    except StoreError as error:
        log.warning("%s was interrupted: %s", ask.request.path, error)
        if ask.request.transport is not None:
            ask.request.transport.abort()
    return response


def operation_routes(
    level: Level,
    found: Callable[[Ask, Operation], Awaitable[Call]],
    view: Callable[[Call], Awaitable[dict[str, Any]]],
    answer: str,
    unknown: Mapping[int, str],
    merge: Merge | None = None,
) -> tuple[Route, ...]:
    """The routes of the operations of this level. `found` is the call of an operation about what the path names; each answers
    with `view`, which `answer` describes, and the result of the operation."""
    routes = (_of_operation(each, found, view, answer, unknown) for each in OPERATIONS if each.level is level)
    return tuple(replace(route, merge=merge) for route in routes)


def _of_operation(
    operation: Operation,
    found: Callable[[Ask, Operation], Awaitable[Call]],
    view: Callable[[Call], Awaitable[dict[str, Any]]],
    answer: str,
    unknown: Mapping[int, str],
) -> Route:
    action = f"{operation.verb} {operation.level}"

    async def handle(ask: Ask) -> dict[str, Any]:
        call = await found(ask, operation)
        with ask.action(action, about=call.name, **ask.fields) as done:
            result = operation.effect(call)
            if isawaitable(result):
                result = await result
            done.count = result if type(result) is int else None
        return await view(call) | ({operation.key: result} if operation.key else {})

    with_result = f"{answer}; and `{operation.key}`: {operation.result}." if operation.key else f"{answer}."
    has_body = operation.method != "DELETE"
    return Route(
        operation.method,
        operation.route,
        operation.meaning,
        handle,
        with_result,
        operation.example,
        refusals={**unknown, **operation.refusals},
        query=() if has_body else operation.asked,
        body=operation.asked if has_body else (),
        role=operation.role,
        about=operation.level.about,
        action=action,
    )


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(API + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Crewel administration",
            "version": version,
            "description": "What operators see and do. A request has the header `Authorization: Bearer …`, with the"
            " admin token or the JSON Web Token of an operator; a page sends its cookie. Times are milliseconds since"
            " 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": _responses(route),
    }
    names, given = VARIABLE.findall(route.path), route.example.fields
    parameters = [
        *(_parameter(name, "path", VARIABLES[name], required=True, example=SAMPLES[name]) for name in names),
        *(_parameter(name, "query", IN_QUERY[name]) for name in names if name in IN_QUERY),
        *(_query_parameter(each, given) for each in route.query),
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {each.name: _described(each) for each in route.body},
        }
        if required := [each.name for each in route.body if each.required]:
            schema["required"] = required
        example = {"example": given} if given else {}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema, **example}}}
    operation["security"] = [] if route.is_public else [{"token": [route.needs.word]}]
    return operation


def _operation_id(route: Route) -> str:
    words = [word for word in re.split(r"[^A-Za-z]+", route.path) if word]
    return route.method.lower() + "".join(word.title() for word in words)


def _parameter(name: str, place: str, description: str, **more: bool | str) -> dict[str, Any]:
    return {"name": name, "in": place, **more, "description": description, "schema": {"type": "string"}}


def _query_parameter(field: Field, given: Mapping[str, Any]) -> dict[str, Any]:
    more = {"required": True} if field.required else {}
    if field.name in given:
        more["example"] = given[field.name]
    return {"name": field.name, "in": "query", **more, "description": field.meaning, "schema": dict(field.schema)}


def _described(field: Field) -> dict[str, Any]:
    return {**field.schema, "description": field.meaning}


def _responses(route: Route) -> dict[str, Any]:
    of_all = _OF_ALL if isinstance(route.merge, Pages | Parts) else ""
    good = {"description": route.answer + of_all, "content": {route.media_type: {"example": route.example.answer}}}
    refusals = dict(route.refusals) if route.is_public else _CLOSED | _ALWAYS | dict(route.refusals)
    refused = {
        str(status): {
            "description": meaning,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        for status, meaning in sorted(refusals.items())
    }
    return {"200": good, **refused}
