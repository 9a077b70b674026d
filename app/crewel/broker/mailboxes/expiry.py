"""Messages that go out of all queues when their life has ended: those that were published with `forceDestroy`.

They end `expired`, and leave nothing behind: at the moment when they would leave, and by the sweep, for receivers that are
away or on hold. What a client has got while it is there stays open, for it may still report their status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import LogId
from crewel.event_loop import Rounds


@dataclass(eq=False)
class Expiry:
    """Takes them out."""

    _runtime: Runtime
    _watched: set[Session] = field(default_factory=set, init=False)  # sessions with such messages in memory

    def __post_init__(self) -> None:
        self._access = self._runtime.access
        self.clock: Callable[[], float] = self._runtime.clock
        """Tells seconds since 1970."""
        self._rounds = Rounds(self._runtime.loop, lambda: self._expired(self.now()))

    def now(self) -> int:
        """Microseconds since 1970."""
        return int(self.clock() * 1_000_000)

    def watch(self, session: Session) -> None:
        """Something has been offered to the session that has to go out of all queues once."""
        self._watched.add(session)

    def leave(self, session: Session) -> None:
        """The session ends: its client will say nothing more of what it has got."""
        session.mailbox.leave(self.now())
        self._watched.discard(session)

    def sweep(self) -> None:
        """Take out what has to go out by now, of all sessions."""
        self._rounds.begin()

    def _expired(self, now: int) -> Iterator[None]:
        """Take out what has to go out by now, of one session at each step."""
        self._watched = {session for session in self._watched if session.is_live and session.mailbox.view().expiry}
        due = {session for session in self._watched if session.mailbox.view().expiry <= now}
        for durable in self._access.node.expiring(now):
            if durable.connected is None:
                # There are few, and in a later turn the node may have others.
                self._end_stored(durable, durable.expired(now))
            else:
                due.add(durable.connected)
        for session in due:
            if session.is_live and not session.mailbox.expire(self.now()):  # it may have ended in a turn before
                self._watched.discard(session)
            yield

    def _end_stored(self, durable: DurableSession, places: Iterable[LogId]) -> None:
        durable.expire(places)
        self._access.node.mark_dirty(durable)
