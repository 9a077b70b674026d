"""Bayeux over HTTP where aiohttp reads the requests: long-polling, and callback-polling (JSONP).

`attach` serves with this in an application whose connections are plain; `serve` uses it for what the fast lane does not read,
such as chunked bodies. It answers exactly as the fast lane does, and only looks less often whether a peer is still there.

Callback-polling is off unless it is listed in `bayeux.transports`: any page can load a script, so the origin rule and these
protections are all that guards it. The answer begins with a comment, is never sniffed as anything else, and is a download if
opened alone. It has no character that ends a line in JavaScript but not in JSON.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from typing import Final

from aiohttp import web

from crewel.bayeux.codec import join
from crewel.broker.exchange import Peer
from crewel.broker.inbound import Receiver
from crewel.broker.mailboxes.connects import Connects
from crewel.broker.runtime import Runtime
from crewel.errors import REFUSED_HEADER, Limited, PayloadError
from crewel.transports.bodies import elements_of, elements_of_values, media_type, read_body
from crewel.transports.cookies import BrowserCookie
from crewel.transports.forwarded import Client
from crewel.transports.http_connection import Connection

_WATCH_INTERVAL = 1.0  # seconds between looks at the connection of a held request
_CALLBACK_HEADERS = {
    "Cache-Control": "no-cache, no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment; filename=f.txt",
}
_DEFAULT_FUNCTION: Final = "jsonpcallback"
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


class RequestPeer(Peer):
    """A POST. It is answered once: with messages, or with the status of a superseded connect."""

    __slots__ = ("_client", "_is_answered", "_request", "_requests", "_response")

    transport = "long-polling"

    def __init__(self, requests: Requests, request: web.Request, client: Client) -> None:
        super().__init__(requests.cookie.read(request.headers) or requests.bound_page(request.headers, client))
        self._requests = requests
        self._request = request
        self._client = client
        self._response: web.Response | None = None
        self._is_answered = asyncio.Event()

    def cut_off(self) -> None:
        """Break the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._request.transport is None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request."""
        return self._request.headers

    @property
    def remote(self) -> str | None:
        """The address of the client."""
        return self._client.address

    @property
    def is_secure(self) -> bool:
        """Whether the client came by TLS."""
        return self._client.is_secure

    def payload(self, parts: list[bytes]) -> web.Response:
        """The response that carries these messages."""
        return web.Response(
            body=join(parts), content_type="application/json", headers={"Cache-Control": "no-cache, no-store"}
        )

    def send(self, parts: list[bytes]) -> None:
        """Answer the request with these messages."""
        response = self.payload(parts)
        if self.mints_cookie and self.browser is not None:
            cookie = self._requests.cookie.header(self.browser, is_secure=self._client.is_secure)
            response.headers["Set-Cookie"] = cookie
        self._answer(response)

    def supersede(self) -> None:
        """End the held connect as the reference has it: a status that browsers do not repeat."""
        status = self._requests.settings.bayeux.duplicate_connect_status
        self._answer(web.Response(status=status, text="replaced by a newer connect"))

    async def answered(self) -> web.Response:
        """The response, once there is one. If the connection is lost meanwhile, the held connect is released."""
        connects = self._requests.connects
        try:
            # aiohttp tells a handler nothing when the peer is gone, unless its runner was made with handler_cancellation.
            while self._response is None and self._request.transport is not None:
                connection = self._request.protocol
                if isinstance(connection, Connection) and connection.owner.is_half_closed:
                    connects.half_closed(self)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WATCH_INTERVAL):
                        await self._is_answered.wait()
        finally:
            if self._response is None:
                connects.vanished(self)
        return self._response or web.Response(status=499)

    def _answer(self, response: web.Response) -> None:
        self._response = response
        self._is_answered.set()


class CallbackPeer(RequestPeer):
    """A GET with the name of a function. Only connect replies carry messages: scripts cannot be distinguished."""

    __slots__ = ("_function",)

    transport = "callback-polling"
    connect_only = True

    def __init__(self, requests: Requests, request: web.Request, client: Client, function: str) -> None:
        super().__init__(requests, request, client)
        self._function = function

    def payload(self, parts: list[bytes]) -> web.Response:
        """The call of the function with these messages."""
        # JSON allows these two characters in strings, and JavaScript of old browsers ends a line at them.
        json = join(parts).replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")
        script = b"/**/" + self._function.encode() + b"(" + json + b");"
        return web.Response(body=script, content_type="text/javascript", charset="utf-8", headers=_CALLBACK_HEADERS)


class Requests:
    """Answers those of a server that aiohttp reads."""

    def __init__(
        self,
        runtime: Runtime,
        connects: Connects,
        receiver: Receiver,
        cookie: BrowserCookie,
        bound_page: Callable[[Mapping[str, str], Client], str | None],
    ) -> None:
        """`bound_page` returns what stands for the browser of a request without the cookie."""
        self.settings = runtime.settings
        self.connects = connects
        self.cookie = cookie
        self.bound_page = bound_page
        self._turns = runtime.turns
        self._refused_payloads = runtime.metrics.refused_payloads
        self._receiver = receiver

    async def answer_post(self, request: web.Request, client: Client) -> web.Response:
        """Answer a POST; a connect may be held in here for as long as its hold lasts."""
        try:
            body = await read_body(request, self.settings)
            elements = elements_of(body, *media_type(request.headers.get("content-type", "")), self.settings)
        except PayloadError as error:
            return self._refused(error)
        peer = RequestPeer(self, request, client)
        if self._turns.is_over():
            await self._turns.rest(client.address, has_begun=False)
        self._receiver.receive(peer, elements)
        return await peer.answered()

    async def answer_callback(self, request: web.Request, client: Client, function: str) -> web.Response:
        """Answer a GET that names a function."""
        try:
            elements = elements_of_values(request.query.getall("message", []), self.settings)
        except PayloadError as error:
            return self._refused(error)
        peer = CallbackPeer(self, request, client, function)
        self._receiver.receive(peer, elements)
        return await peer.answered()

    def _refused(self, error: PayloadError) -> web.Response:
        self._refused_payloads[error.fault.name.lower()] += 1
        return refused(error)


def function_name(request: web.Request, parameter: str, max_length: int) -> str | None:
    """The function to call, `jsonpcallback` where none is named (Bayeux 1.0, callback-polling); None if it is given twice, too
    long, or no name."""
    values = request.query.getall(parameter, [_DEFAULT_FUNCTION] if "message" in request.query else [])
    if len(values) != 1 or len(values[0]) > max_length or _FUNCTION_NAME.fullmatch(values[0]) is None:
        return None
    return values[0]


def too_many(error: Limited) -> web.Response:
    """The answer to a request beyond a limit: when to try again, and which limit it is."""
    seconds = str(ceil(error.wait_ms / 1000))
    response = web.Response(status=429, text=error.message, headers={"Retry-After": seconds})
    response.force_close()  # the body is not worth reading
    return response


def refused(error: PayloadError) -> web.Response:
    """The answer to a request that is refused as a whole: a status, and the reason in words."""
    headers = {REFUSED_HEADER: error.fault.name.lower(), "Access-Control-Expose-Headers": REFUSED_HEADER}
    response = web.Response(status=error.fault.http_status, text=str(error), headers=headers)
    response.force_close()  # what is left of the body is not worth reading
    return response
