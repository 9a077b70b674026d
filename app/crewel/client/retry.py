"""When to try again: what the server advises, how long to wait after a failure, and how long for a name. Pure: time and chance
are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from crewel.client.arguments import check_kind, check_number
from crewel.client.errors import NameTaken

_NAME_SLACK = 5.0
"""Seconds for which a client tries beyond the time at which its name should be free."""
_NAME_PAUSE = 0.05


class Reconnect(Enum):
    """What to do next."""

    RETRY = "retry"
    HANDSHAKE = "handshake"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice; times in seconds (milliseconds on the wire)."""

    reconnect: Reconnect = Reconnect.RETRY
    interval: float = 0.0
    """How long to wait before the next connect or handshake."""
    timeout: float = 60.0
    """How long the server holds a connect."""
    max_interval: float = 0.0
    """When positive: how long an unconnected session lives beyond interval."""

    @property
    def session_lifetime(self) -> float | None:
        """Seconds without a connect after which the session is surely gone, or None: unknown."""
        if self.max_interval <= 0:
            return None
        return self.timeout + self.interval + self.max_interval


def read_advice(wire: object) -> Advice | None:
    """The advice in a reply's `advice` field, or None if there is no such object.

    Values of a wrong type count as left out: advice steers, and a reply must
    not become unusable because a part of its advice is.
    """
    if not isinstance(wire, Mapping):
        return None
    default = Advice()
    return Advice(
        reconnect=_reconnect(wire.get("reconnect"), default.reconnect),
        interval=_seconds(wire.get("interval"), default.interval),
        timeout=_seconds(wire.get("timeout"), default.timeout),
        max_interval=_seconds(wire.get("maxInterval"), default.max_interval),
    )


def _reconnect(value: Any, default: Reconnect) -> Reconnect:
    try:
        return Reconnect(value)
    except ValueError:
        return default


def _seconds(value: Any, default: float) -> float:
    # bool is an int to Python, but not to JSON.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return max(0.0, value / 1000)


@dataclass(frozen=True, slots=True)
class BackoffRule:
    """Exponential delays in seconds, jittered downwards.

    The n-th delay in a row is `initial * factor**n`, at most `maximum`, times something between one half and one. So clients
    that lost the same server at the same moment do not come back at the same moment.
    """

    initial: float = 0.2
    factor: float = 2.0
    maximum: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_number(name, getattr(self, name))
        if self.initial <= 0 or self.factor < 1 or self.maximum < self.initial:
            raise ValueError(f"not a back-off: {self}")

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` (0, 1, …) earlier ones; `chance` is in [0, 1)."""
        # The exponent is capped: 2.0**1100 is an OverflowError, not infinity.
        full = min(self.maximum, self.initial * self.factor ** min(failures, 64))
        return full * (0.5 + chance / 2)


def check_backoff(name: str, value: object) -> None:
    """Raises TypeError for anything but a rule: a number would not say how the pauses grow."""
    check_kind(name, value, "a BackoffRule, such as BackoffRule(initial=0.2, factor=2, maximum=30)", BackoffRule)


class Backoff:
    """Counts failures in a row and says how long to wait after each."""

    def __init__(self, rule: BackoffRule, chance: Callable[[], float]) -> None:
        self._rule = rule
        self._chance = chance
        self._failures = 0

    def failed(self) -> float:
        """Seconds to wait after this failure."""
        delay = self._rule.delay(self._failures, self._chance())
        self._failures += 1
        return delay

    def succeeded(self) -> None:
        """The next failure is the first again."""
        self._failures = 0


class NameWait:
    """How long a client waits for its name while the session's last client is gone: as long as the server says."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._until: float | None = None

    def delay(self, error: NameTaken, now: float) -> float | None:
        """Seconds until the next attempt; None: there is no use in waiting, or not any more."""
        if error.retry_after is None:
            return None
        if self._until is None:
            known = error.retry_after + _NAME_SLACK
            self._until = now + (known if self._limit is None else min(known, self._limit))
        delay = error.retry_after + _NAME_PAUSE
        return delay if now + delay <= self._until else None
