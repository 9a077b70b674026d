"""Trims the log of what no session needs. If it is too long, or room in the store is scarce, and few receivers keep much
of it, what is open for them is copied to their inboxes first.

The streams for the data pipeline keep to their hard bounds, with or without a reader: what the store can hold comes before the
pipeline. What the pipeline has missed is counted and logged, while there is time to give the streams more room.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import LogId, NoLetter
from crewel.errors import Fenced, StoreError
from crewel.event_loop import in_turns
from crewel.storage import dead_letter_store, streams
from crewel.storage import facts as stored_facts
from crewel.storage import log as stored_log
from crewel.storage import session_store as stored_sessions
from crewel.storage.occupancy import Occupied, occupied
from crewel.storage.streams import Progress

if TYPE_CHECKING:
    from crewel.broker.writing.store_access import StoreAccess
    from crewel.metrics import Metrics
    from crewel.settings import Settings

log = logging.getLogger(__name__)

_EVERY: Final = 1.0  # seconds
_MOVED_AT_ONCE: Final = 500
_SMALL_LOG: Final = 1 << 20  # bytes: it does not fill a store
_WORTH: Final = 20  # what is copied of a tenth of the log has at most half of its bytes
_LOOKS_PER_TRY: Final = 30  # after a try in vain
_LAG_EVERY: Final = 5  # looks; what is counted is exact however seldom it is looked
_BOUNDS: Final = {"facts": "storage.facts_max_entries and storage.facts_max_bytes", "events": "events.max_bytes"}
_LOOKS_PER_COUNT: Final = 5  # a flood of dead letters is not to flood the log


@dataclass(eq=False)
class FactsTrimmer:
    """Keeps the facts within their bound in bytes, and says when facts, dead letters or messages had to be dropped.

    The scripts that write them keep the bounds in entries, and those of the dead letters in bytes. To measure the facts takes
    the store a little: that is done about once a second."""

    _access: StoreAccess
    _settings: Settings
    _metrics: Metrics
    _dead_letters: int | None = field(default=None, init=False)  # that had been dropped when it was said last
    _no_letters: Counter[str] = field(default_factory=Counter, init=False)  # likewise
    _looks: int = field(default=0, init=False)

    async def run_once(self, found: Occupied) -> None:
        """Look once at what the store has. Raises StoreError."""
        if found.facts > self._settings.storage.facts_max_bytes:
            await self._trim_facts()
        self._looks += 1
        if self._looks % _LOOKS_PER_COUNT == 1:
            self._count_lost()
            await self._count_letters(found.dropped)

    async def _trim_facts(self) -> None:
        access, most = self._access, self._settings.storage.facts_max_bytes
        dropped = await access.writing.ask(stored_facts.trim(access.keys, most), unordered=True)
        self._metrics.facts_dropped += dropped
        log.warning("the %d oldest facts were dropped: they take more than storage.facts_max_bytes=%d", dropped, most)

    def _count_lost(self) -> None:
        found = Counter(self._metrics.no_letters)
        if new := found - self._no_letters:
            causes = "; ".join(f"{count} {NoLetter(why).meaning}" for why, count in new.most_common())
            log.warning("messages were dropped without a dead letter: %s", causes)
        self._no_letters = found

    async def _count_letters(self, dropped: int) -> None:
        store, delivery = self._access.store, self._settings.delivery
        more = 0 if self._dead_letters is None else dropped - self._dead_letters
        self._dead_letters = dropped
        if more > 0:
            largest = await dead_letter_store.shares(store, 1)
            log.warning(
                "%d dead letters were dropped, the oldest of those accounts that hold most, such as %s: there are more than"
                " delivery.dead_letters_max=%d, or they take more than delivery.dead_letters_max_bytes=%d",
                more,
                largest[0].account if largest else "one that has none left",
                delivery.dead_letters_max,
                delivery.dead_letters_max_bytes,
            )


@dataclass(eq=False)
class LogTrimmer:
    """Trims and spills about once a second, if there is anything to trim or to spill."""

    _access: StoreAccess
    _settings: Settings
    _metrics: Metrics

    def __post_init__(self) -> None:
        self._lag = PipelineLag(self._access, self._metrics)
        self._facts = FactsTrimmer(self._access, self._settings, self._metrics)
        self._trimmed_at = LogId(-1)
        self._looks_to_skip = 0

    async def run_forever(self) -> None:
        """Look after the log until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            if self._access.trouble is None:
                await self._trim_and_spill()

    async def _trim_and_spill(self) -> None:
        low = self._access.low
        try:
            if low != self._trimmed_at:
                await self._trim()
                self._trimmed_at = low
            # Also where nothing can be trimmed: one message that is not acknowledged keeps all that come after it.
            found = await occupied(self._access.store)
            if found.log > self._settings.storage.log_max_bytes:
                await self.spill()
            elif self._access.store.is_scarce and found.log > _SMALL_LOG:
                await self._spill_if_worth_it(found.log)
            await self._facts.run_once(found)
            await self._lag.run_once()
        except StoreError as error:
            log.warning("the log could not be trimmed: %s", error)

    async def _trim(self) -> None:
        access, most = self._access, stored_log.TRIMMED_AT_ONCE
        while await access.writing.ask(stored_log.trim(access.keys, access.token, most), unordered=True) > most // 2:
            pass  # what others have asked the store meanwhile comes in between

    async def _spill_if_worth_it(self, size: int) -> None:
        """Make room by a shorter log, which has so many bytes. To find out that this makes none takes a while."""
        self._looks_to_skip -= 1
        if self._looks_to_skip <= 0 and not await self.spill(size // _WORTH):
            self._looks_to_skip = _LOOKS_PER_TRY

    async def spill(self, most: float = inf) -> bool:
        """Copy what is open in the oldest tenth of the log to the inboxes of its receivers. Not if these are more than so many
        bytes: what many receivers share takes less room in the log. Returns whether it copied any."""
        border = await stored_log.oldest_tenth(self._access.store)
        open_ids: dict[DurableSession, list[LogId]] = {}
        async for durable in in_turns(self._access.node.sessions.values()):
            if ids := [each for each in durable.pending if each <= border]:
                open_ids[durable] = ids
                most -= sum(durable.pending[each].size for each in ids)
                if most < 0:
                    return False
        has_copied = False
        for durable, ids in open_ids.items():
            # If another server has the session by now, what is pending for the others has to be copied all the same.
            with suppress(Fenced):
                for start in range(0, len(ids), _MOVED_AT_ONCE):
                    has_copied |= await self._move(durable, ids[start : start + _MOVED_AT_ONCE])
        if has_copied:
            self._trimmed_at = LogId(-1)
        return has_copied

    async def _move(self, durable: DurableSession, ids: list[LogId]) -> bool:
        access, node = self._access, self._access.node
        if node.sessions.get(durable.name) is not durable:
            return False  # it has ended, or all sessions were read again since
        step = stored_sessions.spill(access.keys, access.token, durable.name, ids)
        moved = await access.writing.ask(step)
        node.spilled(durable, moved)
        return bool(moved)


@dataclass(eq=False)
class PipelineLag:
    """Compares what was trimmed with how far the pipeline has read."""

    _access: StoreAccess
    _metrics: Metrics
    _known: dict[str, int] = field(default_factory=dict, init=False)
    """By stream: up to which entry what was missed has been counted."""
    _looks: int = field(default=0, init=False)

    async def run_once(self) -> None:
        """Look, once in a while. Raises StoreError."""
        self._looks += 1
        if self._looks % _LAG_EVERY == 1:
            access = self._access
            self.compare(await access.writing.ask(streams.progress(access.keys), unordered=True))

    def compare(self, found: Iterable[Progress]) -> None:
        """Count and tell what is missed by now and was not before."""
        for each in found:
            known = self._known.get(each.stream, 0)
            if known > each.trimmed:  # another store, or one that was set back, counts from the start
                known = 0
            missed = each.trimmed - max(each.read, known)
            self._known[each.stream] = each.trimmed
            if missed > 0:
                self._metrics.trimmed_unread[each.stream] += missed
                log.warning(
                    "%d entries of %s were trimmed before the pipeline had read them; it has read %d before these: see %s",
                    missed,
                    each.stream,
                    each.read,
                    _BOUNDS[each.stream],
                )
