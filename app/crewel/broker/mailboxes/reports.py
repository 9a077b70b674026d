"""What mailboxes report, to the commits of the node, counters and events; and what they ask: the time, their share of the
memory, and until when lazy messages wait."""

from __future__ import annotations

from dataclasses import dataclass

from crewel.broker.mailboxes.back_pressure import BackPressure
from crewel.broker.mailboxes.events import Events
from crewel.broker.mailboxes.ledger import NoLedger
from crewel.broker.mailboxes.mailbox_listeners import MailboxesListener
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, NoLetter, Transient
from crewel.qos.connect import Bounds, OverflowPolicy
from crewel.qos.update import Origin


@dataclass(eq=False)
class MailboxReports:
    """The listener of all mailboxes of a broker (`MailboxListener`)."""

    _runtime: Runtime
    _outbound: Outbound
    _events: Events
    _pressure: BackPressure
    _listener: MailboxesListener

    def __post_init__(self) -> None:
        self._access = self._runtime.access
        self._expiry = self._outbound.expiry
        self.bayeux = self._runtime.settings.bayeux
        self.bounds = Bounds(0, self.bayeux.max_queue_bytes, OverflowPolicy.DROP_OLDEST)
        self.backlog = self._outbound.backlog
        self.no_ledger = NoLedger(self)
        """Of all sessions that the store does not have."""

    def has_changed(self, durable: DurableSession) -> None:
        """The next commit has to look at this session."""
        self._access.node.mark_dirty(durable)

    def acknowledged(self, durable: DurableSession, entries: list[Entry]) -> None:
        """The client has acknowledged these, some of which the store has; they have ended."""
        if not durable.is_dirty:
            self._access.node.mark_dirty(durable)
        session: Session = durable.connected
        self._listener.has_capacity(session)
        self._events.settled(session, entries)

    def transients_ended(self, reason: EndReason, count: int) -> None:
        """So many messages that the store does not have ended in this way, of a session that acknowledges."""
        self._runtime.metrics.ended[reason] += count

    def left_no_letter(self, why: NoLetter) -> None:
        """A message was dropped, and has no dead letter."""
        self._runtime.metrics.left_no_letter(why)

    def resent(self, name: str, count: int, *, is_busy: bool) -> None:
        """So many messages leave again; `name` is the session's if the store has it, else empty. `is_busy`: its client did not
        lack them."""
        if is_busy:
            self._runtime.metrics.resends_busy += count
        else:
            self._runtime.metrics.resends += count
            self._events.redelivered(name, count)

    def overflowed(self, policy: OverflowPolicy, name: str) -> None:
        """A queue was full, and its policy was applied; `name` is the session's if the store has it, else empty."""
        self._runtime.metrics.dropped[policy.value] += 1
        if name:
            self._events.overflow(name, policy.value)

    def charged(self, durable: DurableSession) -> str:
        """A dead letter of a full queue is charged to the accounts of this session: why the session has to end, or an empty
        text."""
        return self._pressure.overflowed(durable.payers)

    @property
    def letters_for_anonymous(self) -> bool:
        """Whether sessions without a name leave dead letters."""
        return self._runtime.settings.delivery.letters_for_anonymous

    def now(self) -> int:
        """Microseconds since 1970."""
        return self._expiry.now()

    def share(self, most: int) -> int:
        """The bytes that one queue may have whose own limit is `most`: less, if all together have too much."""
        return self.backlog.share(most)

    def as_transient(self, entry: Entry) -> Transient:
        """A message that the store does not have, as the record of its dead letter holds it."""
        origin = entry.origin or Origin(*self._runtime.ids.stamp())
        return Transient(origin.id, origin.received, entry.channel, entry.wire, origin.sender, origin.qos)

    def lazy_until(self) -> float:
        """The loop time (s) up to which a lazy message that comes now may wait; 0: none waits."""
        wait_ms = self.bayeux.max_lazy_ms
        return self._runtime.loop.time() + wait_ms / 1000 if wait_ms > 0 else 0.0
