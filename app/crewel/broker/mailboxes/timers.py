"""Deadlines of sessions: one heap for all of them, and one timer of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from crewel.broker.session import Session
from crewel.event_loop import GRACE_S, has_stalled

_WORTH_CLEARING = 64


class Timers:
    """One heap of deadlines for all sessions, and one timer of the event loop for the heap. `on_timer(session, now)` is called
    at a session's deadline and returns its next one, or infinity.

    A session is in the heap at most once that counts. A deadline that moves into the future is not moved in the heap: when the
    old one fires, the session says when its next one is. So holding and releasing a connect touches no timer. Entries that no
    longer count are cleared away before they are the majority. A client may ask for a hold of a day, and a session that has
    ended must not stay in memory for as long.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_timer: Callable[[Session, float], float]) -> None:
        self._loop = loop
        self._on_timer = on_timer
        self._heap: list[tuple[float, int, Session]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = inf
        self._stale = 0  # entries of the heap that no longer count

    def __len__(self) -> int:
        """How many entries there are, those that no longer count included."""
        return len(self._heap)

    def at(self, session: Session, when: float) -> None:
        """Fire for the session at `when` (loop time, seconds) or earlier."""
        if when >= session.alarm:
            return
        self.forget(session)
        session.alarm = when
        heappush(self._heap, (when, next(self._order), session))
        if when < self._armed_for:
            self._arm(when)

    def forget(self, session: Session) -> None:
        """Fire for this session no more."""
        if session.alarm == inf:
            return
        session.alarm = inf
        self._stale += 1
        if self._stale > _WORTH_CLEARING and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].alarm]
            heapify(self._heap)
            self._stale = 0

    def close(self) -> None:
        """Fire no more."""
        self._heap.clear()
        self._stale = 0
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_for = None, inf

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_for = self._loop.call_at(when, self._fire), when

    def _fire(self) -> None:
        due = self._armed_for
        self._timer, self._armed_for = None, inf
        if has_stalled(due, self._loop.time()):
            self._arm(self._loop.time() + GRACE_S)  # what sessions wait for may have come meanwhile, and is read first
            return
        # What lies within the clock's own grain is due: a timer may fire a moment early.
        now = self._loop.time() + 0.001
        try:
            while self._heap and self._heap[0][0] <= now:
                when, _, session = heappop(self._heap)
                if when == session.alarm:
                    session.alarm = inf
                    self.at(session, self._on_timer(session, now))
                else:
                    self._stale -= 1
        finally:
            if self._heap and self._heap[0][0] < self._armed_for:
                self._arm(self._heap[0][0])
