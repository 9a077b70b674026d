"""Where WebSockets receive, one after another, and how much they receive when a turn has taken long."""

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
        self._most = memoryview(self.whole)  # a part of it is memory, as asyncio needs with TLS
        self._least = self._most[:LEAST]
        self.room = self._most
        """How much of it is used for what comes next."""

    def receive_less(self) -> None:
        """What is received now cannot be served in this turn. To receive it costs as well, and uvloop receives from all sockets
        that are ready: if this turn has taken long, a little of each has to do."""
        if self.room is self._most and (self._turns.is_late() or self._arrivals.is_late()):
            self.room = self._least
            self._loop.call_soon(self._receive_all)

    def _receive_all(self) -> None:
        self.room = self._most
