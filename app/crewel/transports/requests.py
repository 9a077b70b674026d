"""One HTTP request as a peer of the broker, and its answer. Long-polling and callback-polling differ in what they read
and in how the payload is wrapped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from aiohttp import web

from crewel.bayeux.codec import join
from crewel.broker.outbox.exchange import Peer
from crewel.errors import Limited, PayloadError
from crewel.transports.connection import Connection

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint
    from crewel.transports.origins import Client

_WATCH_INTERVAL = 1.0  # seconds between looks at a connection that cannot tell by itself that it is gone


class ParsedPeer(Peer):
    """A peer whose request, or upgrade, aiohttp parsed."""

    __slots__ = ("_client", "_endpoint", "_request")

    def __init__(self, endpoint: Endpoint, request: web.Request, client: Client) -> None:
        super().__init__(endpoint.cookie.read(request.headers))
        self._endpoint = endpoint
        self._request = request
        self._client = client

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


class RequestPeer(ParsedPeer):
    """A request. It is answered once: with messages, or with the status of a superseded connect."""

    __slots__ = ("_response", "_waiter")

    def __init__(self, endpoint: Endpoint, request: web.Request, client: Client) -> None:
        super().__init__(endpoint, request, client)
        self._response: web.Response | None = None
        self._waiter: asyncio.Future[None] | None = None

    def payload(self, parts: list[bytes]) -> web.Response:
        """The response that carries these messages."""
        return web.Response(
            body=join(parts), content_type="application/json", headers={"Cache-Control": "no-cache, no-store"}
        )

    def send(self, parts: list[bytes]) -> None:
        """Answer the request with these messages."""
        response = self.payload(parts)
        if self.mints_cookie and self.browser is not None:
            cookie = self._endpoint.cookie.header(self.browser, is_secure=self._client.is_secure)
            response.headers["Set-Cookie"] = cookie
        self._answer(response)

    def supersede(self) -> None:
        """End the held connect as the reference has it: a status that browsers do not repeat by themselves."""
        status = self._endpoint.settings.bayeux.duplicate_connect_status
        self._answer(web.Response(status=status, text="replaced by a newer connect"))

    async def answered(self) -> web.Response:
        """The response, once there is one. If the connection is lost meanwhile, the held connect is let go."""
        if self._response is None:
            self._waiter = asyncio.get_running_loop().create_future()
            connection = self._request.protocol
            watcher = None
            if isinstance(connection, Connection):
                connection.park(self, self._endpoint.broker.outbound)
            else:  # mounted in somebody else's server, whose connections are plain
                watcher = asyncio.ensure_future(self._watch())
            try:
                await self._waiter
            finally:
                if watcher is not None:
                    watcher.cancel()
                if isinstance(connection, Connection):
                    connection.unpark()
                if self._response is None:
                    self._endpoint.broker.outbound.vanished(self)
        return self._response or web.Response(status=499)

    def abandon(self) -> None:
        """The connection is lost: nobody waits for the answer any more."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _watch(self) -> None:
        # aiohttp tells a handler nothing when the peer is gone, unless its runner was made with handler_cancellation.
        while self._request.transport is not None:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_WATCH_INTERVAL)
        self.abandon()

    def _answer(self, response: web.Response) -> None:
        self._response = response
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def too_many(error: Limited) -> web.Response:
    """The answer to a request beyond a limit: when to try again, and which limit it is."""
    seconds = str(ceil(error.wait_ms / 1000))
    response = web.Response(status=429, text=error.message, headers={"Retry-After": seconds})
    response.force_close()  # the body is not worth reading
    return response


def refused(error: PayloadError) -> web.Response:
    """The answer to a request that is refused as a whole: a status, and the reason in words."""
    response = web.Response(status=error.fault.http_status, text=str(error))
    response.force_close()  # what is left of the body is not worth reading
    return response
