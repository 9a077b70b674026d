"""How busy the store is: one thread does all that is asked of it, so the share of a core that it uses shows its limit before
that is reached.

Pure: what INFO says and when go in, figures of the last minute come out.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from crewel.storage.store_info import StoreInfo

SECTIONS: Final = ("cpu", "commandstats", "debug")
"""The sections of INFO that say it."""
BUSY: Final = 0.6
"""Cores of the store's thread from which on it is near its limit, which is one."""
WAITING: Final = 0.5
"""The part of the time in which it waits for its disk from which on the disk is the limit."""
_KEPT_S: Final = 60.0


class Load(NamedTuple):
    """What the store has done in a while, all that share it together."""

    busy: float
    """Cores that its thread has used: 1 is all that there is."""
    waiting: float
    """The part of the time in which its thread has written to its disk and waited for it; NaN if the store does not tell."""
    steps: float
    """Scripts a second."""


class _Look(NamedTuple):
    at: float
    busy_s: float
    waiting_s: float
    steps: int


class LoadMeter:
    """The figures of one run of a store."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()

    def look(self, info: StoreInfo, now: float) -> None:
        """Note what the store says now, by a clock in seconds that never goes back. One that has restarted begins again."""
        looks, look = self._looks, _Look(now, info.busy_s, info.disk_s, info.steps)
        if looks and look.busy_s < looks[-1].busy_s:
            looks.clear()
        looks.append(look)
        while len(looks) > 2 and looks[1].at <= now - _KEPT_S:
            looks.popleft()

    @property
    def load(self) -> Load | None:
        """The load of the last minute, or of the time since the first look; None before the second one."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        seconds = max(last.at - first.at, 0.001)
        return Load(
            (last.busy_s - first.busy_s) / seconds,
            min((last.waiting_s - first.waiting_s) / seconds, 1.0),
            (last.steps - first.steps) / seconds,
        )
