"""Since when the queues of receivers are full, and how many messages they have turned away.

It is summed up once in each group of events, not message by message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import Final

MOST_RECEIVERS: Final = 2000
"""Receivers that are remembered; of more, those that turned something away least recently are forgotten."""
_GAP_MS: Final = 60_000
"""Messages that are turned away within this time belong together."""


@dataclass(slots=True)
class Overflow:
    """What one queue has turned away since it was full."""

    since: int
    """When the first message was turned away: milliseconds since 1970."""
    at: int
    """When the last one was."""
    count: int
    policy: str
    """What happened to them, as `onOverflow` of the queue says."""


class TurnedAway:
    """Those of one server. `clock` tells seconds since 1970."""

    def __init__(self, oldest: Callable[[str], int | None], clock: Callable[[], float] = time) -> None:
        """`oldest` says when the oldest message was published that waits for a receiver (milliseconds since 1970), None if
        none does."""
        self._oldest = oldest
        self._clock = clock
        self._known: OrderedDict[str, Overflow] = OrderedDict()

    def add(self, name: str, policy: str, count: int) -> None:
        """The queue of this receiver has turned away so many more."""
        if not name:
            return
        now = int(self._clock() * 1000)
        known = self._known.get(name)
        if known is None or known.policy != policy or self._is_over(name, known, now):
            self._known[name] = Overflow(now, now, count, policy)
        else:
            known.at, known.count = now, known.count + count
        self._known.move_to_end(name)
        if len(self._known) > MOST_RECEIVERS:
            self._known.popitem(last=False)

    def of(self, name: str) -> Overflow | None:
        """What the queue has turned away while it was full, unless all that waited then is gone."""
        known = self._known.get(name)
        if known is not None and self._is_over(name, known, int(self._clock() * 1000)):
            return None
        return known

    def _is_over(self, name: str, known: Overflow, now: int) -> bool:
        """Whether the queue was emptied since: of what waited when it turned away the last message, nothing waits any more."""
        if now - known.at <= _GAP_MS:
            return False
        oldest = self._oldest(name)
        return oldest is None or oldest > known.at
