"""What happens to a message that a full queue has no room for, by the policy of the session's queue.

It is asked when a message arrives: one of the log when it is taken, a transient one when it is published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never
from weakref import WeakKeyDictionary

from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, least, place_of, priority_of
from crewel.delivery.pending_dead_letters import Payers
from crewel.qos.connect import Bounds, OverflowPolicy
from crewel.settings.access import Limits

if TYPE_CHECKING:
    from crewel.broker.events import Events
    from crewel.broker.session_queue.expiry import Expiry
    from crewel.broker.session_queue.open_messages import OpenMessages
    from crewel.broker.session_queue.outbound import Outbound

SIZE: Final = "resource.overflow.queue.bytes"
EXHAUSTED: Final = "resource.exhaust"
"""The code of a session that ends because its account has too many pending dead letters."""

OVERHEAD: Final = 400
"""Bytes that an entry takes in addition to its body, about."""


class Backlog:
    """The messages in the queues of all sessions, each body once however many queues have it; `size` in bytes.

    A body is weighed when the first queue takes it, and counts until the last reference to its entry is gone; so nothing
    has to be said when an entry leaves a queue, which happens in many places.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.size = 0
        self.is_full = False
        """Whether all queues together have more than they may."""
        self.sessions = 0
        """Sessions that share the room; the sweep sets it, so it may be a little old."""

    def weigh(self, entry: Entry) -> None:
        """Count the body of this entry from now on."""
        size = len(entry.wire) + OVERHEAD
        entry.weight = _Weight(self, size)
        self.change(size)

    def change(self, size: int) -> None:
        """So many bytes wait more, or less."""
        self.size += size
        self.is_full = 0 < self._limits.max_queued_bytes < self.size

    def share(self, most: int) -> int:
        """The bytes that one queue may have whose own limit is `most`: less, if all together have too much. So those
        with little still accept messages, and those that have filled the memory make room."""
        if not self.is_full:
            return most
        return min(most, self._limits.max_queued_bytes // max(self.sessions, 1))


class _Weight:
    """The bytes of one body, for as long as an entry refers to it."""

    __slots__ = ("_backlog", "_size")

    def __init__(self, backlog: Backlog, size: int) -> None:
        self._backlog = backlog
        self._size = size

    def __del__(self) -> None:
        self._backlog.change(-self._size)


class _Seen(NamedTuple):
    """What a session looked like when its transient messages were counted. While none of it changes, the count holds."""

    last_seen: float
    stored: int
    queued: int
    unacknowledged: int
    opened: int


@dataclass(eq=False)
class Overflow:
    """Applies the overflow policy of a stored session when its queue is full. `Outbound` has that of other sessions."""

    _runtime: Runtime
    _outbound: Outbound
    _open_messages: OpenMessages
    _events: Events
    _expiry: Expiry
    _charged: Callable[[Payers], str]
    """Called when a dead letter was charged to these accounts: why the session has to end, or an empty text."""

    def __post_init__(self) -> None:
        self._counted: WeakKeyDictionary[Session, tuple[_Seen, int]] = WeakKeyDictionary()

    def has_room(self, session: Session, durable: DurableSession, entry: Entry) -> bool:
        """Whether the entry may be queued. If not, the policy has been applied and nothing is left to do."""
        bounds, rejection = session.bounds, session.dispatcher.rejection
        if rejection is None:
            # An upper bound that costs little: what is open at the client and waits again counts twice.
            waiting = len(session.queue) + session.retained + len(durable.evicted)
            if bounds is None:
                return True
            if waiting < bounds.max_entries and durable.fits(bounds.max_bytes):
                if entry.position or not session.queue or self._outbound.has_bytes(session, len(entry.wire)):
                    return True
                return self._apply(session, durable, entry, bounds.policy, SIZE)
            code = self._exceeded(session, durable, entry, bounds)
            if entry.position and (durable.find(entry.position) is None or self._outbound.is_ending(session)):
                return False  # its own life had ended; or it becomes a dead letter with the end of the session
            return code is None or self._apply(session, durable, entry, bounds.policy, code)
        self._open_messages.dead_letter_new(session, entry, *rejection)
        return False

    def _exceeded(self, session: Session, durable: DurableSession, entry: Entry, bounds: Bounds) -> str | None:
        """The code of the bound that the entry goes beyond."""
        self._expiry.remove_expired(session)
        stored = len(durable) - (1 if entry.position else 0)
        waiting = stored if stored >= bounds.max_entries else stored + self._transients(session, stored)
        return bounds.exceeded(waiting, durable.size)

    def _transients(self, session: Session, stored: int) -> int:
        """How many messages wait for the session that are not stored. A full queue is asked about every message that arrives,
        so they are counted again only after something has come or gone."""
        batches = session.batches
        seen = _Seen(
            session.last_seen,
            stored,
            len(session.queue),
            len(batches) + batches.resending,
            len(session.dispatcher.in_flight),
        )
        known = self._counted.get(session)
        if known is None or known[0] != seen:
            known = self._counted[session] = seen, len(session.transients())
        return known[1]

    def _apply(
        self, session: Session, durable: DurableSession, entry: Entry, policy: OverflowPolicy, code: str
    ) -> bool:
        """Do as the policy says; True if the entry may be queued by that."""
        recovered = session.recovered
        if policy is OverflowPolicy.DROP_OLDEST and recovered is not None and recovered in session.queue:
            policy = OverflowPolicy.DISCONNECT  # a client that knows that it misses nothing sees no gap
        self._runtime.metrics.dropped[policy.value] += 1
        self._events.overflow(session, policy.value)
        match policy:
            case OverflowPolicy.DROP_OLDEST:
                if self._drop_oldest(session, durable, entry.priority):
                    return True
                self._open_messages.drop_new(session, entry)
            case OverflowPolicy.DISCONNECT:
                self._outbound.end_soon(session)
            case OverflowPolicy.DEAD_MESSAGE:
                if self._can_dead_letter(durable):
                    self._open_messages.dead_letter_new(session, entry, code, "the queue of the receiver is full")
                    if why := self._charged(durable.payers):
                        durable.death = (EXHAUSTED, why)
                        self._outbound.end_soon(session)
                else:
                    self._open_messages.drop_new(session, entry)
            case _:
                assert_never(policy)
        return False

    def _can_dead_letter(self, durable: DurableSession) -> bool:
        """Whether what the session has no room for becomes dead letters. No client comes back to a session without a name."""
        if durable.is_named or self._runtime.settings.delivery.letters_for_anonymous:
            return True
        self._runtime.metrics.dropped["noLetter"] += 1
        return False

    def _drop_oldest(self, session: Session, durable: DurableSession, priority: int) -> bool:
        """Drop the oldest message of the lowest priority that was never sent, unless all of them have a higher one than this.
        What is evicted goes behind what is queued, but for what is being sent again at the queue's front."""
        open_messages = self._open_messages
        resending = session.batches.resending
        evicted = None if resending else durable.lowest_evicted()
        if evicted is not None and priority_of(evicted) <= priority:
            open_messages.drop_evicted(session, place_of(evicted))
            return True
        queued = least(session.queue, resending)
        if queued is None or session.queue[queued].priority > priority:
            return False
        open_messages.drop_queued(session, queued)
        return True
