"""Token buckets: how often something may be done. `now` is an argument, in seconds of any clock that does not go back."""

from __future__ import annotations

from typing import Final, NamedTuple


class Rate(NamedTuple):
    """So many a second, and so many at once after a pause."""

    per_s: int
    """0: no limit."""
    burst: int


UNLIMITED: Final = Rate(0, 0)


class Bucket:
    """The tokens of one holder. The rate is an argument of each question, because it may change while the server runs. A new
    bucket is full."""

    __slots__ = ("_at", "_left")

    def __init__(self, rate: Rate, now: float) -> None:
        self._left = float(rate.burst)
        self._at = now

    def available(self, rate: Rate, now: float) -> int:
        """The number of whole tokens that there are now; below 0 after a request that took more than there were."""
        self._left = min(float(rate.burst), self._left + (now - self._at) * rate.per_s)
        self._at = now
        return int(self._left // 1)

    def spend(self, count: int) -> None:
        """Take so many tokens, after `available` has said how many there are."""
        self._left -= count

    def take(self, rate: Rate, count: int, now: float) -> float:
        """Take so many tokens and return 0.0; or take none, and return the seconds after which they will be there. More than
        the burst at once is possible when the bucket is full: the holder then waits until the rest is made up for."""
        needed = min(count, rate.burst)
        available = self.available(rate, now)
        if available >= needed:
            self.spend(count)
            return 0.0
        return (needed - self._left) / rate.per_s

    def is_full(self, rate: Rate, now: float) -> bool:
        """Whether the bucket says nothing that a new one would not."""
        return self.available(rate, now) >= rate.burst
