"""The dead letters of the last hour: how many, since when, of which receivers and with which codes. The store knows their
times, so that a restart of the server changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

from crewel.admin.cached_result import CachedResult
from crewel.errors import StoreError
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_groups import RecentPairs, recent_pairs
from crewel.storage.dead_letter_records import DeadLetterFilter

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView

_HOUR_MS: Final = 3_600_000
_KEPT_S: Final = 15.0
_ALL: Final = DeadLetterFilter()


class LastHour(NamedTuple):
    """What is known of them."""

    made: int
    recent: RecentPairs


NONE: Final = LastHour(0, RecentPairs([], 0, None, {}))


class NewDeadLetters:
    """Counts them when their number in the store has changed, and now and then."""

    def __init__(self, admin: ServerView) -> None:
        self._admin = admin
        self._recent = CachedResult(self._read, _KEPT_S)
        self._counted = CachedResult(self._count, _KEPT_S)
        self._kept = 0

    async def look(self, kept: int) -> LastHour:
        """Return those that there are, if the store keeps so many dead letters in all. Raises StoreError."""
        self._learn(kept)
        return await self._counted.get() if kept else NONE

    async def note(self) -> None:
        """Tell past troubles which ones there are: those of a receiver and a code that are gone have ended. It is done with
        each count, so that an operator who comes later sees it."""
        with suppress(StoreError):
            kept = await dead_letter_store.count(self._admin.store, _ALL)
            self._learn(kept)
            recent = await self._recent.get() if kept else NONE.recent
            if recent.is_whole:
                self._admin.past_troubles.note_letters(recent.ids)

    def _learn(self, kept: int) -> None:
        if kept != self._kept:
            self._kept = kept
            self._recent.drop()
            self._counted.drop()

    def _read(self) -> Awaitable[RecentPairs]:
        return recent_pairs(self._admin.store, int(time() * 1000) - _HOUR_MS)

    async def _count(self) -> LastHour:
        recent = await self._recent.get()
        wanted = DeadLetterFilter(since_ms=int(time() * 1000) - _HOUR_MS)
        made = recent.read if recent.is_whole else await dead_letter_store.count(self._admin.store, wanted)
        return LastHour(made, recent)
