"""How much the filters of one session may cost: a budget for each message, and one over time.

A step takes about a microsecond. What is allowed over time keeps the filters of one session at a few hundredths of a processor,
whatever they are and however many messages come.
"""

from __future__ import annotations

from typing import Final

from crewel.delivery.filters import MAX_STEPS

RATE: Final = 25_000
"""Steps a second that are added."""
BURST: Final = 100_000
"""Steps that can be saved up."""
ALWAYS: Final = 100
"""Steps for each message that are allowed whatever was spent before: more than most expressions ever take."""


class FilterBudget:
    """The steps of one session."""

    __slots__ = ("_at", "_left", "is_reported")

    def __init__(self, now: float) -> None:
        self._left: float = BURST
        self._at = now
        self.is_reported = False
        """Whether the log says already that it did not suffice."""

    def allowance(self, now: float) -> int:
        """The steps that may be taken for one message. `now` is in seconds, of a clock that never goes back."""
        self._left = min(BURST, self._left + (now - self._at) * RATE)
        self._at = now
        return max(ALWAYS, min(MAX_STEPS, int(self._left)))

    def spend(self, steps: int) -> None:
        """So many were taken."""
        self._left = max(0.0, self._left - steps)
