"""The port by which the extensions `ack` and `update` act on sessions: what clients acknowledge, and what they say of it.

The extensions read and write the wire and know no slot of a session; here is what it means. Statuses of a connect count before
its acknowledgement does, for an acknowledgement settles what has no status: `connected` sees to that, whatever the order in
which the extensions are called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from crewel.bayeux.message import Fields, Message
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry


@dataclass(eq=False)
class Acknowledgements:
    """What sessions that acknowledge were sent, and what happens to that."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _shared_queues: SharedQueues
    rejected: WeakKeyDictionary[Session, list[Fields]] = field(default_factory=WeakKeyDictionary, init=False)
    """The statuses of the connect that is being read that do not count, with why."""

    def __post_init__(self) -> None:
        self._dispatchers, self._events = self._mailboxes.dispatchers, self._mailboxes.events
        self._access = self._runtime.access

    # For `ack`

    def begin(self, session: Session) -> None:
        """Let a session acknowledge from now on."""
        session.begin_acknowledging()
        session.mailbox.begin_batches()

    def confirm(self, session: Session) -> None:
        """A client that waits has got everything that it was sent, and nothing was to be sent again."""
        entries, durable = session.mailbox.confirm(), session.durable
        if entries is None:
            self._take(session, session.mailbox.expected())
        elif durable is not None:
            self._settled(session, durable, entries)

    def connected(self, session: Session, message: Message, batch: int | None) -> None:
        """A connect acknowledges this batch and those before it, or nothing (None). What it leaves open goes out again: with
        its answer at once if the client has said what it got, and with a pause to one that never makes progress. To a client
        that says that it is busy, nothing goes out; if it waits for an answer meanwhile, what is new does."""
        if self._dispatchers.is_offered and "update" in message.ext:
            self.read_statuses(session, message, batch)
        is_busy = message.says_busy
        self._take(session, batch, is_busy=is_busy or message.awaits_answer, may_wait=batch is None or is_busy)
        if is_busy:
            session.answer_at_once()
            return
        delay = session.mailbox.resend_delay()
        if delay is None:
            return
        session.delay_answer(delay)
        if batch is not None and not delay:
            # A connect that acknowledges nothing at all is held as usual, and its reply carries them.
            session.answer_at_once()

    def _take(self, session: Session, batch: int | None, *, is_busy: bool = False, may_wait: bool = True) -> None:
        if session.mailbox.acknowledge(batch, is_busy=is_busy, may_wait=may_wait):
            self._dispatchers.note_room(session)

    def _settled(self, session: Session, durable: DurableSession, entries: list[Entry]) -> None:
        """The receiver has acknowledged all that it had been sent, just now."""
        events = self._events
        for entry in entries:
            if entry.position:
                if events.tick != session.last_seen:
                    events.turn(session.last_seen)
                events.acknowledged.append(entry)
                self._access.node.acknowledged(durable, entry.position, entry.fan_out_record)
        if self._shared_queues.blocked:
            self._shared_queues.on_capacity(session)

    # For `update`

    def offer_statuses(self) -> None:
        """Let sessions ask for the origin of messages."""
        self._dispatchers.is_offered = True

    def read_statuses(self, session: Session, connect: Message, batch: int | None) -> None:
        """Carry out what a connect says of messages. `batch` is the last one that the client has got, if it says that too."""
        self.rejected[session] = self._dispatchers.handle_statuses(session, connect.ext["update"], batch)

    def handle_statuses(self, session: Session, statuses: object) -> list[dict[str, Any]]:
        """Carry out what the client says of its messages; returns the statuses that do not count, as sent plus `reason`."""
        return self._dispatchers.handle_statuses(session, statuses)
