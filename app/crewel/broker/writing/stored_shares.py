"""How much of the store's memory each account has, and whether it may have more.

While there is much room, all may store anything, and nothing is counted. When more than half of the memory is used, each
message has its account with it in the store, and the messages that are there are counted every few seconds. An account may then
have at most `limits.max_stored_ratio` times what is left. So the account that stores most is refused first, and leaves room for
the others. It does not matter whether the client that stored it is still there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from crewel.broker.payers import storing_account
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import Limited, StoreError, StoreFull
from crewel.storage import message_shares
from crewel.storage.account_shares import largest

if TYPE_CHECKING:
    from crewel.broker.session import Session
    from crewel.metrics import Metrics
    from crewel.settings.access import Limits

log = logging.getLogger(__name__)

_LIMIT: Final = "max_stored_ratio"
_EVERY_S: Final = 1.0
_LEAST_REST_S: Final = 2.0
_RESTS: Final = 4  # so many times as long as it took to count, nothing is counted
_WAIT_S: Final = 10.0
"""When a publisher that is refused may come again: others have to settle, or to remove, what it has stored."""
_QUIET_S: Final = 60.0
_MIB: Final = 1 << 20


class StoredShares:
    """Those of one server. All servers of a store know what one of them has counted."""

    def __init__(self, access: StoreAccess, limits: Limits, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._access, self._limits, self._metrics, self._loop = access, limits, metrics, loop
        self._held: dict[str, int] = {}
        self._added: Counter[str] = Counter()
        """What this server has accepted since."""
        self._times_counted = 0
        self._counts_at = 0.0
        self._quiet_until: dict[str, float] = {}

    @property
    def most(self) -> int | None:
        """Bytes that one account may have at the moment; None: there is no limit."""
        store, ratio = self._access.store, self._limits.max_stored_ratio
        return ratio * store.room if ratio and store.is_scarce else None

    def admit(self, publisher: Session | None, size: int) -> str:
        """A publisher stores so many bytes; returns its account, empty for the server itself. Raises Limited if that would have
        too much, StoreFull if there is no room for it."""
        store, account = self._access.store, ""
        if publisher is not None:
            account, most = storing_account(publisher), self.most
            has = self._held.get(account, 0) + self._added[account]
            if most is not None and has + size > most and not publisher.is_operator:
                raise self._refused(publisher, account, has, most)
        if size > store.room:
            raise StoreFull("the store is full")
        store.room -= size
        if publisher is not None:
            self._added[account] += size
        return account

    def _refused(self, publisher: Session, account: str, has: int, most: int) -> Limited:
        now = self._loop.time()
        self._metrics.limited[_LIMIT] += 1
        self._metrics.limited_last[_LIMIT] = account
        if publisher.peer is not None:
            publisher.peer.slow_down(_EVERY_S)
        share = f"{account} has {has / _MIB:.1f} MiB of it, where one account may have {most / _MIB:.1f} MiB"
        why = f"the store is nearly full, and {share}"
        if self._quiet_until.get(account, 0.0) <= now:
            self._quiet_until = {each: until for each, until in self._quiet_until.items() if until > now}
            self._quiet_until[account] = now + _QUIET_S
            log.warning("publishes are refused: %s", why, extra={"limit": f"limits.{_LIMIT}"})
        return Limited(f"limits.{_LIMIT}", why, _WAIT_S, Limited.CAP)

    # What is in the store

    async def run_forever(self) -> None:
        """Know what accounts have, while that matters, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            if self._access.trouble is None:
                try:
                    await self._look()
                except StoreError as error:
                    log.warning("what accounts have in the store could not be counted: %s", error)

    async def _look(self) -> None:
        access = self._access
        if not access.store.is_scarce:
            self._added.clear()
            self._held = {}  # what was counted in an earlier shortage holds no more
            return
        if self._loop.time() >= self._counts_at and (await message_shares.counters(access.store))[:1] == [access.token]:
            counted = await message_shares.count(access.store)
            await access.writing.ask(message_shares.charge(access.keys, counted.accounts), unordered=True)
            self._counts_at = self._loop.time() + max(_LEAST_REST_S, _RESTS * counted.seconds)
        times = await message_shares.times_counted(access.store)
        if times != self._times_counted:
            held = await largest(access.store.reader, access.keys.message_shares, message_shares.MOST_ACCOUNTS)
            self._times_counted, self._held = times, {each.account: each.bytes for each in held}
            self._added.clear()
