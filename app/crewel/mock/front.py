"""The HTTP of a Salesforce org around the Bayeux endpoint: cookies, faults of the transport, logins, REST."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from uuid import uuid4
from xml.sax.saxutils import escape

from aiohttp import web

from crewel.mock import shapes
from crewel.mock.events import ORG_ID
from crewel.mock.extension import COOKIE, EXCHANGE, Exchange
from crewel.mock.org import USERNAME, Org, login_answer
from crewel.mock.script import OF_TRANSPORT, PAGES
from crewel.testing.clock import reset


def _json(value: Any, status: int = 200) -> web.Response:
    """A response as compact as those of Salesforce."""
    return web.json_response(value, status=status, dumps=partial(json.dumps, separators=(",", ":")))


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DELAY_S: Final = 30.0
_PAGE: Final = "<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>"
_VERSIONED: Final = r"{version:v?\d+\.\d}"


def bayeux_front(org: Org) -> Any:
    """The middleware around the Bayeux path."""

    @web.middleware
    async def front(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/cometd"):
            return await handler(request)
        authorization = request.headers.get("Authorization", "")
        user = org.user_of(authorization) or USERNAME
        agent = request.headers.get("User-Agent", "")
        exchange = Exchange(request.path, authorization, user, f"{user} {agent}".strip(), _cookies(request))
        token = EXCHANGE.set(exchange)
        try:
            response = await handler(request)
        finally:
            EXCHANGE.reset(token)
        fault = exchange.transport_fault or next((name for name in org.faults if name in OF_TRANSPORT), "")
        if fault:
            return await _broken(request, response, fault, org.faults.get(fault, {}))
        if isinstance(response, web.Response) and response.status == 200:
            _finish(response, exchange)
            for channel, replay_id in exchange.events:
                org.delivers(exchange.client, channel, replay_id)
        return response

    return front


def _finish(response: web.Response, exchange: Exchange) -> None:
    body = response.body
    if exchange.before and isinstance(body, bytes) and body.startswith(b"["):
        first = b",".join(json.dumps(each, separators=(",", ":")).encode() for each in exchange.before)
        response.body = b"[" + first + (b"," if body != b"[]" else b"") + body[1:]
    if exchange.sets_cookie:
        value = exchange.cookies.get(COOKIE, "!new")
        response.headers.add("Set-Cookie", f"{COOKIE}={value}; Path=/")
        response.headers.add("Set-Cookie", "t=lightning; Path=/")


def _cookies(request: web.Request) -> dict[str, str]:
    """The cookies of the request, byte for byte but without quotes around a value."""
    found = {}
    for each in request.headers.get("Cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return found


async def _broken(request: web.Request, response: web.StreamResponse, fault: str, options: Any) -> web.StreamResponse:
    """The response after this fault of the transport."""
    transport = request.transport
    if fault == "delay":
        await asyncio.sleep(options.get("seconds", DELAY_S))
        return response
    if fault in PAGES:
        status, words = PAGES[fault]
        return web.Response(status=status, text=_PAGE.format(f"{status} {words}"), content_type="text/html")
    if transport is None:
        return response
    if fault == "reset":
        reset(transport)
    elif fault == "half body" and isinstance(response, web.Response) and isinstance(response.body, bytes):
        body = response.body
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        transport.write(head.encode() + body[: len(body) // 2])
        transport.close()
    else:
        transport.close()
    return web.Response(status=499)


# Logins


def mount_logins(app: web.Application, org: Org, instance_url: Callable[[], str]) -> None:
    """Serve OAuth and the SOAP login. `instance_url` returns the address of the org."""

    async def token(request: web.Request) -> web.Response:
        asked = await request.post()
        kind = str(asked.get("grant_type", ""))
        known = {
            "password",
            "refresh_token",
            "client_credentials",
            "authorization_code",
            "urn:ietf:params:oauth:grant-type:jwt-bearer",
        }
        if kind not in known:
            return _oauth_error("unsupported_grant_type", "grant type not supported")
        username = str(asked.get("username") or USERNAME)
        if kind == "refresh_token":
            refreshed = org.refresh_tokens.get(str(asked.get("refresh_token")))
            if refreshed is None:
                return _oauth_error("invalid_grant", "expired access/refresh token")
            username = refreshed
        if kind == "password" and asked.get("password") == "wrong":
            return _oauth_error("invalid_grant", "authentication failure")
        if kind.endswith("jwt-bearer") and not asked.get("assertion"):
            return _oauth_error("invalid_grant", "invalid assertion")
        has_refresh = kind in ("authorization_code", "password")
        return _json(login_answer(org, username, instance_url(), is_refreshable=has_refresh))

    async def revoke(request: web.Request) -> web.Response:
        asked = {**request.query, **(await request.post())}
        given = str(asked.get("token", ""))
        if given not in org.tokens and given not in org.refresh_tokens:
            return _oauth_error("unsupported_token_type", "this token type is not supported")
        org.revoke(given)
        org.refresh_tokens.pop(given, None)
        request.app[REVOKED]()
        return web.Response()

    async def soap(request: web.Request) -> web.Response:
        body = await request.text()
        found = re.search(r"<(?:\w+:)?username>([^<]*)</", body)
        if "<" not in body or found is None or ">wrong</" in body:
            return web.Response(status=500, text=_FAULT, content_type="text/xml")
        url = f"{instance_url()}/services/Soap/u/{request.match_info['version']}/{ORG_ID}"
        user_id = org.user_id(found[1])
        answer = _LOGIN.format(url=escape(url), session=org.new_token(found[1]), user=user_id, org=ORG_ID)
        return web.Response(text=answer, content_type="text/xml")

    app.router.add_post("/services/oauth2/token", token)
    app.router.add_route("*", "/services/oauth2/revoke", revoke)
    app.router.add_post("/services/Soap/u/" + _VERSIONED, soap)


REVOKED: Final[web.AppKey[Callable[[], None]]] = web.AppKey("REVOKED")


def _oauth_error(error: str, words: str) -> web.Response:
    return _json({"error": error, "error_description": words}, status=400)


_ENVELOPE: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"'
    ' xmlns="urn:partner.soap.sforce.com" xmlns:sf="urn:fault.partner.soap.sforce.com"><soapenv:Body>'
)
_LOGIN: Final = (
    _ENVELOPE
    + "<loginResponse><result><metadataServerUrl>{url}</metadataServerUrl><passwordExpired>false</passwordExpired>"
    "<sandbox>false</sandbox><serverUrl>{url}</serverUrl><sessionId>{session}</sessionId><userId>{user}</userId>"
    "<userInfo><organizationId>{org}</organizationId><userId>{user}</userId></userInfo></result></loginResponse>"
    "</soapenv:Body></soapenv:Envelope>"
)
_FAULT: Final = (
    _ENVELOPE
    + "<soapenv:Fault><faultcode>INVALID_LOGIN</faultcode><faultstring>INVALID_LOGIN: Invalid username, password,"
    " security token; or user locked out.</faultstring></soapenv:Fault></soapenv:Body></soapenv:Envelope>"
)


# REST


def mount_rest(app: web.Application, org: Org) -> None:
    """Serve the part of the REST API that streaming clients need: publishing, PushTopics, generic channels."""

    def guarded(answer: Handler) -> Handler:
        async def checked(request: web.Request) -> web.StreamResponse:
            if org.user_of(request.headers.get("Authorization", "")) is None:
                return _json([{"message": "Session expired or invalid", "errorCode": "INVALID_SESSION_ID"}], status=401)
            return await answer(request)

        return checked

    async def create(request: web.Request) -> web.Response:
        name, asked = request.match_info["name"], await request.json()
        if name.endswith("__e"):
            org.publish(f"/event/{name}", asked)
            return _json(_created(_record_id("e00", org), queued=True), status=201)
        if name == "PushTopic":
            org.topics[asked["Name"]] = {**asked, "Id": _record_id("0IF", org)}
            return _json(_created(org.topics[asked["Name"]]["Id"]), status=201)
        record = _record_id("0M6" if name == "StreamingChannel" else "001", org)
        if name == "StreamingChannel":
            org.generic[record] = asked["Name"]
        else:
            _publish_change(org, name, record, "CREATE", asked)
        return _json(_created(record), status=201)

    async def change(request: web.Request) -> web.Response:
        name, record = request.match_info["name"], request.match_info["id"]
        if request.method == "DELETE":
            _publish_change(org, name, record, "DELETE", {})
        else:
            _publish_change(org, name, record, "UPDATE", await request.json())
        return web.Response(status=204)

    async def missing(_: web.Request) -> web.Response:
        return _not_found()

    async def push(request: web.Request) -> web.Response:
        channel = org.generic.get(request.match_info["id"])
        if channel is None:
            return _not_found()
        if request.method == "GET":
            return _json({"OnlineUserIds": sorted(org.online(channel)), "ChannelName": channel})
        return _json([_pushed(org, channel, each) for each in (await request.json())["pushEvents"]])

    async def query(request: web.Request) -> web.Response:
        asked = request.query.get("q", "")
        found = re.search(r"FROM\s+(\w+)(?:.*?Name\s*=\s*'([^']*)')?", asked, re.IGNORECASE | re.DOTALL)
        records: list[dict[str, Any]] = []
        if found and found[1] == "PushTopic":
            records = [each for name, each in org.topics.items() if found[2] in (None, name)]
        elif found and found[1] == "StreamingChannel":
            records = [{"Id": key, "Name": name} for key, name in org.generic.items() if found[2] in (None, name)]
        return _json({"totalSize": len(records), "done": True, "records": records})

    async def versions(_: web.Request) -> web.Response:
        number = shapes.NEWEST_VERSION
        return _json([{"label": "Newest", "url": f"/services/data/v{number}", "version": number}])

    base = "/services/data/" + _VERSIONED
    app.router.add_get("/services/data", versions)
    app.router.add_get(base + "/query", guarded(query))
    app.router.add_post(base + "/sobjects/{name}", guarded(create))
    for method in ("GET", "POST"):
        app.router.add_route(method, base + "/sobjects/StreamingChannel/{id}/push", guarded(push))
    for method in ("PATCH", "DELETE"):
        app.router.add_route(method, base + "/sobjects/{name}/{id}", guarded(change))
    # A client with a revoked token asks for some resource, and learns from 401 that it has to log in.
    app.router.add_route("*", base + "/{resource:.*}", guarded(missing))


def _not_found() -> web.Response:
    return _json([{"message": "The requested resource does not exist", "errorCode": "NOT_FOUND"}], status=404)


def _publish_change(org: Org, entity: str, record: str, kind: str, fields: dict[str, Any]) -> None:
    """Publish the change of a record, if the org has change events of its entity."""
    if org.has_channel(channel := f"/data/{entity}ChangeEvent"):
        header = {"recordIds": [record], "entityName": entity, "changeType": kind}
        org.publish(channel, fields, header=header)


def _pushed(org: Org, channel: str, event: dict[str, Any]) -> dict[str, Any]:
    """Publish one generic event, to some users or to all, and return its result."""
    user_ids = event.get("userIds") or []
    statuses = {each: each in org.online(channel) for each in user_ids}
    org.publish(channel, event["payload"], user_ids=user_ids)
    return {"fanoutCount": sum(statuses.values()) if user_ids else -1, "userOnlineStatus": statuses}


def _record_id(prefix: str, org: Org) -> str:
    return f"{prefix}{len(org.generic) + len(org.topics) + len(org.history) + 1:012d}AAA"


def _created(record: str, *, queued: bool = False) -> dict[str, Any]:
    errors = [{"statusCode": "OPERATION_ENQUEUED", "message": str(uuid4()), "fields": []}] if queued else []
    return {"id": record, "success": True, "errors": errors}
