"""The dead letters of the last hour: how many, since when, of which receivers and with which codes. The store knows their
times, so that a restart of the server changes nothing.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

from crewel.admin.cached_result import CachedResult
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_groups import RecentPairs, recent_pairs
from crewel.storage.dead_letter_records import DeadLetterFilter

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView

_HOUR_MS: Final = 3_600_000
_KEPT_S: Final = 15.0


class LastHour(NamedTuple):
    """What is known of them."""

    made: int
    recent: RecentPairs


NONE: Final = LastHour(0, RecentPairs([], 0, None))


class NewDeadLetters:
    """Counts them when their number in the store has changed, and now and then."""

    def __init__(self, admin: ServerView) -> None:
        self._admin = admin
        self._counted = CachedResult(self._count, _KEPT_S)
        self._kept = 0

    async def look(self, kept: int) -> LastHour:
        """Return those that there are, if the store keeps so many dead letters in all. Raises StoreError."""
        if kept != self._kept:
            self._kept = kept
            self._counted.drop()
        return await self._counted.get() if kept else NONE

    async def _count(self) -> LastHour:
        store, since = self._admin.store, int(time() * 1000) - _HOUR_MS
        recent = await recent_pairs(store, since)
        wanted = DeadLetterFilter(since_ms=since)
        return LastHour(recent.read if recent.is_whole else await dead_letter_store.count(store, wanted), recent)
