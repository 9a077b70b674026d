"""The bin at work: operators restore dead letters that were discarded, and what was discarded long ago goes for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from crewel.broker.runtime import Runtime
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import StoreError, StoreUnavailable
from crewel.storage import dead_letter_bin
from crewel.storage.dead_letter_bin import MOST_MOVED, DiscardedDeadLetter
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store

log = logging.getLogger(__name__)

_EVERY_S: Final = 60.0
"""Between two looks for what was discarded long ago."""
_SECONDS: Final = 5.0
"""How long one call restores dead letters."""
_READ: Final = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters of the bin: these, of the channels of the filter; or all that match, those of this job, after this
    place."""

    filter: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    job: str = ""
    after: str = ""
    ids: tuple[str, ...] | None = None


@dataclass(slots=True)
class Restored:
    """What one call has restored."""

    ids: dict[str, str] = field(default_factory=dict)
    """The new dead id of each by the old one."""
    edited: dict[str, str] = field(default_factory=dict)
    """Those that stay in the bin unless they are asked for by id, because an edited message was sent in their place: its log
    id, by dead id."""
    next: str = ""
    """The place to continue after; empty if nothing is left to do."""


@dataclass(eq=False)
class DeadLetterWork:
    """What operators do with dead letters of one broker's store."""

    _runtime: Runtime

    @property
    def access(self) -> StoreAccess:
        """The store, which may be written to. Raises StoreUnavailable if there is none, or it may not."""
        access = self._runtime.access
        if not access.has_store:
            raise StoreUnavailable("this server has no store, and so no dead letters")
        if access.trouble is not None:
            raise StoreUnavailable(access.trouble)
        return access


@dataclass(eq=False)
class DeadLetterBin(DeadLetterWork):
    """The bin."""

    async def restore(self, wanted: Wanted, who: str) -> Restored:
        """Make dead letters again of what was discarded, the first discarded first: for some seconds, or those of these ids.
        The original of an edited message, which was sent under another id, is restored by its own id only. Raises
        StoreError."""
        loop, done = self._runtime.loop, Restored()
        start = loop.time()
        async for letters in self._portions(wanted, done):
            access = self.access
            if wanted.ids is None:
                done.edited |= {each.letter.dead_id: each.edited_as for each in letters if each.edited_as}
            ids = [each.letter.dead_id for each in letters if each.letter.dead_id not in done.edited]
            step = dead_letter_bin.restore(access.keys, access.token, ids, access.facts_max, who)
            moved = await access.writing.ask(step)
            done.ids |= moved
            self._runtime.metrics.letters_restored += len(moved)
            if wanted.ids is None and loop.time() > start + _SECONDS:
                break
        return done

    async def _portions(self, wanted: Wanted, done: Restored) -> AsyncIterator[list[DiscardedDeadLetter]]:
        """What is wanted, some at a time; meanwhile `done.next` is the place after it."""
        store: Store = self.access.store
        if wanted.ids is not None:
            for start in range(0, len(wanted.ids), MOST_MOVED):
                portion = wanted.ids[start : start + MOST_MOVED]
                found = await dead_letter_bin.get(store, portion)
                yield [each for each in found if wanted.filter.is_within(each.letter)]
            return
        done.next = wanted.after
        while True:
            page = await dead_letter_bin.page(store, wanted.filter, done.next, _READ, wanted.job, oldest_first=True)
            done.next = page.next
            if page.letters:
                yield page.letters
            if not page.next:
                return

    async def run_forever(self) -> None:
        """Remove what was discarded long ago, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.empty()
            except StoreError as error:
                log.warning("the bin of dead letters was not emptied: %s", error)

    async def empty(self) -> int:
        """Remove for good what was discarded longer ago than `delivery.discarded_kept_ms`; returns how many. Raises
        StoreError."""
        access, removed = self._runtime.access, 0
        if not access.has_store or access.trouble is not None:
            return 0
        while await dead_letter_bin.count(access.store):
            kept_ms = int(self._runtime.settings.delivery.discarded_kept_ms)
            count = await access.writing.ask(dead_letter_bin.empty(access.keys, access.token, kept_ms))
            removed += count
            if count < MOST_MOVED:
                break
        return removed
