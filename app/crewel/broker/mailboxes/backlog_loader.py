"""Brings bodies back into memory: of messages that waited while their receiver was away, or while the server was down.

Memory keeps only the ids of such messages (`DurableSession.evicted`). They are read a burst at a time, when the client is
there, and stay evicted until they lie in the queue. A message that comes meanwhile is evicted too, unless it goes first. Only a
few sessions are read for at a time, in the order in which they asked; a read that fails is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from crewel.broker.handler_steps import resolve
from crewel.broker.mailboxes.arrivals import Arrivals
from crewel.broker.mailboxes.fan_outs import FanOuts
from crewel.broker.mailboxes.ledger import Wanted
from crewel.broker.mailboxes.notices import Notices
from crewel.broker.mailboxes.offers import EVICTED
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import Logged, LogId, PendingMessage, SessionName
from crewel.errors import StoreError
from crewel.storage import log as stored_log

log = logging.getLogger(__name__)

_BURST: Final = 100  # bodies that are read at once
_READERS: Final = 8  # sessions that are read for at the same time; the store has connections left for others
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
"""Seconds before a read that failed is tried again; each pause is twice as long as the one before."""


class Queues(Protocol):
    """The queues of sessions."""

    fan_outs: FanOuts

    def load(self, session: Session, entry: Entry) -> None:
        """What has waited in the store, or a notice, waits in memory."""

    def came(self, session: Session, entry: Entry, answer: int) -> None:
        """The mailbox of the session has been offered the entry, and has answered this."""


@dataclass(eq=False)
class BacklogLoader:
    """The loads that are under way."""

    _runtime: Runtime
    _outbound: Queues
    running: dict[DurableSession, asyncio.Future[None]] = field(default_factory=dict, init=False)
    _pauses: dict[DurableSession, float] = field(default_factory=dict, init=False)
    """Seconds until the next attempt, for sessions whose last read failed."""
    _timers: dict[DurableSession, asyncio.TimerHandle] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._access = self._runtime.access
        self._loop = self._runtime.loop
        self._spawn = self._runtime.spawn
        self._turns = asyncio.Semaphore(_READERS)

    def close(self) -> None:
        """Try nothing again."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def load_if_waiting(self, session: Session) -> None:
        """Something is evicted for this session: fetch it if the client is waiting."""
        if session.held is not None or (session.socket is not None and not session.connect_only):
            self.load(session)

    def load(self, session: Session) -> asyncio.Future[None] | None:
        """Fetch what is evicted for the session; the future says when it lies in the queue. None: nothing is evicted."""
        durable, view = session.durable, session.mailbox.view()
        if durable is None or not view.has_evicted or not session.is_live or view.is_paused:
            return None
        done = self.running.get(durable)
        if done is None:
            done = self.running[durable] = self._loop.create_future()
            self._spawn(self._load(session, durable, done))
        return done

    def wait_no_longer(self) -> None:
        """The store is away, and another node may have the sessions: no connect waits for their messages any more."""
        for done in self.running.values():
            resolve(done, None)

    async def _load(self, session: Session, durable: DurableSession, done: asyncio.Future[None]) -> None:
        error = None
        try:
            while not await self._read_some(session, durable):
                pass  # all that was read goes behind what has come meanwhile
        except StoreError as failure:
            error = failure
        finally:
            del self.running[durable]
            resolve(done, None)
        if durable.connected is not session:
            self._pauses.pop(durable, None)
        elif error is not None:
            self._try_again(session, durable, error)
        else:
            self._pauses.pop(durable, None)
            self.load_if_waiting(session)

    def _try_again(self, session: Session, durable: DurableSession, error: StoreError) -> None:
        if not self._pauses:  # what befalls one befalls many
            log.warning("queued messages cannot be read, and will be retried: %s", error)
        pause = self._pauses.get(durable, _FIRST_PAUSE)
        self._pauses[durable] = min(2 * pause, _LONGEST_PAUSE)
        former = self._timers.pop(durable, None)
        if former is not None:
            former.cancel()
        self._timers[durable] = self._loop.call_later(pause, self._again, session, durable)

    def _again(self, session: Session, durable: DurableSession) -> None:
        del self._timers[durable]
        is_there = durable.connected is session and not session.mailbox.view().is_absent
        if not is_there or self.load(session) is None:
            self._pauses.pop(durable, None)  # its next connect, or the end of a pause, asks once more

    async def _read_some(self, session: Session, durable: DurableSession) -> bool:
        """Read what goes first, and queue it but for what goes behind messages that came meanwhile. False if that is all of
        it. Raises StoreError."""
        mailbox = session.mailbox
        async with self._turns:
            if durable.connected is not session:  # it has ended while others were read for
                return True
            wanted = Arrivals(mailbox).wanted(_BURST)
            found = await self._found(durable.name, wanted)
        if durable.connected is not session or mailbox.view().is_paused:  # it may have been on hold meanwhile
            return True
        entries, lost = Arrivals(mailbox).read({*wanted.places}, found)
        for entry in entries:
            self._outbound.load(session, entry)
        if lost:
            log.error("%d messages that are queued for a client are no longer in the store", lost)
        return bool(entries or lost or not mailbox.view().has_evicted)

    async def read(self, name: str, wanted: Wanted) -> list[Entry]:
        """The messages that are `wanted` for the session of this name and are open, with their bodies. Raises StoreError."""
        found = await self._found(SessionName(name), wanted) if wanted.places else {}
        return [Entry.read_back(found[each]) for each in wanted.places if each in found]

    async def _found(self, name: SessionName, wanted: Wanted) -> dict[LogId, Logged]:
        store = self._access.store
        found = await stored_log.fetch(store, wanted.logged)
        spilled = [each for each in wanted.messages if each not in found]
        return found | await stored_log.fetch_inbox(store, name, spilled) if spilled else found

    # A message that comes past the log

    def on_notice(self, session: Session, channel: str, place: LogId, why: str) -> None:
        """The store has put the notice that a topic was erased, or with `why` that a subscription has failed, into the
        session's record."""
        self._outbound.came(session, *Notices(session.mailbox).offer(channel, place, why))

    def on_inbox_message(
        self, durable: DurableSession, place: LogId, pending: PendingMessage, entry: Entry | None = None
    ) -> None:
        """The store has put a message into the inbox of a session that is connected. With the `entry` given, no room has been
        asked for in the session's queue, and it need not be read where nothing waits before it."""
        session: Session = durable.connected
        arrivals = Arrivals(session.mailbox)
        if not arrivals.arrived(place, pending):
            return
        fan_outs = self._outbound.fan_outs
        if fan_outs.pending and pending.channel in fan_outs.pending:
            fan_outs.add(pending.channel, self._queue_in_turn(durable, place, pending, entry))
        else:
            self._queue_arrived(session, arrivals, place, pending, entry)

    def _queue_in_turn(
        self, durable: DurableSession, place: LogId, pending: PendingMessage, entry: Entry | None
    ) -> Iterator[None]:
        """Queue it when an older message of its channel has reached all of its receivers. By now it may have ended."""
        session: Session | None = durable.connected
        if session is not None:
            self._queue_arrived(session, Arrivals(session.mailbox), place, pending, entry)
        yield

    def _queue_arrived(
        self, session: Session, arrivals: Arrivals, place: LogId, pending: PendingMessage, entry: Entry | None
    ) -> None:
        answer = arrivals.offer(place, pending.priority, entry, self._access.node.cursor)
        if entry is not None:
            self._outbound.came(session, entry, answer)
        elif answer == EVICTED:
            self.load_if_waiting(session)
