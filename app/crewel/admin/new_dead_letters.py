"""How many of the dead letters in the store were made in the last hour. The store knows their times, so that a restart of the
server changes nothing.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Final

from crewel.admin.cached_result import CachedResult
from crewel.storage import dead_letters
from crewel.storage.dead_letter_records import DeadLetterFilter

if TYPE_CHECKING:
    from crewel.admin.administration import Administration

_HOUR_MS: Final = 3_600_000
_KEPT_S: Final = 15.0


class NewDeadLetters:
    """Counts them when their number in the store has changed, and now and then."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._counted = CachedResult(self._count, _KEPT_S)
        self._kept = 0

    async def count(self, kept: int) -> int:
        """How many there are, if the store keeps so many dead letters in all. Raises StoreError."""
        if kept != self._kept:
            self._kept = kept
            self._counted.drop()
        return await self._counted.get() if kept else 0

    async def _count(self) -> int:
        return await dead_letters.count(self._admin.store, DeadLetterFilter(since_ms=int(time() * 1000) - _HOUR_MS))
