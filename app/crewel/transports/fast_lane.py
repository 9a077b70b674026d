"""What the connections of a server share (`http_fast`), and the watch on their deadlines and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from crewel.event_loop import has_stalled
from crewel.transports.heads import Heads

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint
    from crewel.transports.http_connection import Connection
    from crewel.transports.http_fast import FastConnection

_MAX_WATCH_INTERVAL: Final = 1.0  # seconds between looks at the connections' deadlines


class FastLane:
    """What the connections of one server share: the endpoint, their deadlines, and the way to aiohttp."""

    def __init__(self, endpoint: Endpoint, make_connection: Callable[[], Connection]) -> None:
        self.endpoint = endpoint
        self.broker = endpoint.broker
        self.settings = endpoint.settings
        self.caps = endpoint.caps
        rules = endpoint.hosts, endpoint.origins, endpoint.proxies
        self.heads = Heads(endpoint.settings.bayeux, endpoint.cookie, endpoint.bound_page, *rules)
        self.answers = endpoint.settings.http.fast_lane and "long-polling" in endpoint.settings.bayeux.transports
        """Whether connections answer Bayeux themselves."""
        self.is_bayeux = self.heads.is_bayeux if self.answers else _never
        self.make_connection = make_connection
        self.connections: set[FastConnection] = set()
        self.lent: set[FastConnection] = set()
        """Those that aiohttp serves now."""
        self.readers: dict[FastConnection, tuple[int, float]] = {}
        """Those that aiohttp has written more than was read: how many bytes, and until when some must be taken."""
        self.loop = endpoint.broker.loop
        self.date = b""
        self.idle_deadline = inf
        """Loop time (s) at which a connection that has been answered now is idle for too long; a second early at most."""
        http = self.settings.http
        self.scheme = "http" if http.tls_cert is None else "https"
        self.header_timeout = http.header_timeout_ms / 1000
        self.body_timeout = 0.0
        self.keepalive = http.keepalive_ms / 1000
        # At hand, because each request needs them.
        self.receiver = endpoint.receiver
        self.turns = endpoint.broker.runtime.turns
        self.sockets = endpoint.sockets
        self._timer: asyncio.Handle | None = None
        self._due = inf
        self._emptied: asyncio.Event | None = None
        self._watch()

    def _watch(self) -> None:
        """Cut off peers that are too slow, every so often: one timer for all connections and none for each."""
        # They may change while the server runs; to ask the settings of each request takes as long as several steps.
        self.max_messages, self.max_depth = self.settings.bayeux.max_batch_messages, self.settings.bayeux.max_depth
        self.body_timeout = self.settings.http.body_timeout_ms / 1000
        now = self.loop.time()
        is_late = has_stalled(self._due, now)
        soonest = min(self.header_timeout, self.body_timeout, self.keepalive) / 4
        self._due = now + min(soonest, _MAX_WATCH_INTERVAL)
        self._timer = self.loop.call_at(self._due, self._watch)
        self.idle_deadline = now + self.keepalive
        self.date = f"Date: {formatdate(usegmt=True)}\r\n".encode()
        # After a stall, what a peer seems not to have sent may have come and has not been read.
        if is_late:
            return
        for connection in [each for each in chain(self.connections, self.lent) if each.deadline <= now]:
            connection.too_late()
        for connection in [each for each, (_, due) in self.readers.items() if due <= now]:
            connection.check_reader(self.readers.pop(connection)[0])

    def left(self, connection: FastConnection) -> None:
        """This connection has ended, is a socket, or is lent."""
        self.connections.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def lend(self, connection: FastConnection) -> None:
        """aiohttp serves this connection; at the end, its runner waits for it."""
        self.lent.add(connection)
        self.left(connection)

    def take_back(self, connection: FastConnection) -> None:
        """aiohttp has answered."""
        self.lent.discard(connection)
        self.connections.add(connection)

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109 - it is what the caller allows
        """Answer what is held, close what is idle now, and wait so many seconds for the rest to be answered."""
        if self._timer is not None:
            self._timer.cancel()
        # First those without a request: what is held is answered by `drain`, and its connection closes after the answer.
        for connection in [*self.connections, *self.lent]:
            connection.close_when_idle()
        self.broker.drain()
        if self.connections:
            self._emptied = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._emptied.wait()


def _never(_: bytes) -> bool:
    return False
