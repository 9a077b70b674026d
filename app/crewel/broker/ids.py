"""The ids of messages that are not stored, and the keys of publishes that must not be repeated.

What is stored has its ids and its keys in the store. Its keys are remembered here too: the store forgets a key by the machine's
clock, and all of them at once if that is set ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

KEY_LIFETIME: Final = 120.0
"""Seconds for which a key is remembered."""
MAX_KEYS: Final = 100_000
"""Keys that are remembered at most; beyond that the oldest are forgotten first."""


T = TypeVar("T")


class Keys(Generic[T]):
    """What happened to the publish with which key. `clock` tells seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, T]] = {}  # in the order of time

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def first_of(self, key: str) -> T | None:
        """What happened to the publish with this key, if that was not long ago."""
        now = self._clock()
        known = self._known.get(key)
        return known[1] if known is not None and known[0] > now - KEY_LIFETIME else None

    def remember(self, key: str, first: T) -> None:
        """A message was published with this key."""
        now = self._clock()
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest][0] > now - KEY_LIFETIME and len(self._known) < MAX_KEYS:
                break
            del self._known[oldest]
        self._known[key] = (now, first)

    def forget(self) -> None:
        """What was published may be lost: each key may be used again."""
        self._known.clear()


class Ids(Keys[str]):
    """`<milliseconds>-<number>-<node>`. `clock` tells seconds since the epoch."""

    def __init__(self, node: str, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._node = node
        self.stored: Keys[str] = Keys(clock)
        """The keys of what is stored, with its ids."""
        self.addressed: Keys[Any] = Keys(clock)
        """The keys of what is addressed to a receiver and stored, with what its publisher was answered."""
        self._last_ms = 0
        self._last_ns = 0
        self._number = 0

    def stamp(self) -> tuple[str, str]:
        """A new id, and when the message was accepted: nanoseconds since 1970 in digits, later than all before."""
        self._last_ns = max(self._last_ns + 1, int(self._clock() * 1_000_000) * 1000)
        return self.new(), str(self._last_ns)

    def new(self) -> str:
        """An id that no other message has, later than all before it."""
        now_ms = int(self._clock() * 1000)
        if now_ms > self._last_ms:
            self._last_ms, self._number = now_ms, 0
        else:
            self._number += 1
        return f"{self._last_ms}-{self._number}-{self._node}"


RATE: Final = 0.1
"""How much of the time that passes is spent on coming nearer to the machine's clock, if that was set."""


_MOST_AHEAD: Final = 86_400.0


elapsed: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Returns the seconds since the machine started, sleep included where the system counts it."""


class Clock:
    """Called, it tells seconds since 1970, never fewer than before. `wall` is the machine's clock, `elapsed` one that cannot be
    set."""

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = elapsed) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._looked_at = elapsed()
        self._now = wall()
        self._advanced = 0.0

    def __call__(self) -> float:
        """The time; one look at both clocks."""
        looked_at = self._elapsed()
        passed, self._looked_at = looked_at - self._looked_at, looked_at
        ahead = self._wall() + self._advanced - (self._now + passed)
        most = passed * RATE
        self._now += passed + min(max(ahead, -most), most)
        return self._now

    def microseconds(self) -> int:
        """The time in microseconds since 1970."""
        return int(self() * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Let so much time have passed: for servers under test, whose time is virtual."""
        self._now += seconds
        self._advanced += seconds

    def continue_from(self, microseconds: int) -> None:
        """It was as late as this when the server ran before, says the store. A machine's clock that was set back meanwhile is
        approached as one that is set back while the server runs, so that no message lives on. What is more than `_MOST_AHEAD`
        ahead is not believed: the store's clock was wrong then."""
        then = microseconds / 1_000_000
        if 0 < then - self._now <= _MOST_AHEAD:
            self._now = then
