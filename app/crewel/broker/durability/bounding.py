"""Keeps the facts within their bound in bytes, and says when facts or dead letters had to give way.

The scripts that write them keep the bounds in entries, and those of the letters in bytes. To measure the facts takes the
store a little: that is done here, about once a second.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from crewel.storage import dead_letters
from crewel.storage import facts as stored_facts

if TYPE_CHECKING:
    from crewel.broker.durability.access import StoreAccess
    from crewel.metrics import Metrics
    from crewel.settings import Settings

log = logging.getLogger(__name__)

_EVERY: Final = 5  # looks of the upkeep: a flood of letters is not to flood the log


class Bounding:
    """Looks at facts and letters."""

    def __init__(self, access: StoreAccess, settings: Settings, metrics: Metrics) -> None:
        self._access = access
        self._settings = settings
        self._metrics = metrics
        self._letters: int | None = None  # that had been dropped when it was said last
        self._looks = 0

    async def look(self) -> None:
        """Look once. Raises StoreError."""
        await self._trim_facts()
        self._looks += 1
        if self._looks % _EVERY == 1:
            await self._count_letters()

    async def _trim_facts(self) -> None:
        access = self._access
        store, most = access.store, self._settings.storage.facts_max_bytes
        if await stored_facts.size(store) <= most:
            return
        dropped = await access.writing.ask(stored_facts.trim(store.keys, most))
        self._metrics.facts_dropped += dropped
        log.warning("the %d oldest facts were dropped: they take more than storage.facts_max_bytes=%d", dropped, most)

    async def _count_letters(self) -> None:
        store, delivery = self._access.store, self._settings.delivery
        dropped = await dead_letters.dropped(store)
        more = 0 if self._letters is None else dropped - self._letters
        self._letters = dropped
        if more > 0:
            log.warning(
                "the %d oldest dead letters were dropped, up to %s: there are more than delivery.dead_letters_max=%d, or"
                " they take more than delivery.dead_letters_max_bytes=%d",
                more,
                await dead_letters.oldest(store) or "the newest",
                delivery.dead_letters_max,
                delivery.dead_letters_max_bytes,
            )
