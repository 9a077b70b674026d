"""PURE. How much one address or one subject may ask of the server: token buckets, and accounts of what each has.

`now` is an argument, in seconds of any clock that does not go back. The number of accounts is bounded: one that has nothing and
whose buckets are full is forgotten, and beyond the bound all newcomers share one account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

OVERFLOW: Final = "others"
"""The name of the account that newcomers share when there are too many."""


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


class Account:
    """One address, or one subject."""

    __slots__ = ("buckets", "calls", "groups", "name", "quiet_until", "sessions", "subscriptions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions = 0
        self.subscriptions = 0
        self.groups = 0
        """Consumer groups that its sessions have joined, each once for each session."""
        self.calls = 0
        """Remote calls of its sessions that wait for their results."""
        self.buckets: dict[str, Bucket] = {}
        """The token buckets that were used, by what they limit."""
        self.quiet_until = 0.0
        """Until then (s) nothing more about it is written to the log."""

    def bucket(self, kind: str, rate: Rate, now: float) -> Bucket:
        """The bucket of this kind."""
        bucket = self.buckets.get(kind)
        if bucket is None:
            bucket = self.buckets[kind] = Bucket(rate, now)
        return bucket

    def take(self, kind: str, rate: Rate, count: int, now: float) -> float:
        """Take so many tokens of this kind and return 0.0, or return the seconds until they are there."""
        return self.bucket(kind, rate, now).take(rate, count, now) if rate.per_s else 0.0

    def is_idle(self, rate_of: Callable[[str], Rate], now: float) -> bool:
        """Whether a new account would be the same."""
        return not (self.sessions or self.calls) and all(
            bucket.is_full(rate, now) for kind, bucket in self.buckets.items() if (rate := rate_of(kind)) != UNLIMITED
        )


class Accounts:
    """Accounts by name; at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, Account] = {}
        self._round: Iterator[Account] = iter(())

    def __len__(self) -> int:
        return len(self._known)

    def of(self, name: str) -> Account:
        """The account of this name."""
        account = self._known.get(name)
        if account is None:
            # Strangers choose addresses: beyond the bound newcomers share one account instead of memory.
            if len(self._known) >= self._most:
                name = OVERFLOW
                account = self._known.get(name)
            if account is None:
                account = self._known[name] = Account(name)
        return account

    def sweep(self, rate_of: Callable[[str], Rate], now: float, count: int) -> None:
        """Look at the next so many accounts, and forget the idle ones among them."""
        for _ in range(count):
            account = next(self._round, None)
            if account is None:
                self._round = iter(list(self._known.values()))
                return
            if account.is_idle(rate_of, now):
                self._known.pop(account.name, None)
