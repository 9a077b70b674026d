"""The Bayeux endpoint: `bayeux.path` and everything below it. It applies the origin rule and chooses the transport."""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from crewel.broker.broker import Broker
from crewel.broker.inbound import Receiver
from crewel.broker.mailboxes.browsers import bound_to
from crewel.fair_turns import SLICE_S, FairTurns
from crewel.settings import Settings
from crewel.transports import websocket_aiohttp
from crewel.transports.connection_caps import ConnectionCaps
from crewel.transports.cookies import BrowserCookie
from crewel.transports.forwarded import Client, TrustedProxies
from crewel.transports.http_aiohttp import Requests, function_name
from crewel.transports.origins import Hosts, Origins, RefusalLog
from crewel.transports.request_paths import why_refused
from crewel.transports.socket_watch import GOING_AWAY, GOING_DOWN
from crewel.transports.sockets import Sockets
from crewel.version import VERSION

log = logging.getLogger(__name__)

_UNKNOWN: Final = "Unknown Bayeux Transport"
_NOT_OFFERED: Final = (
    f"{_UNKNOWN}: callback-polling is not in bayeux.transports. Clients try it when their page may not use the others:"
    " see http.allowed_origins"
)
"""For the last resort of a client whose requests were refused for their origin: it shows this error, and not the first one."""
_NOT_FORWARDED: Final = (
    "a request for a WebSocket came without its Upgrade header: let the proxy forward Upgrade and Connection"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>A Bayeux server</title>
<h1>This is the address of a Bayeux server</h1>
<p>It works. It is for programs, not for browsing: clients send JSON messages to it, by POST or over a WebSocket.</p>
<ul>
{demos}<li>In a page: <code>new CometD().init("{url}")</code>, with the npm package <code>cometd</code>.
<li>In Python: <code>async with Client("{url}") as client:</code>, with <code>from crewel.client import Client</code>.
<li>On the command line: <code>crewel sub /chat/demo --url {url}</code>
</ul>
"""
_DEMOS: Final = f'<li>To try it: the <a href="/chat/">chat</a> of Crewel {VERSION}.\n'


class Endpoint:
    """Answers every request to the Bayeux path."""

    def __init__(self, broker: Broker, receiver: Receiver | None = None) -> None:
        """`receiver` takes what peers send, if requests of other nodes' sessions come here too."""
        self.broker = broker
        self.settings = broker.settings
        self.hosts = Hosts(broker.settings)
        self.origins = Origins(broker.settings)
        self.proxies = TrustedProxies(broker.settings)
        self.cookie = BrowserCookie(broker.settings)
        self.binds_pages = True
        """Whether sessions of pages of other sites are bound to the origin; else they need the cookie as all others do."""
        self.receiver: Receiver = receiver or broker.inbound
        """Takes what a peer sends."""
        self._has_warned = False
        self._unknown_paths = RefusalLog("paths that there are not", logging.INFO)
        self.arrivals = FairTurns(broker.loop)
        """Of new clients: a storm of them does not keep those that are there."""
        self.arrivals.slice_s = SLICE_S / 2
        self.caps = ConnectionCaps(broker.settings, broker.metrics, broker.loop)
        mailboxes = broker.mailboxes
        self.sockets = Sockets(broker.runtime, mailboxes.outbound, self.receiver, self.arrivals, self.caps)
        self._requests = Requests(broker.runtime, mailboxes.connects, self.receiver, self.cookie, self.bound_page)
        broker.metrics.gauge("connections", lambda: len(self.caps))
        broker.metrics.gauge("sockets", lambda: len(self.sockets.watch.sockets))

    def mount(self, app: web.Application) -> None:
        """Serve the Bayeux path, with or without anything after it, in this application."""
        path = self.settings.bayeux.path
        app.router.add_route("*", path, self.answer)
        app.router.add_route("*", path + "/{below:.*}", self.answer)
        app.on_shutdown.append(self._close_sockets)
        self.broker.on_store_lost.append(partial(self._end, app))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Refuse a foreign name or origin, or answer by the transport that the request asks for. Refuse all when another server
        has the store: this one may be mounted in an application that keeps running."""
        refused = self.refused_host(request)
        if refused is not None:
            return refused
        if self.broker.has_lost_store:
            return web.Response(status=503, text="another server has taken the store of this one")
        # Origin before method and body: a refused page learns nothing of the server.
        client = self.proxies.client(request.headers, request.remote, request.scheme)
        if not self.origins.allows(request.headers, client):
            self.broker.metrics.refused_payloads["origin"] += 1
            self.origins.refused(request.headers, client)
            return web.Response(
                status=403, text="requests from this origin are not allowed", headers={"Vary": "Origin"}
            )
        if request.method == "OPTIONS":
            return web.Response(headers=self.origins.preflight(request.headers))
        response = await self._dispatch(request, client)
        if not response.prepared:
            response.headers.update(self.origins.cors(request.headers))
        return response

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests under a name that is not served, or for a path that can be misread, whatever they ask for. Let others
        wait for their turn. Explain a path that there is not to clients that have the wrong address."""
        refused = self.refused_host(request)
        if refused is None:
            refused = self._refused_path(request)
        if refused is not None:
            return refused
        # A POST has its turn when its body has been read, and an upgrade one of those of new clients.
        turns = self.broker.runtime.turns
        if request.method != "POST" and not websocket_aiohttp.is_upgrade(request) and turns.is_over():
            client = self.proxies.client(request.headers, request.remote, request.scheme)
            await turns.rest(client.address, has_begun=False)
        try:
            return await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as missing:
            if not _is_by_a_client(request):
                raise
            self._unknown_paths.note(
                request.path, "refused a request for %s: Bayeux is served at %s", self.settings.bayeux.path
            )
            return self._missing(request, missing)

    def _missing(self, request: web.Request, missing: web.HTTPNotFound | web.HTTPMethodNotAllowed) -> web.Response:
        """The answer 404 or 405, with headers that let a page of an allowed origin read it. Else its browser reports a network
        error only, and so it does after a refused preflight."""
        client = self.proxies.client(request.headers, request.remote, request.scheme)
        headers = self.origins.cors(request.headers) if self.origins.allows(request.headers, client) else {}
        served = missing.allowed_methods if isinstance(missing, web.HTTPMethodNotAllowed) else ()
        wanted = request.headers.get("Access-Control-Request-Method")
        # What is served at this path, such as /api/publish, is not for pages of other origins: its preflight stays refused.
        if headers and wanted is not None and wanted not in served and request.method == "OPTIONS":
            return web.Response(headers=self.origins.preflight(request.headers))
        if served:
            headers["Allow"] = missing.headers["Allow"]
        return web.Response(status=missing.status, text=missing.text, headers=headers)

    def bound_page(self, headers: Mapping[str, str], client: Client) -> str | None:
        """What stands for the browser of a request without the cookie if its page is of another site: the browser would not
        send the cookie with the next request either. None for any other request."""
        if not self.binds_pages or self.cookie.crosses_sites(is_secure=client.is_secure):
            return None
        origin = self.origins.of_another_site(headers, client)
        return None if origin is None else bound_to(origin)

    def refused_host(self, request: web.Request) -> web.Response | None:
        """The answer to a request under a name that is not served."""
        for host in request.headers.getall("Host", ()):
            if not self.hosts.allows(host, request.remote):
                self.broker.metrics.refused_payloads["host"] += 1
                return self.hosts.refused(host)
        return None

    def _refused_path(self, request: web.Request) -> web.Response | None:
        """The answer to a request for a path that a proxy may read as another one."""
        why = why_refused(request.rel_url.raw_path)
        if not why:
            return None
        self.broker.metrics.refused_payloads["path"] += 1
        return web.json_response({"errorCode": "user.illegalArgument", "message": why}, status=400)

    async def _dispatch(self, request: web.Request, client: Client) -> web.StreamResponse:
        transports = self.settings.bayeux.transports
        if request.method == "POST" and "long-polling" in transports:
            return await self._requests.answer_post(request, client)
        if request.method == "GET" and "websocket" in transports and websocket_aiohttp.is_upgrade(request):
            return await websocket_aiohttp.answer(self.sockets, request, client, self.cookie.read(request.headers))
        if request.method == "GET" and "callback-polling" in transports:
            bayeux = self.settings.bayeux
            function = function_name(request, bayeux.callback_parameter, bayeux.callback_parameter_max_length)
            if function is not None:
                return await self._requests.answer_callback(request, client, function)
        if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
            return _for_a_browser(self.settings, client)
        if "Sec-WebSocket-Key" in request.headers and "websocket" in transports:
            if not self._has_warned:  # the clients use long-polling then, and nothing else shows it
                self._has_warned = True
                log.warning("%s (docs/how-to/proxies.md); until then, clients use long-polling", _NOT_FORWARDED)
            return web.Response(status=400, text=_NOT_FORWARDED)
        wants_callback = request.method == "GET" and self.settings.bayeux.callback_parameter in request.query
        return web.Response(
            status=400, text=_NOT_OFFERED if wants_callback and "callback-polling" not in transports else _UNKNOWN
        )

    def _end(self, app: web.Application) -> None:
        self.broker.spawn(self._close_sockets(app))

    async def _close_sockets(self, _: web.Application) -> None:
        closing = [socket.close(GOING_AWAY, GOING_DOWN) for socket in list(self.sockets.watch.sockets)]
        await asyncio.gather(*closing, return_exceptions=True)


def _is_by_a_client(request: web.Request) -> bool:
    """Whether a request may come from a Bayeux client, and not from a person who mistyped an address: browsers name the origin
    in those of pages only."""
    return request.method == "POST" or "Origin" in request.headers or "Upgrade" in request.headers


def _for_a_browser(settings: Settings, client: Client) -> web.Response:
    """The answer to a person who opens the Bayeux address: what it is, and how to use it. The status is that of every request
    that is no Bayeux."""
    headers = {
        "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept",
    }
    url = html.escape(f"{client.scheme}://{client.host}{settings.bayeux.path}")
    text = _PAGE.format(url=url, demos=_DEMOS if settings.http.demos else "")
    return web.Response(status=400, text=text, content_type="text/html", charset="utf-8", headers=headers)
