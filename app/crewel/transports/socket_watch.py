"""Closes WebSockets that are silent for too long, and those that belong to no session in time: one timer for all of a server.

Only messages count: a peer that sends pings, pongs or parts of messages is silent.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from crewel.event_loop import has_stalled
from crewel.metrics import Metrics
from crewel.settings.server_settings import WebSocket

POLICY_VIOLATION: Final = 1008
GOING_AWAY: Final = 1001
GOING_DOWN: Final = "the server is going down"
_SILENT: Final = "no message came for too long (websocket.idle_timeout_ms)"
_NO_HANDSHAKE: Final = "no handshake came in time (websocket.handshake_timeout_ms)"
_LONGEST_INTERVAL_S: Final = 30.0
_PARTS: Final = 8
"""Into how many parts a deadline is cut by the looks at it: a socket is closed so much of it later at most."""


class Watched(Protocol):
    """A socket that is watched."""

    is_heard_from: bool
    """Whether a message has come since the last look at all sockets."""
    heard_at: float
    """Loop time (s) of the last look that found one."""

    @property
    def has_session(self) -> bool:
        """Whether it belongs to a session."""
        ...

    @property
    def waits_for_server(self) -> bool:
        """Whether its client has sent something, takes the answer, and has none yet."""
        ...

    def shut(self, code: int, reason: str) -> None:
        """Close it; nothing happens if it is being closed already."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Close it, and wait until it is gone."""
        ...


class SocketWatch:
    """The open sockets of one server."""

    def __init__(self, settings: WebSocket, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._idle_timeout = settings.idle_timeout_ms / 1000
        self._handshake_timeout = settings.handshake_timeout_ms / 1000
        self._metrics = metrics
        self._loop = loop
        self.sockets: set[Watched] = set()
        self._new: dict[Watched, float] = {}  # those that came lately, and when (loop time, s); the oldest first
        self._next_look = 0.0  # loop time (s) at which silent sockets are looked for
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when that fires (loop time, s)

    def add(self, socket: Watched) -> None:
        """A socket has come."""
        self.sockets.add(socket)
        now = self._new[socket] = self._loop.time()
        if self._timer is None:
            self._wait(now)
        elif self._due > now + self._handshake_timeout / _PARTS:
            self._timer.cancel()
            self._wait(now)

    def discard(self, socket: Watched) -> None:
        """A socket has ended."""
        self.sockets.discard(socket)
        self._new.pop(socket, None)

    # Inner

    def _wait(self, now: float) -> None:
        self._due = max(self._next_look, now)
        if self._new:
            self._due = min(self._due, now + self._handshake_timeout / _PARTS)
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        """Close the sockets that are late. There is no timer while there is no socket."""
        self._timer = None
        now = self._loop.time()
        # After a stall, what a client seems not to have sent may have come and has not been read.
        if not has_stalled(self._due, now):
            self._close_new(now)
        if now >= self._next_look:
            self._next_look = now + min(self._idle_timeout / _PARTS, _LONGEST_INTERVAL_S)
            self._close_silent(now)
        if self.sockets:
            self._wait(now)

    def _close_silent(self, now: float) -> None:
        for socket in list(self.sockets):
            if socket.is_heard_from:
                socket.is_heard_from, socket.heard_at = False, now
            elif socket.heard_at <= now - self._idle_timeout:
                socket.shut(GOING_AWAY, _SILENT)

    def _close_new(self, now: float) -> None:
        late = []
        for socket, came_at in self._new.items():
            if came_at > now - self._handshake_timeout:
                break  # as all behind it
            late.append(socket)
        for socket in late:
            del self._new[socket]
            if socket.waits_for_server:
                self._new[socket] = now
            elif not socket.has_session:
                self._metrics.refused_payloads["no_handshake"] += 1
                socket.shut(POLICY_VIOLATION, _NO_HANDSHAKE)
