"""One session's messages: the queue, what its client has got and not settled, and whether anything may leave.

Pure: no clock, no socket, no store. What is asked for each delivery is read directly; everything that changes it is a method here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING

from crewel.delivery.batches import NO_BATCHES, Batches
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.entry import in_order
from crewel.delivery.records import LogId
from crewel.qos.connect import Bounds, Burst, OverflowPolicy

if TYPE_CHECKING:
    from crewel.delivery.dispatcher import Dispatcher
    from crewel.delivery.durable_session import DurableSession
    from crewel.delivery.entry import Entry
    from crewel.delivery.open_limit import OpenLimit

_ANY_BURST = Burst()


class Mailbox:
    """The messages on their way to one session."""

    __slots__ = (
        "batches",
        "bounds",
        "burst",
        "dispatcher",
        "durable",
        "expiry",
        "is_absent",
        "is_paused",
        "is_ready",
        "is_reliable",
        "lazy_at",
        "limit",
        "queue",
        "queue_bytes",
        "queue_counted",
        "queue_limit",
        "queue_max_bytes",
        "recovered",
        "rejects_all",
        "retained",
        "unstored_policy",
        "urgent",
    )

    queue: list[Entry]
    """The waiting messages, in the order in which they leave."""
    urgent: bool
    """Whether the queue holds something that a held connect must not wait with: anything but lazy messages."""
    lazy_at: float
    """Loop time (s) at which lazy messages stop waiting."""
    is_ready: bool
    """Whether the next flush looks at this session."""
    is_paused: bool
    """Whether nothing is sent to it: it is on hold, or waits after a failure."""
    is_absent: bool
    """Whether the client has been away for so long that memory keeps only the ids of what is stored."""
    is_reliable: bool
    """Whether it acknowledges: no message to it is dropped in silence."""
    batches: Batches
    """What it was sent and has not acknowledged; NO_BATCHES unless it acknowledges."""
    retained: int
    """How many sent messages are kept until they are acknowledged; they count against the queue's bound."""
    durable: DurableSession | None
    """What it is to receive of the log; None unless the store has the session."""
    dispatcher: Dispatcher
    """What decides about its failures; NO_DISPATCHER while nothing needs one."""
    limit: OpenLimit | None
    """How many messages may be open at its client; None: any number."""
    bounds: Bounds | None
    """The bounds of its queue, if the store has it."""
    queue_limit: int
    """Most messages that wait for it; 0: as many as `bayeux.max_queue_messages` says, which may change."""
    queue_max_bytes: int
    """Most bytes that wait for it."""
    queue_bytes: int
    """Bytes of the bodies of as many entries of the queue as `queue_counted` says; `count_bytes` of all."""
    rejects_all: bool
    """Whether all that comes becomes dead letters, because its client has failed for good."""
    unstored_policy: OverflowPolicy
    """What a full queue does of a session that the store does not have; `overflow_policy` also knows the exceptions."""
    recovered: Entry | None
    """The last message that it knows that it missed: while that waits, the session ends rather than lose one."""
    burst: Burst
    """How much one response may carry."""
    expiry: int
    """None of its messages in memory goes out of all queues before this, microseconds since 1970; 0: none does at all."""

    def __init__(self, max_bytes: int) -> None:
        self.queue = []
        self.urgent = self.is_ready = self.is_paused = self.is_absent = self.is_reliable = False
        self.lazy_at = inf
        self.batches = NO_BATCHES
        self.retained = 0
        self.durable = None
        self.dispatcher = NO_DISPATCHER
        self.limit = None
        self.bounds = None
        self.queue_limit = 0
        self.queue_max_bytes = max_bytes
        self.queue_bytes = self.queue_counted = 0
        self.rejects_all = False
        self.unstored_policy = OverflowPolicy.DROP_OLDEST
        self.recovered = None
        self.burst = _ANY_BURST
        self.expiry = 0

    # Bounds

    def bound(self, limit: int, max_bytes: int, policy: OverflowPolicy) -> None:
        """Let at most so many messages and bytes wait."""
        self.queue_limit, self.queue_max_bytes = limit, max_bytes
        self.unstored_policy = policy
        self.rejects_all = False

    def bound_stored(self, bounds: Bounds) -> None:
        """Bound the queue of a session that the store has: its policy says what happens beyond."""
        self.bounds = bounds
        self.bound(bounds.max_entries, bounds.max_bytes, bounds.policy)

    @property
    def overflow_policy(self) -> OverflowPolicy:
        """What a full queue does with messages that the store does not have. A client that acknowledges, or that knows what it
        has missed, must see no gap."""
        return OverflowPolicy.DISCONNECT if self.is_reliable or self.recovered is not None else self.unstored_policy

    def room(self, usual: int) -> int:
        """How many messages more may wait, 0 at least; what the client has and has not settled counts. `usual` is the limit
        where the session has none of its own."""
        return 0 if self.rejects_all else max((self.queue_limit or usual) - len(self.queue) - self.retained, 0)

    def count_bytes(self) -> int:
        """The bytes of the bodies in the queue. It is counted as entries come and leave in the usual way; after others have
        left, all are counted again."""
        if self.queue_counted != len(self.queue):
            self.queue_bytes = sum(len(entry.wire) for entry in self.queue)
            self.queue_counted = len(self.queue)
        return self.queue_bytes

    # Leaving

    def take(self, max_bytes: int) -> list[Entry]:
        """The entries for one response: as many from the front of the queue as fit, at least one. The rest stays."""
        queue = self.queue
        if not queue:
            return queue
        if len(queue) > 1:
            size, burst = 0, self.burst
            most = burst.max_entries or len(queue)
            if burst.max_bytes is not None and burst.max_bytes < max_bytes:
                max_bytes = burst.max_bytes
            for position, entry in enumerate(queue):
                size += len(entry.wire) + 1
                if (size > max_bytes or position >= most) and position:
                    self.queue = queue[position:]
                    self.queue_bytes -= size - len(entry.wire) - 1 - position
                    self.queue_counted -= position
                    self.urgent = True  # the rest goes with the next connect, at once
                    return queue[:position]
        self.queue = []
        self.queue_bytes = self.queue_counted = 0
        self.urgent = False
        self.lazy_at = inf
        return queue

    def take_within(self, limit: OpenLimit, max_bytes: int) -> list[Entry]:
        """The same, of the entries that the limit lets leave."""
        queue, leaving = self.queue, limit.leaving(self.queue, self.batches)
        if not leaving:
            limit.has_passing = False
            return []
        size = self.count_bytes()
        self.queue = leaving
        taken = self.take(max_bytes)
        limit.left(self.queue)
        if len(leaving) < len(queue):
            gone = set(map(id, taken))
            self.queue = [entry for entry in queue if id(entry) not in gone]
        self.queue_bytes, self.queue_counted = size - sum(len(entry.wire) for entry in taken), len(self.queue)
        self.urgent = bool(self.queue)
        return taken

    @property
    def has_leaving(self) -> bool:
        """Whether something that waits may leave, as far as the limit goes. Asked only of a session with one."""
        assert self.limit is not None
        return self.limit.lets_some_leave(self.queue, self.batches)

    def note_retained(self) -> None:
        """What the client has and has not settled counts against the bounds of the queue."""
        if self.dispatcher.rules.tells:
            self.retained = max(len(self.dispatcher.in_flight) - self.batches.resending, 0)

    # Waiting again

    def replace(self, entries: list[Entry]) -> None:
        """Let exactly these wait."""
        self.queue = entries
        self.urgent = bool(entries)
        if self.limit is not None:
            self.limit.left(entries)

    def forget_sent(self) -> None:
        """Another client without a dispatcher continues: all that was sent waits again."""
        self.replace(in_order([*self.batches.reset(), *self.queue]))
        self.retained = 0

    def evict(self) -> None:
        """The client has been away for long: memory keeps of what is stored no more than its place."""
        self.is_absent = True
        self.queue = [entry.drop_body() for entry in self.queue]
        self.batches.drop_body()
        self.dispatcher.drop_body()

    def come_back(self) -> list[LogId]:
        """The client is there again. Returns the places of what is stored and has to be loaded; the rest waits."""
        self.is_absent = False
        entries = [*self.batches.reset(), *self.queue]
        self.replace(in_order([entry for entry in entries if not entry.position]))
        self.retained = 0
        return [entry.position for entry in entries if entry.position]

    # Ends

    def drop_where(self, is_dropped: Callable[[Entry], bool]) -> None:
        """Take out of the queue what this is true of. What the client has got stays open."""
        self.queue = [entry for entry in self.queue if not is_dropped(entry)]

    def drop(self, entry: Entry) -> None:
        """Take this very entry out of the queue."""
        self.queue = [each for each in self.queue if each is not entry]

    def drop_at(self, index: int) -> Entry:
        """Take out of the queue what lies there."""
        self.count_bytes()
        entry = self.queue.pop(index)
        self.queue_bytes -= len(entry.wire)
        self.queue_counted -= 1
        return entry

    def take_out(self, entry: Entry) -> None:
        """The entry is neither to be sent nor to be acknowledged any more."""
        self.take_back(entry)
        self.dispatcher.close(entry)

    def take_back(self, entry: Entry) -> None:
        """The entry belongs to no batch and waits no more; its status is still awaited."""
        self.queue = self.batches.take_out(entry, self.queue)

    def take_out_many(self, gone: Collection[Entry]) -> None:
        """None of these belongs to a batch or waits any more, at the cost of one look at the waiting messages."""
        self.queue = self.batches.take_out_many(gone, self.queue)
        for entry in gone:
            self.dispatcher.close(entry)

    def expire(self, now: int, *, is_away: bool) -> list[Entry]:
        """Take out what has to go out of all queues by now (microseconds since 1970), and return it. `is_away`: so has what
        was sent and never acknowledged."""
        self.queue, gone = self.batches.expire(now, self.queue, is_away=is_away)
        for entry in gone:
            self.dispatcher.close(entry)
        return gone

    def note_expiry(self) -> bool:
        """Look again when the next one has to go. False if none ever has to."""
        expiring = [entry.expires for entry in (*self.queue, *self.at_client()) if entry.expires]
        self.expiry = min(expiring, default=0)
        if not self.queue:
            self.urgent = False
        self.note_retained()
        return bool(expiring)

    # What there is

    def at_client(self) -> list[Entry]:
        """What the client was sent and has not settled."""
        entries = [] if self.batches.must_resend else self.batches.unacknowledged
        return list(dict.fromkeys((*entries, *self._opened())))

    def in_memory(self) -> dict[Entry, None]:
        """Every entry, in the order open at the client, sent, queued; each once."""
        return dict.fromkeys((*self._opened(), *self.batches.unacknowledged, *self.queue))

    def transients(self) -> list[Entry]:
        """The messages that are not stored: what the client has got first, then what is queued."""
        return [
            entry
            for entry in self.in_memory()
            if not (entry.position or entry.is_oneway or entry.channel.startswith("/meta/"))
        ]

    def _opened(self) -> list[Entry]:
        return [entry for entry, _ in self.dispatcher.in_flight.values()]
