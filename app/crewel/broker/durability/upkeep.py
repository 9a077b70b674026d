"""Keeps the log within its bounds: what nobody needs is trimmed, and when few receivers hold back much, what is open for
them is copied to their inboxes, so that the log can go on without it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from crewel.broker.durability.bounding import Bounding
from crewel.broker.durability.unread import Unread
from crewel.delivery.durable import Durable
from crewel.delivery.records import LogId
from crewel.errors import StoreError
from crewel.storage import log as stored_log
from crewel.storage import sessions as stored_sessions

if TYPE_CHECKING:
    from crewel.broker.durability.durability import Durability
    from crewel.metrics import Metrics

log = logging.getLogger(__name__)

_EVERY: Final = 1.0  # seconds
_MOVED_AT_ONCE: Final = 500


class Upkeep:
    """Trims and spills about once a second, if there is anything to trim or to spill."""

    def __init__(self, durability: Durability, metrics: Metrics) -> None:
        self._durability = durability
        self._unread = Unread(durability, metrics)
        self._bounding = Bounding(durability, metrics)
        self._trimmed_at = LogId(-1)

    async def run_forever(self) -> None:
        """Look after the log until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            if self._durability.trouble is None:
                await self._look()

    async def _look(self) -> None:
        low = self._durability.low
        try:
            if low != self._trimmed_at:
                await self._trim()
                self._trimmed_at = low
            # Also where nothing can be trimmed: one message that nobody acknowledges keeps all that come after it.
            if await stored_log.size(self._durability.store) > self._durability.settings.storage.log_max_bytes:
                await self.spill()
            await self._bounding.look()
            await self._unread.look()
        except StoreError as error:
            log.warning("the log could not be trimmed: %s", error)

    async def _trim(self) -> None:
        durability = self._durability
        await durability.writing.ask(stored_log.trim(durability.store.keys, durability.token))

    async def spill(self) -> None:
        """Copy what is open in the oldest tenth of the log to the inboxes of its receivers."""
        border = await stored_log.oldest_tenth(self._durability.store)
        for durable in list(self._durability.node.sessions.values()):
            ids = [each for each in durable.open if each <= border]
            for start in range(0, len(ids), _MOVED_AT_ONCE):
                await self._move(durable, ids[start : start + _MOVED_AT_ONCE])
        self._trimmed_at = LogId(-1)

    async def _move(self, durable: Durable, ids: list[LogId]) -> None:
        durability = self._durability
        step = stored_sessions.spill(durability.store.keys, durability.token, durable.name, ids)
        durability.node.boxed(durable, await durability.writing.ask(step))
