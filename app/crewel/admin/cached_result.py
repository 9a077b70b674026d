"""Results that cost much: worked out when a page asks, and kept for a while, so that many pages cost what one costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

_SHARE: Final = 20
"""A result is kept so many times as long as it took to work it out, at least."""
T = TypeVar("T")


class CachedResult(Generic[T]):
    """One such result."""

    def __init__(self, work: Callable[[], Awaitable[T]], seconds: float) -> None:
        """`work` works it out; it is kept for so many seconds, or longer if that took long."""
        self._work = work
        self._seconds = seconds
        self._last: T | None = None
        self._until = 0.0
        self._drops = 0
        self._lock = asyncio.Lock()

    async def get(self) -> T:
        """The last one, if it is new enough; else a new one. Raises what the work raises, and asks again next time."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._last is None or loop.time() >= self._until:
                began, drops = loop.time(), self._drops
                self._last = await self._work()
                now = loop.time()
                if drops == self._drops:
                    self._until = now + max(self._seconds, _SHARE * (now - began))
            return self._last

    def drop(self) -> None:
        """It is out of date, and so is the one that is being worked out: the next caller gets a new one."""
        self._until, self._drops = 0.0, self._drops + 1
