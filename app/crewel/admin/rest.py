"""`/admin/api`: authorisation, the routes, and how failures are answered.

Closed by default: a request is answered only if its origin may talk to the server and its token makes an operator, unless the
route is public.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from math import ceil
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from crewel.admin.administration import Administration
from crewel.admin.audit_resource import AUDIT_ROUTES
from crewel.admin.command import demand, read_order, without_node
from crewel.admin.commands import COMMANDS, failure_json, missing_order, run
from crewel.admin.dead_letter_bin_resource import DEAD_LETTER_BIN_ROUTES
from crewel.admin.dead_letter_resource import DEAD_LETTER_ROUTES
from crewel.admin.example import Example
from crewel.admin.group_resource import GROUP_ROUTES
from crewel.admin.job_resource import JOB_ROUTES
from crewel.admin.merges import At
from crewel.admin.message_resource import MESSAGE_ROUTES
from crewel.admin.node_resource import NODE_ROUTES
from crewel.admin.operation import About
from crewel.admin.other_nodes import OtherNodes, RefusedElsewhere
from crewel.admin.overview_resource import OVERVIEW_ROUTES
from crewel.admin.prefix_resource import PREFIX_ROUTES
from crewel.admin.presence_resource import PRESENCE_ROUTES
from crewel.admin.publish_resource import PUBLISH_ROUTES
from crewel.admin.rate_resource import RATE_ROUTES
from crewel.admin.receiver_resource import RECEIVER_ROUTES
from crewel.admin.request_fields import json_field
from crewel.admin.request_resource import REQUEST_ROUTES
from crewel.admin.resource_path import VARIABLE, named
from crewel.admin.role_scopes import NotCovered, require
from crewel.admin.route import API, Ask, NotSeen, NotThere, Route, answered, document, json_response, missing, read
from crewel.admin.scheduled_resource import SCHEDULED_ROUTES
from crewel.admin.session_resource import SESSION_ROUTES
from crewel.admin.sign_in_resource import SIGN_IN_ROUTES, cookie_name, operator_of
from crewel.admin.subject_resource import SUBJECT_ROUTES
from crewel.admin.timeline_resource import TIMELINE_ROUTES
from crewel.admin.topic_resource import TOPIC_ROUTES
from crewel.bayeux.codec import encode
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import CrewelError, IllegalArgument, Limited, PayloadError, Refused, status_of
from crewel.errors.codes import is_below
from crewel.event_loop import encoded_in_turns
from crewel.qos.names import ANONYMOUS
from crewel.security.bad_token import BadToken
from crewel.security.grants import Grants, Role
from crewel.transports.bodies import read_body
from crewel.transports.forwarded import Client, TrustedProxies
from crewel.transports.origins import Origins
from crewel.version import VERSION

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_FILES: Final = {"": "api.html", "page.js": "api.js", "page.css": "api.css", "style.css": "style.css"}
"""What the page needs, by the name below `API`."""


_PUBLIC: Final = Grants(ANONYMOUS, role=Role.VIEW)
"""Who asks for what is public."""
_SEGMENT: Final = "[^/]+"
_SPANS: Final = {"channel": ".+"}
"""What variables of paths match that are more than a segment."""


async def _command(ask: Ask) -> dict[str, Any]:
    text, everywhere = ask.fields.get("command"), ask.admin.everywhere
    if everywhere is None or ask.is_part:
        return await run(ask.admin, text, ask.who, ask.scope)
    return await everywhere.command(text, ask.who, ask.scope)


async def _commands(_: Ask) -> dict[str, Any]:
    return {"commands": [command.as_json() for command in COMMANDS]}


async def _document(_: Ask) -> web.Response:
    return json_response(_encoded_document())


@cache
def _encoded_document() -> bytes:
    """The description of all routes. Strangers may ask for it, and it takes milliseconds of the event loop."""
    return encode(document(ROUTES, VERSION))


ROUTES: Final = (
    Route(
        "GET",
        "/commands",
        "List the commands.",
        _commands,
        "`commands`, a list. A command has `level` (node, subject, session or topic), `path` (an example of the path"
        " before the name), `name`, `access` (r, rw, or x for an operation) and `meaning`. `takes` describes its value,"
        " or is null; `needsValue`: whether the value is required. `role`: the necessary role; `writeRole`: the role"
        " for writing, or null.",
        Example({}, {"commands": [{"level": "session", "name": "cbQueueNumMsgs", "access": "r", "role": "view"}]}),
        about=About.MANY,
    ),
    Route(
        "POST",
        "/commands",
        "Run a command, such as __cmd:client/joe/1/?dispatcherActive=true.",
        _command,
        "`command`: the command with its node; `result`: the result, or OK if a value was written.",
        Example({"command": "__cmd:?nodeList"}, {"command": "__cmd:/node/heron/?nodeList", "result": ["heron"]}),
        body=(json_field("command", "The command.")._replace(schema={"type": "string"}),),
        role=Role.VIEW,  # each command has its own
        about=About.MANY,
        merge=At.HANDLER,
    ),
    *SIGN_IN_ROUTES,
    *OVERVIEW_ROUTES,
    *TIMELINE_ROUTES,
    *RECEIVER_ROUTES,
    *SESSION_ROUTES,
    *SUBJECT_ROUTES,
    *TOPIC_ROUTES,
    *SCHEDULED_ROUTES,
    *PREFIX_ROUTES,
    *PRESENCE_ROUTES,
    *PUBLISH_ROUTES,
    *GROUP_ROUTES,
    *RATE_ROUTES,
    *DEAD_LETTER_BIN_ROUTES,
    *DEAD_LETTER_ROUTES,
    *JOB_ROUTES,
    *MESSAGE_ROUTES,
    *REQUEST_ROUTES,
    *NODE_ROUTES,
    *AUDIT_ROUTES,
    Route(
        "GET",
        "/openapi.json",
        "Show this description.",
        _document,
        "An OpenAPI document.",
        Example({}, {"openapi": "3.1.0"}),
        is_public=True,
    ),
)


class Rest:
    """The resources of one server."""

    def __init__(self, admin: Administration, static: Path) -> None:
        self._admin = admin
        self._origins = Origins(admin.settings)
        self._proxies = TrustedProxies(admin.settings)
        self._static = static
        membership = admin.membership
        self._other_nodes = None if membership is None else OtherNodes(admin, membership, ROUTES, _status)

    def mount(self, app: web.Application) -> None:
        """Serve them in this application."""
        for route in ROUTES:
            path = _spelled(route.path, "{{{0}:{1}}}")
            app.router.add_route(route.method, API + path, self._handler(route))
        for name, file in _FILES.items():
            app.router.add_get(f"{API}/{name}", self._file(file))
        app.router.add_get(API, _to_page)
        app.router.add_route("*", API + "/{below:.*}", self._refusing(self._unknown))

    def _handler(self, route: Route) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            client = self._client(request)
            grants = _PUBLIC if route.is_public else await self._grants(request, client)
            return await self._answer(request, route, client, grants)

        return self._refusing(handle)

    def _refusing(self, handle: Handler) -> Handler:
        """Return a handler that calls this one and answers every failure in the form of the API."""

        async def refuse(request: web.Request) -> web.StreamResponse:
            try:
                return await handle(request)
            except CrewelError as error:
                response = _refused(error)
                if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    log.info("refused a request to /admin/api: %s", error, extra={"path": request.path[:200]})
                return response

        return refuse

    def _client(self, request: web.Request) -> Client:
        """The client, if its page may talk to the server. Raises Refused."""
        client = self._proxies.client(request.headers, request.remote, request.scheme)
        if not self._origins.allows(request.headers, client):
            self._origins.refused(request.headers, client)
            raise Refused(f"403::{NOT_AUTHORIZED}", NOT_AUTHORIZED, "requests from this origin are not allowed")
        return client

    async def _grants(self, request: web.Request, client: Client) -> Grants:
        """What the operator's token grants, or the cookie of a page that is signed in. Raises BadToken, Refused
        and StoreUnavailable."""
        authorization = request.headers.get("Authorization", "")
        cookie = request.cookies.get(cookie_name(client))
        if authorization or cookie is None:
            return await self._admin.limits.grants_of(authorization, client.address)
        if not self._is_own(request.headers, client):
            raise Refused(f"403::{NOT_AUTHORIZED}", NOT_AUTHORIZED, "only the server's own page may use its cookie")
        return await self._admin.sign_ins.read(cookie)

    def _is_own(self, headers: Mapping[str, str], client: Client) -> bool:
        """Whether the request may be of the server's own page. Pages of other origins that may talk to the server send the
        cookie too, if they are of the same site, as all ports of a host are."""
        origin = headers.get("Origin")
        if origin is not None:
            return self._origins.is_own(origin, client)
        return headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    async def _answer(self, request: web.Request, route: Route, client: Client, grants: Grants) -> web.StreamResponse:
        who, scope = operator_of(grants)
        query = dict(request.query)
        # A field given twice would count once, and the operator would not know which.
        if len(query) != len(request.query):
            raise IllegalArgument("query", "must not repeat a field")
        path = named(route.path, request.match_info, query)
        try:
            demand(scope.highest, route.needs)
            if route.about is About.SERVER:
                require(scope, route.needs, route.about, is_covered=False)
        except Refused as error:
            self._admin.audit.refused(who, scope.highest, route.audited_as, error.code, **path)
            raise
        body = await read_body(request, self._admin.settings)
        try:
            fields = read(route, query, body)
            ask = Ask(
                self._admin, who, request, path, fields, client, scope, grants.expires_at, grants.page, query, body
            )
            answer = await self._answered(route, ask)
        except ValueError as error:  # an id that is no place in the list
            raise IllegalArgument("request", str(error)) from None
        return answer if isinstance(answer, web.StreamResponse) else json_response(await encoded_in_turns(answer))

    async def _answered(self, route: Route, ask: Ask) -> Any:
        """What the handler answers, here or at other nodes. What an operator of some channels does not see, and what is not
        there, have one answer."""
        try:
            if self._other_nodes is None:
                return await answered(route, ask)
            return await self._other_nodes.answer(route, ask)
        except Refused as error:
            if route.about is About.MANY and route.handler is not _command:
                self._note_refusal(route, ask, error)
            if ask.covers_all or _status(error, error.code) != HTTPStatus.NOT_FOUND:
                raise
            if route.handler is _command:
                _, text = without_node(ask.fields.get("command"))
                raise missing_order(read_order(text, ask.admin.node)) from None
            raise missing(route, ask) or error from None

    def _note_refusal(self, route: Route, ask: Ask, error: Refused) -> None:
        """Enter into the audit that a handler has refused what it has chosen itself."""
        if isinstance(error, NotSeen) or (error.code == NOT_AUTHORIZED and not isinstance(error, RefusedElsewhere)):
            self._admin.audit.refused(ask.who, ask.role, route.audited_as, error.code, **ask.path)

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        self._client(request)
        path = request.path.removeprefix(API)
        methods = sorted(route.method for route in ROUTES if re.fullmatch(_spelled(route.path, "{1}"), path))
        if not methods:
            raise NotThere(f"there is no {API}{path}; {API}/ lists all resources")
        text = f"{path} takes {' and '.join(methods)}, not {request.method}"
        return json_response(
            encode({"errorCode": "user.illegalArgument", "message": text}), 405, Allow=", ".join(methods)
        )

    def _file(self, name: str) -> Handler:
        async def send(_: web.Request) -> web.StreamResponse:
            return web.FileResponse(self._static / name)

        return send


def _spelled(path: str, form: str) -> str:
    """The path with each variable in this form, of its name and what it matches."""
    return VARIABLE.sub(lambda found: form.format(found[1], _SPANS.get(found[1], _SEGMENT)), path)


async def _to_page(_: web.Request) -> web.Response:
    raise web.HTTPMovedPermanently(f"{API}/")


def _refused(error: CrewelError) -> web.Response:
    """What a failure is answered with: its status, its code, and its words."""
    answer = failure_json(error)
    status = _status(error, answer["errorCode"])
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="crewel"'
    elif isinstance(error, Limited):
        headers["Retry-After"] = str(ceil(error.wait_ms / 1000))
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "5"
    response = json_response(encode(answer), status, **headers)
    if status != HTTPStatus.BAD_REQUEST or isinstance(error, PayloadError):
        response.force_close()  # what is left of the body, if anything, is not worth reading
    return response


def _status(error: CrewelError, code: str) -> int:
    match error:
        case PayloadError():
            return error.fault.http_status
        case NotThere() | NotCovered():
            return HTTPStatus.NOT_FOUND
        case RefusedElsewhere():
            return error.status
        case Limited():
            return HTTPStatus.TOO_MANY_REQUESTS
        case BadToken() if not is_below(code, "resource"):
            return HTTPStatus.UNAUTHORIZED
    return HTTPStatus.GATEWAY_TIMEOUT if is_below(code, "communication") else status_of(code)


def mount_rest(app: web.Application, admin: Administration, static: Path) -> None:
    """Serve `/admin/api` in this application; its page is among the files in `static`."""
    Rest(admin, static).mount(app)
