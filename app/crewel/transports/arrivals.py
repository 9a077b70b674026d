"""New clients in turns, so that a storm of them does not keep those that are there.

libuv reads all that epoll reports, and looks again, before anything else has a turn. With thousands of clients that come at
once, and ask again as soon as they are answered, one turn of the loop would serve nearly all of them. So a turn serves
new clients for `TURN_S`, and puts the others off, in their order: to read and keep what they sent takes a tenth of the
time. A client is new from its upgrade to its third frame, which is mostly the connect that is held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from crewel.event_loop import TURN_S


class Arrivals:
    """The new clients that wait for their turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter) -> None:
        self._loop = loop
        self._clock = clock
        self.slice_s = TURN_S
        """How long one turn is, nearly."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._until = 0.0  # by the clock; 0: no new client has come in this turn
        self._is_serving = False

    def put_off(self, serve: Callable[[], None]) -> bool:
        """Whether this turn has been long enough: then `serve` is called in a later one. Otherwise serve it now."""
        if self._is_serving:
            return False
        if not self._until:
            self._until = self._clock() + self.slice_s
            self._loop.call_soon(self._serve)
            return False
        if not self._waiting and self._clock() < self._until:
            return False
        self._waiting.append(serve)
        return True

    def _serve(self) -> None:
        """Another turn: those that wait are first."""
        until = self._until = self._clock() + self.slice_s
        self._is_serving = True
        try:
            while self._waiting and self._clock() < until:
                self._waiting.popleft()()
        finally:
            self._is_serving = False
            if self._waiting:
                self._loop.call_soon(self._serve)
            else:
                self._until = 0.0
