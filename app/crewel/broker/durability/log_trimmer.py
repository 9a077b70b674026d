"""Keeps the log within its bounds: what nobody needs is trimmed, and when few receivers hold back much, what is open for
them is copied to their inboxes, so that the log can go on without it.

The streams for the data pipeline are kept to their hard bounds, whoever reads them: what the store can hold comes before the
pipeline. What the pipeline has missed is told, while there is time to give the streams more room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crewel.broker.durability.bounding import Bounding
from crewel.delivery.durable import Durable
from crewel.delivery.records import LogId
from crewel.errors import StoreError
from crewel.storage import log as stored_log
from crewel.storage import sessions as stored_sessions
from crewel.storage import streams
from crewel.storage.streams import Progress

if TYPE_CHECKING:
    from crewel.broker.durability.access import StoreAccess
    from crewel.metrics import Metrics
    from crewel.settings import Settings

log = logging.getLogger(__name__)

_EVERY: Final = 1.0  # seconds
_MOVED_AT_ONCE: Final = 500
_LAG_EVERY: Final = 5  # looks; what is counted is exact however seldom it is looked
_BOUNDS: Final = {"facts": "storage.facts_max_entries and storage.facts_max_bytes", "events": "events.max_bytes"}


class LogTrimmer:
    """Trims and spills about once a second, if there is anything to trim or to spill."""

    def __init__(self, access: StoreAccess, settings: Settings, metrics: Metrics) -> None:
        self._access = access
        self._settings = settings
        self._lag = PipelineLag(access, metrics)
        self._bounding = Bounding(access, settings, metrics)
        self._trimmed_at = LogId(-1)

    async def run_forever(self) -> None:
        """Look after the log until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            if self._access.trouble is None:
                await self._look()

    async def _look(self) -> None:
        low = self._access.low
        try:
            if low != self._trimmed_at:
                await self._trim()
                self._trimmed_at = low
            # Also where nothing can be trimmed: one message that nobody acknowledges keeps all that come after it.
            if await stored_log.size(self._access.store) > self._settings.storage.log_max_bytes:
                await self.spill()
            await self._bounding.look()
            await self._lag.look()
        except StoreError as error:
            log.warning("the log could not be trimmed: %s", error)

    async def _trim(self) -> None:
        access = self._access
        await access.writing.ask(stored_log.trim(access.keys, access.token))

    async def spill(self) -> None:
        """Copy what is open in the oldest tenth of the log to the inboxes of its receivers."""
        border = await stored_log.oldest_tenth(self._access.store)
        for durable in list(self._access.node.sessions.values()):
            ids = [each for each in durable.open if each <= border]
            for start in range(0, len(ids), _MOVED_AT_ONCE):
                await self._move(durable, ids[start : start + _MOVED_AT_ONCE])
        self._trimmed_at = LogId(-1)

    async def _move(self, durable: Durable, ids: list[LogId]) -> None:
        access = self._access
        step = stored_sessions.spill(access.keys, access.token, durable.name, ids)
        access.node.boxed(durable, await access.writing.ask(step))


class PipelineLag:
    """Compares what was trimmed with how far the pipeline has told that it is."""

    def __init__(self, access: StoreAccess, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics
        self._known: dict[str, int] = {}  # by stream: up to which entry what was missed has been told
        self._looks = 0

    async def look(self) -> None:
        """Look, once in a while. Raises StoreError."""
        self._looks += 1
        if self._looks % _LAG_EVERY == 1:
            access = self._access
            self.compare(await access.writing.ask(streams.progress(access.keys)))

    def compare(self, found: Iterable[Progress]) -> None:
        """Count and tell what is missed by now and was not before."""
        for each in found:
            known = self._known.get(each.stream, 0)
            if known > each.trimmed:  # another store, or one that was set back, counts anew
                known = 0
            missed = each.trimmed - max(each.read, known)
            self._known[each.stream] = each.trimmed
            if missed > 0:
                self._metrics.trimmed_unread[each.stream] += missed
                log.warning(
                    "%d entries of %s were trimmed that the pipeline had not read; %d before them it has: see %s",
                    missed,
                    each.stream,
                    each.read,
                    _BOUNDS[each.stream],
                )
