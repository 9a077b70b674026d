"""One heap of deadlines for all sessions, and one timer of the event loop for the heap.

A session is in the heap at most once that counts: a deadline that moves into the future is not moved in the heap; when
the old one rings, the session says when it wants to be rung next. So holding and releasing a connect touches no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crewel.broker.sessions import Session

__all__ = ["Alarms"]


class Alarms:
    """Rings sessions at their deadlines. `ring(session, now)` returns the session's next deadline, or infinity."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[Session, float], float]) -> None:
        self._loop = loop
        self._ring = ring
        self._heap: list[tuple[float, int, Session]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = inf

    def at(self, session: Session, when: float) -> None:
        """Ring the session at `when` (loop time, seconds) or earlier."""
        if when >= session.alarm:
            return
        session.alarm = when
        heappush(self._heap, (when, next(self._order), session))
        if when < self._armed_for:
            self._arm(when)

    def close(self) -> None:
        """Ring nobody any more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_for = None, inf

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_for = self._loop.call_at(when, self._fire), when

    def _fire(self) -> None:
        self._timer, self._armed_for = None, inf
        # What lies within the clock's own grain is due: a timer may fire a moment early.
        now = self._loop.time() + 0.001
        try:
            while self._heap and self._heap[0][0] <= now:
                when, _, session = heappop(self._heap)
                if when == session.alarm:
                    session.alarm = inf
                    self.at(session, self._ring(session, now))
        finally:
            if self._heap and self._heap[0][0] < self._armed_for:
                self._arm(self._heap[0][0])
