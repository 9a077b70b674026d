"""Where the WebSockets of both lanes receive, one after another, and how much they receive when a turn has taken long."""

from __future__ import annotations

import asyncio
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from crewel.fair_turns import FairTurns

LEAST: Final = 1024
"""Bytes that are received at once when a turn has taken long."""
_SIZE: Final = 256 * 1024
"""Bytes that are received at once, about as many as by uvloop into a buffer of its own."""


class SharedBuffer:
    """That of one server: what has come is copied before the next socket has its turn."""

    def __init__(self, turns: FairTurns, arrivals: FairTurns, loop: asyncio.AbstractEventLoop) -> None:
        self._turns = turns
        self._arrivals = arrivals
        self._loop = loop
        self.whole = mmap(-1, _SIZE, MAP_PRIVATE | MAP_ANONYMOUS)  # a part of it is bytes, in one step
        self._least = memoryview(self.whole)[:LEAST]
        self.room: mmap | memoryview = self.whole
        """How much of it is used for what comes next."""

    def receive_less(self) -> None:
        """What is received now cannot be served in this turn. To receive it costs as well, and uvloop receives from all sockets
        that are ready: if this turn has taken long, a little of each has to do."""
        if self.room is self.whole and (self._turns.is_late() or self._arrivals.is_late()):
            self.room = self._least
            self._loop.call_soon(self._receive_all)

    def _receive_all(self) -> None:
        self.room = self.whole


class SharedReceiver(asyncio.BufferedProtocol):
    """Receives there for a protocol that takes bytes, and leaves all else to it."""

    def __init__(self, protocol: asyncio.Protocol, buffer: SharedBuffer) -> None:
        self._protocol = protocol
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> mmap | memoryview:
        """Where the next bytes go."""
        return self._buffer.room

    def buffer_updated(self, nbytes: int) -> None:
        """Pass them on. The next socket uses the buffer again."""
        self._protocol.data_received(self._buffer.whole[:nbytes])

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._protocol.connection_lost(exc)
