"""The time of day as the server goes by it: it neither jumps nor goes back, whatever is done to the machine's clock.

Messages get their times from it and their lives are counted by it, so that a clock that is set lets none expire at once, and
none live until the old time comes again. What is stored has these times too; a restart begins with the machine's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

RATE: Final = 0.1
"""How much of the time that passes is spent on coming nearer to the machine's clock, if that was set."""


def _elapsed() -> float:
    """Seconds since the machine started, sleep included where the system counts it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Called, it tells seconds since 1970, never fewer than before. `wall` is the machine's clock, `elapsed` one that cannot be
    set."""

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _elapsed) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._looked_at = elapsed()
        self._now = wall()

    def __call__(self) -> float:
        """The time; one look at both clocks."""
        looked_at = self._elapsed()
        passed, self._looked_at = looked_at - self._looked_at, looked_at
        ahead = self._wall() - (self._now + passed)
        most = passed * RATE
        self._now += passed + min(max(ahead, -most), most)
        return self._now

    def microseconds(self) -> int:
        """The same in microseconds."""
        return int(self() * 1_000_000)
