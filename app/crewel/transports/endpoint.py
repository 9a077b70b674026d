"""The Bayeux endpoint: `bayeux.path` and everything below it. It applies the origin rule and chooses the transport."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from crewel.broker.broker import Broker
from crewel.errors import PayloadError
from crewel.transports import http_aiohttp, websocket
from crewel.transports.connection_caps import ConnectionCaps
from crewel.transports.cookies import BrowserCookie
from crewel.transports.origins import Client, Hosts, Origins


class Endpoint:
    """Answers every request to the Bayeux path."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settings = broker.settings
        self.hosts = Hosts(broker.settings)
        self.origins = Origins(broker.settings)
        self.cookie = BrowserCookie(broker.settings)
        self.frames = websocket.Frames()
        self.sockets: set[websocket.Socket] = set()
        self.caps = ConnectionCaps(broker.settings, broker.metrics, broker.loop)
        broker.metrics.gauge("connections", lambda: len(self.caps))
        broker.metrics.gauge("sockets", lambda: len(self.sockets))

    def mount(self, app: web.Application) -> None:
        """Serve the Bayeux path, with or without anything after it, in this application."""
        path = self.settings.bayeux.path
        app.router.add_route("*", path, self.answer)
        app.router.add_route("*", path + "/{below:.*}", self.answer)
        app.on_shutdown.append(self._close_sockets)
        self.broker.on_store_lost.append(partial(self._end, app))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Refuse a foreign name or origin, or answer by the transport that the request asks for; nothing when another server
        has the store, where this one is mounted in an application that keeps running."""
        refused = self.refused_host(request)
        if refused is not None:
            return refused
        if self.broker.has_lost_store:
            return web.Response(status=503, text="another server has taken the store of this one")
        # Origin before method and body: a refused page learns nothing of the server.
        client = self.origins.client(request.headers, request.remote, request.scheme)
        if not self.origins.allows(request.headers, client):
            self.broker.metrics.refused_payloads["origin"] += 1
            self.origins.refused(request.headers, client)
            return web.Response(status=403, text="this origin may not talk to the server", headers={"Vary": "Origin"})
        if request.method == "OPTIONS":
            return web.Response(headers=self.origins.preflight(request.headers))
        response = await self._dispatch(request, client)
        if not response.prepared:
            response.headers.update(self.origins.cors(request.headers))
        return response

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests under a name that is not served, whatever they ask for."""
        return self.refused_host(request) or await handler(request)

    def refused_host(self, request: web.Request) -> web.Response | None:
        """The answer to a request under a name that is not served."""
        for host in request.headers.getall("Host", ()):
            if not self.hosts.allows(host, request.remote):
                self.broker.metrics.refused_payloads["host"] += 1
                return self.hosts.refused(host)
        return None

    async def _dispatch(self, request: web.Request, client: Client) -> web.StreamResponse:
        transports = self.settings.bayeux.transports
        if request.method == "POST" and "long-polling" in transports:
            return await http_aiohttp.answer_post(self, request, client)
        if request.method == "GET" and "websocket" in transports and websocket.is_upgrade(request):
            return await websocket.answer(self, request, client)
        if request.method == "GET" and "callback-polling" in transports:
            bayeux = self.settings.bayeux
            function = http_aiohttp.function_name(
                request, bayeux.callback_parameter, bayeux.callback_parameter_max_length
            )
            if function is not None:
                return await http_aiohttp.answer_callback(self, request, client, function)
        return web.Response(status=400, text="Unknown Bayeux Transport")

    def refused_payload(self, error: PayloadError) -> web.Response:
        """The answer to a request that is refused as a whole."""
        self.broker.metrics.refused_payloads[error.fault.name.lower()] += 1
        return http_aiohttp.refused(error)

    def _end(self, app: web.Application) -> None:
        self.broker.spawn(self._close_sockets(app))

    async def _close_sockets(self, _: web.Application) -> None:
        closing = [socket.close(1001, "the server is going down") for socket in self.sockets]
        await asyncio.gather(*closing, return_exceptions=True)
