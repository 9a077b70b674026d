"""How many persistent messages of long requests one account may have on their way into the log at a time.

The log has one order, so a publish is answered when all that was accepted before it is in it. Without a bound, eight requests
of one client with 400 messages each would come before every other publish.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

_MOST: Final = 400


class PublishesInFlight:
    """Lets requests of an account in, one after the other; a request that is longer than the bound comes alone."""

    def __init__(self) -> None:
        self.most = _MOST
        """Messages of one account that are on their way at a time."""
        self._under_way: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def enter(self, payer: str, count: int) -> None:
        """Wait until so many messages of this account may come; `leave` has to follow."""
        under_way = self._under_way.get(payer, 0)
        if not under_way or (under_way + count <= self.most and payer not in self._waiting):
            self._under_way[payer] = under_way + count
            return
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(payer, deque()).append((count, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave(payer, count)
            raise

    def leave(self, payer: str, count: int) -> None:
        """So many messages of this account have been answered."""
        under_way, waiting = self._under_way.pop(payer) - count, self._waiting.get(payer, deque())
        while waiting and (not under_way or under_way + waiting[0][0] <= self.most):
            next_count, admitted = waiting.popleft()
            if not admitted.done():
                under_way += next_count
                admitted.set_result(None)
        if under_way:
            self._under_way[payer] = under_way
        if not waiting:
            self._waiting.pop(payer, None)
