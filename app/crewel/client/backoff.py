"""How long to wait before trying again. Pure: the randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffRule:
    """Exponential delays in seconds, jittered downwards.

    The n-th delay in a row is `initial * factor**n`, at most `maximum`, times
    something between one half and one: clients that lost the same server at
    the same moment do not come back at the same moment.
    """

    initial: float = 0.2
    factor: float = 2.0
    maximum: float = 30.0

    def __post_init__(self) -> None:
        if self.initial <= 0 or self.factor < 1 or self.maximum < self.initial:
            raise ValueError(f"not a back-off: {self}")

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` (0, 1, …) earlier ones; `chance` is in [0, 1)."""
        # The exponent is capped: 2.0**1100 is an OverflowError, not infinity.
        full = min(self.maximum, self.initial * self.factor ** min(failures, 64))
        return full * (0.5 + chance / 2)


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
