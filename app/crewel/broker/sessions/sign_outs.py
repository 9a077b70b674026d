"""Sign-ins of operators' pages that have ended, and codes that were used: they hold no more at any server of the store.

The store has their ids, so that a restart forgets none, and is asked whenever one is shown. A page's live feed ends with its
sign-in. That is at once at the server that signs the page out, and at the others with the next sweep, which also finds feeds
that were restored or moved meanwhile. Without a store the server knows what it has spent itself, and what was issued before it
began counts as spent.
"""

from __future__ import annotations

import asyncio
from time import time
from typing import Final

from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.sessions.session_table import SessionTable
from crewel.errors import StoreError, StoreUnavailable
from crewel.event_loop import in_turns
from crewel.storage import spent_ids

_WAIT_S: Final = 3.0
"""How long a sign-out waits for a store that is away."""
_MOST_CONFIRMED: Final = 10_000


class SignOuts:
    """Those that one server knows and obeys."""

    def __init__(self, runtime: Runtime, table: SessionTable, sessions: dict[str, Session]) -> None:
        self._runtime = runtime
        self._access = runtime.access
        self._table = table
        self._sessions = sessions
        self._started = time()
        self._spent: dict[str, float] = {}
        """What this server has spent, and when it expires."""
        self._confirmed: dict[str, None] = {}
        """What the store has called unspent: it holds while the store is away, when no other server can sign out either."""
        self._feeds: list[Session] = []
        """Feeds of the sweep that runs."""
        self._look: asyncio.Task[None] | None = None

    def begin(self, id_: str) -> None:
        """A sign-in with this id begins here: it holds, also if the store is away."""
        self._confirm(id_)

    async def is_spent(self, id_: str) -> bool:
        """Whether what has this id holds no more. Raises StoreError if only the store knows, and is away. What was issued since
        then holds: a sign-out at another server is not obeyed here before the store is back, as that server says."""
        if id_ in self._spent:
            return True
        if not self._access.has_store:
            return spent_ids.issued_at(id_) < self._started
        away_since = self._access.store.away_since
        if away_since is not None:  # it is not asked, for it may hang
            if id_ in self._confirmed or spent_ids.issued_at(id_) >= away_since:
                return False
            raise StoreUnavailable("the store is away")
        try:
            is_spent = bool(await spent_ids.spent(self._access.store, [id_]))
        except StoreError:
            if id_ in self._confirmed:
                return False
            raise
        if not is_spent:
            self._confirm(id_)
        return is_spent

    def _confirm(self, id_: str) -> None:
        self._confirmed.pop(id_, None)  # so that the first is the one that was shown least lately
        self._confirmed[id_] = None
        if len(self._confirmed) > _MOST_CONFIRMED:
            del self._confirmed[next(iter(self._confirmed))]

    async def use(self, id_: str, until: float) -> bool:
        """Spend what works once and expires then (seconds since 1970). Returns whether it was unspent. Raises StoreError: then
        it may be spent or not."""
        if await self.is_spent(id_):
            return False
        if self._access.has_store and not await self._access.writing.ask(
            spent_ids.spend(self._access.keys, id_, until)
        ):
            return False
        self._note(id_, until)
        return True

    async def end(self, id_: str, until: float) -> None:
        """End the sign-in of a page, which would expire then (seconds since 1970), and its live feeds. Raises StoreUnavailable
        if the store is away: then the sign-in has ended here, and the other servers follow once the store is back."""
        self._note(id_, until)
        async for session in in_turns(self._sessions.values()):
            self._end_feed(session, {id_})
        if not self._access.has_store:
            return
        written = self._access.writing.ask(spent_ids.spend(self._access.keys, id_, until), retries=True)
        done, _ = await asyncio.wait([written], timeout=_WAIT_S)
        if not done:
            text = "the page is signed out at this server; the store is away, and has to confirm it before a restart"
            raise StoreUnavailable(f"{text} or another server obeys")
        written.result()

    def _note(self, id_: str, until: float) -> None:
        now = time()
        for known in [known for known, expires in self._spent.items() if expires <= now]:
            del self._spent[known]
        self._spent[id_] = until

    # Live feeds

    def watch(self, session: Session) -> None:
        """A sweep has met the live feed of a page: see whether the page is still signed in."""
        self._feeds.append(session)
        if self._access.has_store and (self._look is None or self._look.done()):
            self._look = self._runtime.spawn(self._look_at_feeds())

    async def _look_at_feeds(self) -> None:
        feeds, self._feeds = self._feeds, []
        pages = {session.grants.page for session in feeds if session.grants is not None}
        try:
            spent = await spent_ids.spent(self._access.store, sorted(pages))
        except StoreError:
            return  # the next sweep asks again
        for session in feeds:
            self._end_feed(session, spent)

    def _end_feed(self, session: Session, spent: set[str]) -> None:
        if session.is_live and session.grants is not None and session.grants.page in spent:
            self._table.disconnect(session)
