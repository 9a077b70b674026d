"""One connection of the server: aiohttp's own protocol, with what a server of held requests needs on top.

- A peer that does not finish its headers is cut off (`http.header_timeout_ms`).
- A peer whose request is held, and who is gone, is noticed at once and not at the end of the hold.
- A peer that closed only its own direction still gets its answer (asyncio closes both by itself).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

if TYPE_CHECKING:
    from crewel.broker.outbound import Outbound
    from crewel.transports.requests import RequestPeer

__all__ = ["Connection", "mark_requests"]


class Connection(RequestHandler):
    """aiohttp's protocol for one connection, watched."""

    __slots__ = ("_header_timeout", "_header_timer", "_is_busy", "_outbound", "_parked")

    def __init__(self, manager: web.Server, *, header_timeout: float, **options: Any) -> None:
        super().__init__(manager, **options)
        self._header_timeout = header_timeout
        self._header_timer: asyncio.TimerHandle | None = None
        self._is_busy = False  # between the end of a request's headers and the end of its response
        self._parked: RequestPeer | None = None
        self._outbound: Outbound | None = None

    def park(self, peer: RequestPeer, outbound: Outbound) -> None:
        """Tell this peer, whose request is held, what becomes of the connection."""
        self._parked = peer
        self._outbound = outbound

    def unpark(self) -> None:
        """The held request is answered."""
        self._parked = None

    def begin(self) -> None:
        """The headers of a request are complete."""
        self._is_busy = True
        self._stop_timer()

    def end(self) -> None:
        """Its response is ready."""
        self._is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time for the first headers."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Pass on what came; if it begins a request, its headers must be complete in time."""
        if not self._is_busy and self._header_timer is None:
            self._start_timer()
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The peer sends no more. True keeps the connection open while it still has an answer to get."""
        parked = self._parked
        if parked is not None and self._outbound is not None:
            self._outbound.half_closed(parked)
        if not self._is_busy:
            return False
        self.keep_alive(False)
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, and with it the one who waits for a held connect."""
        self._stop_timer()
        super().connection_lost(exc)
        if self._parked is not None:
            self._parked.abandon()

    def _start_timer(self) -> None:
        self._header_timer = self._loop.call_later(self._header_timeout, self._cut_off)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _cut_off(self) -> None:
        self._header_timer = None
        if not self._is_busy:
            self.force_close()


@web.middleware
async def mark_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection where a request begins and ends."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return await handler(request)
    connection.begin()
    try:
        return await handler(request)
    finally:
        connection.end()
