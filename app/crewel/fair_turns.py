"""What clients ask for, in turns of the event loop that their addresses share: one client that asks for much keeps no other.

libuv reads all that epoll reports, and looks again, before anything else has a turn. A thousand sockets with a millisecond of
work each would be one turn of a second. So a turn serves clients for `slice_s`, and puts the others off: to read and keep what
they sent takes a tenth of the time. Those that wait have their turns by address, and those of one address in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

from crewel.addresses import holder_of
from crewel.event_loop import TURN_S

SLICE_S: Final = TURN_S / 2
"""How long clients are served in one turn of the loop, nearly: receivers have the other half."""
PORTION_S: Final = TURN_S / 10
"""How long one client is served, nearly, before the next."""
AMID: Final = 8
"""Other work of an address that comes before what has begun: so a short request behind a long one has its turn soon."""
SAMPLE: Final = 32
"""Requests that are served without a look at the clock, while none of them is long."""
AGAIN: Final = 8
"""Requests that are served without a look at the clock in a turn whose end is known."""

Work = Callable[[], object]


class FairTurns:
    """The clients that wait for their turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter) -> None:
        self._loop = loop
        self._clock = clock
        self.slice_s = SLICE_S
        self.until = 0.0
        """The end of this turn by the clock; 0: nothing has been found to be long in it."""
        self._new: dict[str, deque[Work]] = {}
        """Addresses of which nothing was waiting when this came, and all that has come since."""
        self._waiting: dict[str, deque[Work]] = {}
        """Addresses that have had a turn, and wait for the next one."""
        self._was_new = False  # the one that had its turn last
        self._is_serving = False
        self.unseen = SAMPLE
        """How many requests are still served without a look at the clock. Those that are found in their connections count
        here themselves, and ask only if this is used up: a call for each would cost too much. It is used up when one is long,
        and while some wait."""

    # For those that come

    def is_over(self) -> bool:
        """Whether this turn has been long enough, or others wait already: then leave what has come to `later`."""
        if self._is_serving:
            return False
        if not self.until:
            self._begin()
        if self._waiting or self._new or self._clock() >= self.until:
            return True
        self.unseen = AGAIN
        return False

    def put_off(self, address: str | None, work: Work) -> bool:
        """Whether this turn has been long enough: then the work is done in a later one. Otherwise do it now."""
        if not self.is_over():
            return False
        self.later(address, work)
        return True

    def is_late(self) -> bool:
        """Whether this turn ended some time ago, and what comes keeps it from the next one."""
        return self.until != 0.0 and self._clock() >= self.until + self.slice_s

    def portion(self) -> float:
        """When a piece of work that begins now should leave its rest to `later`, by `perf_counter`."""
        if not self.until:
            self._begin()
        self.unseen = 0
        return self._clock() + PORTION_S

    def later(self, address: str | None, work: Work, *, has_begun: bool = False) -> None:
        """Do this for a client at the address, in a later turn of the loop. `has_begun`: it is the rest of something, so only
        `AMID` others of the address come before."""
        holder = holder_of(address)
        waiting = self._waiting.get(holder) or self._new.get(holder)
        if waiting is None:
            (self._waiting if has_begun else self._new)[holder] = deque((work,))
        elif has_begun:
            waiting.insert(AMID, work)
        else:
            waiting.append(work)
        self.unseen = 0
        if not self.until:
            self._begin()

    def lend(self) -> None:
        """A task works for a portion behind this turn, which is so much shorter."""
        if not self.until:
            self._begin()
        self.until -= PORTION_S

    async def rest(self, address: str | None, *, has_begun: bool = True) -> None:
        """Return in a later turn. The task may then work for a portion."""
        done = self._loop.create_future()
        self.later(address, partial(self._wake, done), has_begun=has_begun)
        await done

    # Inner

    def _wake(self, done: asyncio.Future[None]) -> None:
        if not done.done():
            done.set_result(None)
            self.lend()

    def _begin(self) -> None:
        self.until = self._clock() + self.slice_s
        self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Another turn: those that wait are first. The one after the last of them counts what they took."""
        has_served = bool(self._waiting or self._new)
        self.until = self._clock() + self.slice_s
        self._is_serving = True
        try:
            while self._waiting or self._new:
                self._next()()
                if self._clock() >= self.until:
                    break
        finally:
            self._is_serving = False
            self.unseen = 0
            if has_served:
                self._loop.call_soon(self._serve)
            else:
                self.until, self.unseen = 0.0, SAMPLE

    def _next(self) -> Work:
        """The first of the address whose turn it is, which is then the last. New addresses are first, but only one of them
        before one that has waited."""
        self._was_new = bool(self._new) and not (self._was_new and self._waiting)
        holders = self._new if self._was_new else self._waiting
        holder = next(iter(holders))
        waiting = holders.pop(holder)
        work = waiting.popleft()
        if waiting:
            self._waiting[holder] = waiting
        return work
