"""The HTTP of a Salesforce org around the Bayeux endpoint: cookies, faults of the transport, logins."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from xml.sax.saxutils import escape

from aiohttp import web

from crewel.mock.org import USERNAME, Org, login_answer
from crewel.mock.salesforce_events import ORG_ID
from crewel.mock.salesforce_extension import COOKIE, EXCHANGE, Exchange
from crewel.mock.script import OF_TRANSPORT, PAGES
from crewel.testing.clock import reset


def json_response(value: Any, status: int = 200) -> web.Response:
    """A response as compact as those of Salesforce."""
    return web.json_response(value, status=status, dumps=partial(json.dumps, separators=(",", ":")))


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DELAY_S: Final = 30.0
_PAGE: Final = "<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>"
VERSIONED: Final = r"{version:v?\d+\.\d}"


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
        if fault == "delay":
            await asyncio.sleep(org.faults.get(fault, DELAY_S))
        elif fault:
            return _broken(request, response, fault)
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


def _broken(request: web.Request, response: web.StreamResponse, fault: str) -> web.StreamResponse:
    """The response after this fault of the transport."""
    transport = request.transport
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
        return json_response(login_answer(org, username, instance_url(), is_refreshable=has_refresh))

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
    app.router.add_post("/services/Soap/u/" + VERSIONED, soap)


REVOKED: Final[web.AppKey[Callable[[], None]]] = web.AppKey("REVOKED")


def _oauth_error(error: str, words: str) -> web.Response:
    return json_response({"error": error, "error_description": words}, status=400)


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
