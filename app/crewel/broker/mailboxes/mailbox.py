"""The messages on their way to one session: those in its queue, those at its client, and how each of them ends.

Pure: no clock, no socket, no store. What is asked for each delivery is read directly; what changes it is a method here. What
the store has of the messages is behind the ledger. Stored messages are moved by their place in the log: what must wait again is
evicted, and read back by priority and age. So a message that is delivered again keeps its place, and no queue is sorted.
Transient ones are few, and stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from crewel.broker.mailboxes.fitting import fitting
from crewel.broker.mailboxes.full_queue import FullQueue
from crewel.broker.mailboxes.mailbox_view import MailboxView
from crewel.broker.mailboxes.offers import (
    ENDED,
    EVICTED,
    KEPT,
    LEAVES,
    NOT_OF_INBOX,
    NOTHING,
    OVERFULL,
    READY,
    UNSTORED,
    UNSURE,
    WAITS,
)
from crewel.delivery.batches import NO_BATCHES, Batches
from crewel.delivery.dispatcher import NO_DISPATCHER, Dispatcher, Rejection
from crewel.delivery.entry import NO_ENTRIES, Entry, as_they_came, comes_before, in_order, insert
from crewel.delivery.open_limit import OpenLimit
from crewel.delivery.outcomes import Status, Verdict
from crewel.delivery.records import EndReason, LogId
from crewel.delivery.sent_messages import id_of
from crewel.qos.connect import Bounds, Burst

if TYPE_CHECKING:
    from crewel.broker.mailboxes.ledger import Ledger
    from crewel.broker.mailboxes.mailbox_listener import Occasion
    from crewel.delivery.dispatcher import FailedDelivery, Judgement, Rules
    from crewel.delivery.dispatcher_states import Holdback

_ANY_BURST: Final = Burst()


class Mailbox:
    """The messages on their way to one session."""

    __slots__ = (
        "_batches",
        "_bounds",
        "_dispatcher",
        "_expiry",
        "_is_patient",
        "_is_paused",
        "_lazy_at",
        "_ledger",
        "_limit",
        "_must_end",
        "_queue",
        "_queue_bytes",
        "_recovered",
        "_retained",
        "evicted",
        "is_absent",
        "news",
        "tells",
    )

    _ledger: Ledger
    """What the store has of its messages."""
    _queue: list[Entry]
    """The waiting messages, in the order in which they leave; to begin with, and when all have left, NO_ENTRIES."""
    evicted: Sequence[int]
    """The ranks of what is in the store only, sorted; UNSTORED if the store does not have the session."""
    news: int
    """Whether something waits, and may leave: NOTHING, WAITS or LEAVES. It is read for each delivery, and written here only."""
    _lazy_at: float
    """Loop time (s) at which lazy messages stop waiting."""
    _is_paused: bool
    """Whether nothing is sent to it: it is on hold, or waits after a failure."""
    is_absent: bool
    """Whether the client has been away for so long that memory keeps only the ids of what is stored."""
    _batches: Batches
    """What it was sent and has not acknowledged; NO_BATCHES unless it acknowledges."""
    _retained: int
    """How many sent messages are kept until they are acknowledged; they count against the queue's bound."""
    _dispatcher: Dispatcher
    """What decides about its failures; NO_DISPATCHER while nothing needs one."""
    _limit: OpenLimit | None
    """How many messages may be open at its client; None: any number."""
    _bounds: Bounds
    """What may wait for it. Without entries, in memory only: as many as `bayeux.max_queue_messages` says, which may change."""
    _queue_bytes: float
    """Bytes of the bodies in the queue; infinite until `count_bytes` counts them again."""
    _must_end: bool
    """Whether the session ends soon, rather than lose what its queue has no room for."""
    _recovered: Entry | None
    """The last message that it knows that it missed: while that waits, the session ends rather than lose one."""
    tells: bool
    """Whether its client gets the origin of its messages, and reports their statuses. It is read for each delivery, and written
    here only."""
    _expiry: int
    """None of its messages in memory goes out of all queues before this, microseconds since 1970; 0: none does at all."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.evicted = ledger, ledger.evicted
        self._queue, self.news = NO_ENTRIES, NOTHING
        self._is_patient = False  # whether the queue need not leave at once: it is lazy, or goes with any next reply
        self._is_paused = self.is_absent = self._must_end = self.tells = False
        self._lazy_at = inf
        self._batches, self._dispatcher = NO_BATCHES, NO_DISPATCHER
        self._retained = self._queue_bytes = self._expiry = 0
        self._limit = self._recovered = None
        self._bounds = ledger.listener.bounds

    def keep_in(self, ledger: Ledger) -> None:
        """The store has the session from now on, or has it no more. What is in memory stays."""
        self._ledger, self.evicted = ledger, ledger.evicted
        if self._batches is not NO_BATCHES and ledger.batch:
            self._batches.continue_from(ledger.batch)

    def view(self) -> MailboxView:
        """What others may know of it."""
        return MailboxView(self)

    # Bounds

    def bound(self, bounds: Bounds) -> None:
        """Let so much wait, and no more."""
        self._bounds = bounds

    @property
    def _most(self) -> int:
        """How many messages may wait."""
        return self._bounds.max_entries or self._ledger.listener.bayeux.max_queue_messages

    def append(self, entry: Entry) -> None:
        """Put the last entry of a session behind the queued messages, whatever its priority and the bounds of the queue."""
        self._is_patient = False
        self._changed([*self._queue, entry])

    def _count_bytes(self) -> int:
        """The bytes of the bodies in the queue."""
        if not self._queue:
            return 0
        if self._queue_bytes == inf:
            self._queue_bytes = sum(len(entry.wire) for entry in self._queue)
        return int(self._queue_bytes)

    def _changed(self, queue: list[Entry]) -> None:
        """The queue has become this, or what the client has got has changed, and not by messages that come, leave or are
        acknowledged. What was counted no longer holds."""
        if queue is not self._queue:
            self._queue = queue
            self._queue_bytes = inf
        self._ledger.counts = None
        self._count_retained()
        self._look()

    def _look(self) -> None:
        """Something has changed in another way than by a message that comes or leaves: may something leave now?"""
        if not self._queue:
            self._is_patient = False
            self.news = NOTHING
        elif (
            self._is_patient
            or self._is_paused
            or not (self._limit is None or self._limit.lets_some_leave(self._queue, self._batches))
        ):
            self.news = WAITS
        else:
            self.news = LEAVES

    # Coming

    def offer(self, entry: Entry, cursor: LogId = NOT_OF_INBOX) -> int:
        """A message comes: one of the log when it is taken, a transient one when it is published. If there is room for it, or
        the policy of the queue makes some, it waits: KEPT, READY or EVICTED. If not, it has ENDED, or the mailbox is OVERFULL.
        `cursor`, for a message that comes past the log: the place up to which that was read."""
        if entry.position and self.evicted is not UNSTORED:
            return self._offer_stored(entry, cursor)
        queue = self._queue
        if (
            not (queue or self._retained or self.evicted or entry.lazy or entry.expires or entry.is_oneway)
            and self._dispatcher is NO_DISPATCHER
        ):
            if entry.weight is None and not entry.position:
                self._ledger.listener.backlog.weigh(entry)
            # It is alone: no bound matters.
            self._queue, self._queue_bytes, self.news = [entry], len(entry.wire), LEAVES
            return READY
        bounds, count, listener = self._bounds, len(queue) + self._retained, self._ledger.listener
        size = len(entry.wire) + (self._queue_bytes if queue else 0)  # infinite if it is to be counted again
        if (
            (count and count >= (bounds.max_entries or listener.bayeux.max_queue_messages))
            or size > bounds.max_bytes
            or self._dispatcher.rejection is not None
            or self.evicted
            or listener.backlog.is_full
        ) and not self._has_room(entry):
            return OVERFULL if self._must_end else ENDED
        return self.load(entry)

    def _has_room(self, entry: Entry) -> bool:
        return FullQueue(self, entry).has_room()

    def _offer_stored(self, entry: Entry, cursor: LogId) -> int:
        """Offer a message that the store has for this session."""
        place, is_usual = entry.position, self._is_usual()
        if not (is_usual or self._has_room(entry)):
            return OVERFULL if self._must_end else ENDED
        waits = place < cursor and comes_before(place, entry.priority, self._queue)
        if not (is_usual or waits):
            waits = self.is_absent or self._is_paused or self._ledger.goes_before(place, entry.priority)
        if not waits:
            return self.load(entry)
        if cursor:
            self._evict_arrived(place, entry.priority)
        else:
            self._ledger.park(place)
        return EVICTED

    def offer_at_once(self, entry: Entry) -> int:
        """Offer a message of the log that the store has for this session, if one look says that there is room: as for most.
        UNSURE: nothing has been done."""
        if (
            not (self._queue or self._retained or self.is_absent or self.evicted or entry.lazy)
            and self._dispatcher is NO_DISPATCHER
        ):
            self._queue = [entry]
            self._queue_bytes = len(entry.wire)
            self.news = LEAVES
            return READY
        return self.load(entry) if self._is_usual() else UNSURE

    def _is_usual(self) -> bool:
        """Whether the next message of the log has room for certain, and nothing that waits in the store goes before it."""
        bounds = self._bounds
        return (
            not (self.is_absent or self._is_paused or self.evicted)
            and self._dispatcher.rejection is None
            and len(self._queue) + self._retained < bounds.max_entries
            and self._ledger.certainly_fits(bounds.max_bytes)
        )

    def _evict_arrived(self, place: LogId, priority: int) -> None:
        """The message at this place, which came past the log, waits in the store: it is read before what is younger."""
        if comes_before(place, priority, self._queue):
            self._recall()
        self._ledger.park(place)

    def load(self, entry: Entry) -> int:
        """What has waited in the store only waits in memory again, or a notice waits, whatever the bounds: KEPT or READY."""
        if entry.weight is None and not entry.position:
            self._ledger.listener.backlog.weigh(entry)
        queue = self._queue
        if not queue:
            self._queue, self._queue_bytes = [entry], len(entry.wire)
        else:
            self._queue_bytes += len(entry.wire)
            if queue[-1].priority < entry.priority:
                insert(queue, entry, self._batches.resending)
            else:
                queue.append(entry)
        if entry.is_oneway and self._batches is not NO_BATCHES:
            self._batches.has_oneway = True
        if entry.expires:
            self._expiry = min(self._expiry or entry.expires, entry.expires)
        if self._limit is not None:
            self._limit.queued(entry)
        if entry.lazy and (until := self._ledger.listener.lazy_until()):
            if self._lazy_at == inf:
                self._lazy_at = until
            self._is_patient = self._is_patient or not queue
            self._look()
            return KEPT
        self._is_patient = False
        if self._limit is None and not self._is_paused:  # `_look`, without a call
            self.news = LEAVES
            return READY
        self._look()
        return READY if self.news == LEAVES else KEPT

    def tick(self, now: float) -> float:
        """At this loop time (s), lazy messages may have waited long enough. Returns when they will have."""
        if self._lazy_at <= now:
            self._lazy_at = inf
            self._is_patient = False
            self._look()
        return self._lazy_at

    # A full queue

    def _has_bytes(self, size: int) -> bool:
        """Whether the queue may have so many bytes more."""
        most = self._ledger.listener.share(self._bounds.max_bytes)
        return self._count_bytes() + size <= most

    def shorten(self) -> bool:
        """Cut the queue if it has more than its share, when all queues together have too much. A queue that nothing more comes
        to would keep what it has; the bounds of a stored one hold for each message that comes. True: the session has to end."""
        while self.evicted is UNSTORED and self._queue and not self._has_bytes(0):
            if not FullQueue(self, self._queue[-1]).shorten():
                break
        return self._must_end

    # Leaving

    def take(self, max_bytes: int, burst: Burst = _ANY_BURST) -> list[Entry]:
        """The entries for one response: as many from the front of the queue as fit, at least one; none while it is paused. The
        rest stays. Where the client acknowledges, it has them from here on: they are its next batch."""
        if self._is_paused:
            return NO_ENTRIES
        if self._expiry:
            self.expire(self._ledger.listener.now())
        queue = self._queue
        if len(queue) != 1 or self._limit is not None:
            return self._take_several(max_bytes, burst)
        self._queue = NO_ENTRIES
        self.news = NOTHING
        self._is_patient = False
        self._lazy_at = inf
        batches = self._batches
        if batches is not NO_BATCHES:
            if batches.must_resend or batches.has_oneway:
                self._keep(queue)
            else:
                batches.sent[batches.number] = queue  # `_keep`, without a call
                self._retained += 1
        return queue

    def _take_several(self, max_bytes: int, burst: Burst) -> list[Entry]:
        limit = self._limit
        if not self._queue:
            return NO_ENTRIES
        taken = self._take_front(max_bytes, burst) if limit is None else self._take_within(limit, max_bytes, burst)
        if taken and self._batches is not NO_BATCHES:
            self._keep(taken)
        if limit is not None:
            self._look()
        return taken

    def _take_front(self, max_bytes: int, burst: Burst) -> list[Entry]:
        """Take as many from the front of the queue as fit, at least one."""
        queue = self._queue
        count, size = fitting(queue, burst, max_bytes)
        if count < len(queue):
            self._queue = queue[count:]
            self._queue_bytes -= size
            self._is_patient, self.news = False, LEAVES  # the rest goes with the next connect, at once
            return queue[:count]
        self._queue, self.news, self._is_patient, self._lazy_at = NO_ENTRIES, NOTHING, False, inf
        return queue

    def _take_within(self, limit: OpenLimit, max_bytes: int, burst: Burst) -> list[Entry]:
        """Take as many as fit of the entries that the limit of open messages lets leave."""
        queue, leaving = self._queue, limit.leaving(self._queue, self._batches)
        if not leaving:
            limit.has_passing = False
            return leaving
        size = self._count_bytes()
        self._queue = leaving
        taken = self._take_front(max_bytes, burst)
        limit.left(self._queue)
        if len(leaving) < len(queue):
            gone = set(map(id, taken))
            self._queue = [entry for entry in queue if id(entry) not in gone]
        self._queue_bytes = size - sum(len(entry.wire) for entry in taken)
        return taken

    def told(self, entries: list[Entry], now: float) -> tuple[int, list[tuple[int, str]], float]:
        """These leave in one response at this loop time (s); the statuses of those that have an id are awaited. Returns how
        many wait with these, but 0 unless what waited while the client was away is being sent. For each: how often it may
        have been sent before, and its shared queue, if any. And when a status is overdue."""
        dispatcher, attempts = self._dispatcher, []
        size = len(entries) + len(self._queue) + len(self.evicted)
        for entry in entries:
            sent, source = 0, ""
            if entry.origin is not None:
                sent = 0 if entry.is_oneway else dispatcher.messages.send(entry, now)
                if entry.position and (waiting := self._ledger.find(entry.position)) is not None:
                    sent, source = sent + waiting.attempts, waiting.source  # an earlier server may have sent it
            attempts.append((sent, source))
        self._note_retained()
        flushes, dispatcher.flushes = dispatcher.flushes, dispatcher.flushes and size > len(entries)
        return size if flushes else 0, attempts, dispatcher.next_at()

    def _keep(self, entries: list[Entry]) -> None:
        """What leaves waits for its acknowledgement, but for what is not awaited again."""
        kept = [entry for entry in entries if not entry.is_oneway] if self._batches.has_oneway else entries
        again = self._batches.retain(kept)
        self._retained += len(kept)
        if again:  # what was to be sent again, and is not in this response, waits as all others do
            self._queue = in_order(self._queue)
            self._ledger.resent(again, is_busy=self._batches.is_busy)

    def _limit_open(self, most: int) -> None:
        self._limit = OpenLimit(most, self._dispatcher) if most else None
        if self._limit is not None:
            self._limit.left(self._queue)
        self._look()

    def _note_retained(self) -> None:
        """What the client has and has not settled counts against the bounds of the queue, and against its limit."""
        self._count_retained()
        if self._limit is not None:
            self._look()

    def _count_retained(self) -> None:
        batches, messages = self._batches, self._dispatcher.messages
        if not self.tells:
            self._retained = len(batches)
        elif batches.must_resend:  # what was sent is in the queue, too
            self._retained = messages.beside(batches.unacknowledged)
        else:
            self._retained = len(messages.opened)

    # Acknowledgements

    def begin_batches(self) -> None:
        """Its client acknowledges from now on."""
        self._batches = Batches()

    def expected(self) -> int:
        """The number that a client acknowledges which has got everything; -1 if something goes out again."""
        return -1 if self._batches.must_resend else self._batches.number - 1

    def confirm(self) -> list[Entry] | None:
        """A client that waits has got everything (`expected`). Returns what has ended by that, as far as the store has it; None
        if more is to be looked at: then `acknowledge` says it."""
        if self._dispatcher is not NO_DISPATCHER:
            return None
        self._retained = 0
        batches = self._batches
        if self.evicted is UNSTORED:
            batches.futile, batches.sent = 0, {}
            return NO_ENTRIES
        if len(batches.sent) == 1:  # `hand_over`, without a call
            batches.futile = 0
            return batches.sent.popitem()[1]
        return batches.hand_over()

    def resend_delay(self) -> float | None:
        """Seconds that the reply to the connect just acknowledged must wait; None if nothing goes out again with it."""
        if not self._batches.must_resend:
            return None
        self._batches.note_busy(len(self._dispatcher.messages.opened))
        return self._batches.resend_delay()

    def acknowledge(self, batch: int | None, *, is_busy: bool = False, may_wait: bool = True) -> bool:
        """Its client has got this batch and those before it, or says nothing of it (None). What that leaves open goes out
        again, unless the client is busy with it. If it `may_wait`, it goes with the next reply and not at once. Returns whether
        the client has a limit of open messages, and so may have room for more."""
        settled: list[Entry] = []
        queue = self._batches.acknowledge(batch, self._queue, settled, is_busy=is_busy)
        if queue is not self._queue:
            self._is_patient = self._is_patient or not self._queue
            self._queue, self._queue_bytes = queue, inf
        if self._batches.must_resend and not may_wait:
            self._is_patient = False
        # What is still open is in the queue again, or open in the dispatcher, or the client is busy with it.
        self._retained = len(self._batches) if is_busy else 0
        if self.tells:
            settled = self._dispatcher.acknowledge(settled)
            self._count_retained()
        self._look()
        if settled:
            self._ledger.settle(settled)
        return self._limit is not None

    def close_batch(self) -> int:
        """The number for the reply that is going out. What is left of the reserved numbers suffices for a while."""
        batches = self._batches
        if batches.must_resend:
            batches.unbatch()
        number = batches.number
        batches.number = number + 1
        if number >= batches.reserve_at:
            batches.reserve_at += self._ledger.reserve_batches()
        return number

    def report(self, statuses: list[Status], batch: int | None, occasion: Occasion) -> Judgement:
        """Its client reports these statuses. `batch` is the last one that it has got, if it says that as well: a failure of
        what was sent after it repeats what it had said before. What they mean for the client itself waits for `conclude`."""
        if batch is not None:
            # An OK would have ended the message if it had come before: it counts, also for a delivery before this one.
            repeated = set(map(id_of, self._batches.sent_after(batch)))
            statuses = [each for each in statuses if each.verdict is not Verdict.FAILED or each.id not in repeated]
        judgement = self._dispatcher.judge(statuses, occasion.receiver, occasion.now, occasion.now_ms)
        self._carry_out(judgement, occasion)
        if not self._dispatcher.reported:
            self._follow()
        return judgement

    def overdue(self, occasion: Occasion) -> Judgement:
        """Statuses may not have come in time: that is done with their messages."""
        return self._carry_out(self._dispatcher.overdue(occasion.now, occasion.now_ms), occasion)

    def _carry_out(self, judgement: Judgement, occasion: Occasion) -> Judgement:
        """Do with messages what was judged."""
        goes_elsewhere = occasion.goes_elsewhere
        self._take_out_many(judgement.settled)
        for entry in judgement.settled:
            self._ledger.end(entry.position, EndReason.SETTLED)
        if judgement.dead_letters:
            self._dead_letter_many([each for each in judgement.dead_letters if not goes_elsewhere(each)])
        if judgement.put_back:
            put_back = [each.entry for each in judgement.put_back if not goes_elsewhere(each)]
            if put_back:
                put_back += self._notices_of(put_back)
                self._take_back(put_back)
                self._recall(put_back)
        if judgement.dead_letters or judgement.put_back:
            self._note_retained()  # another session may have got some
        return judgement

    def _notices_of(self, entries: list[Entry]) -> list[Entry]:
        """What was sent to tell what has happened to the topics or subscriptions of these, which wait again: it comes after
        them, so it waits again too. Nothing waits for its status any more."""
        places, messages = self._ledger.notices_about(entries), self._dispatcher.messages
        after = [each for each in messages.entries if each.position in places] if places else []
        for entry in after:
            messages.close(id_of(entry))
        return after

    # What its dispatcher decides

    def configure(self, rules: Rules, max_open: int) -> None:
        """Its login asks for this, and for at most so many messages that are open at its client; 0: any number. A holdback
        stays."""
        if self._dispatcher is NO_DISPATCHER:
            self._dispatcher = Dispatcher(rules)
        else:
            self._dispatcher.revive(rules)
        self.tells = rules.tells
        self._limit_open(max_open)
        self._follow()

    def hold(self, stop: Holdback | Rejection | None, rules: Rules) -> None:
        """Nothing leaves any more, and with a rejection all that comes becomes dead letters; or it leaves again (None).
        `rules`: what its dispatcher goes by, if it has none yet."""
        if self._dispatcher is NO_DISPATCHER:
            self._dispatcher, self.tells = Dispatcher(rules), rules.tells
        if isinstance(stop, Rejection):
            self._dispatcher.rejection = stop
        else:
            self._dispatcher.holdback = stop
        self._follow()

    def conclude(self, now: float) -> bool:
        """The request that reported failures is read to its end, at this loop time (s): it may be paused, or reject all.
        Whether its client has failed for good; then the session has to end, and what ends with it says why."""
        death = self._dispatcher.conclude(now)
        if death is None:
            self._follow()
        else:
            self._ledger.die(*death)
        return death is not None

    def resume(self, now: float) -> bool:
        """Whether it has waited after a failure, and that ends by this loop time (s)."""
        is_over = self._dispatcher.resume(now)
        self._follow()
        return is_over

    def _follow(self) -> None:
        """Pause, or continue, as its dispatcher says."""
        if self._is_paused is not self._dispatcher.is_paused:
            self._pause(is_paused=not self._is_paused)

    def _pause(self, *, is_paused: bool) -> None:
        """Nothing leaves any more, or again."""
        self._is_paused = is_paused
        # At the end of a pause too: what a connect has put back meanwhile may be younger than the messages in the store.
        self._recall()

    def forget_failure(self) -> None:
        """An operator knows of the last failure that its client reported."""
        self._dispatcher.last_failure = None

    def recover_to(self, entry: Entry) -> None:
        """Its client knows that it misses nothing; this is the last of that."""
        self._recovered = entry

    def remember(self, former: Mailbox) -> None:
        """It was this one before the store was read again, which does not say how its client failed."""
        self._recovered, failed = former._recovered, former._dispatcher
        if failed.last_failure is not None:
            self._dispatcher.last_failure, self._dispatcher.failed_channels = (
                failed.last_failure,
                failed.failed_channels,
            )

    # Waiting again

    def _replace(self, entries: list[Entry]) -> None:
        """Let exactly these wait."""
        self._is_patient = False
        if self._limit is not None:
            self._limit.left(entries)
        self._changed(entries)

    def clear(self, but: str = "") -> None:
        """Nothing waits any more, unless it is of this channel."""
        self._replace([entry for entry in self._queue if entry.channel == but])

    def go_away(self) -> None:
        """The client has been away for long: memory keeps of what is stored no more than its place."""
        self.is_absent = True
        if self._batches is not NO_BATCHES:
            self._batches.drop_body()
        self._dispatcher.messages.drop_body()
        if self._queue:
            self._changed([entry.drop_body() for entry in self._queue])

    def come_back(self, now: float) -> None:
        """The client is there again, and has time from now (loop time, s) to report the statuses of what it has. What is stored
        waits in the store, and has to be loaded; the rest waits in memory."""
        self.is_absent = False
        entries = [*self._batches.reset(), *self._queue]
        if self._dispatcher is not NO_DISPATCHER:
            self._dispatcher.messages.restart_wait(now)
            self._dispatcher.flushes = bool(entries or self.evicted)
        self._replace(in_order(self._ledger.park_all(entries)))

    # Ends

    def _drop_where(self, is_dropped: Callable[[Entry], bool]) -> None:
        """Take out of the queue what this is true of. What the client has got stays open."""
        self._changed([entry for entry in self._queue if not is_dropped(entry)])

    def _take_out_many(self, gone: Collection[Entry]) -> None:
        """None of these waits, is sent or is open any more, at the cost of one look at the waiting messages."""
        for entry in gone:
            self._dispatcher.messages.close(id_of(entry))
        self._take_back(gone)

    def _take_back(self, entries: Collection[Entry]) -> None:
        """None of these waits or belongs to a batch any more; their statuses are still awaited."""
        if entries:
            self._changed(self._batches.take_out(entries, self._queue))

    def _take_expired(self, now: int, *, is_away: bool) -> list[Entry]:
        """Take out what has to go out of all queues by now (microseconds since 1970), and return it. `is_away`: so has what
        was sent and never acknowledged."""
        queue, gone = self._batches.expire(now, self._queue, is_away=is_away)
        for entry in gone:
            self._dispatcher.messages.close(id_of(entry))
        self._changed(queue)
        return gone

    def _note_expiry(self) -> bool:
        """Look again when the next one has to go. False if none ever has to."""
        expiring = [entry.expires for entry in (*self._queue, *self._at_client()) if entry.expires]
        self._expiry = min(expiring, default=0)
        return bool(expiring)

    # What there is

    def _at_client(self) -> list[Entry]:
        """What the client was sent and has not settled."""
        entries = [] if self._batches.must_resend else self._batches.unacknowledged
        return list(dict.fromkeys((*entries, *self._dispatcher.messages.entries)))

    def _in_memory(self) -> dict[Entry, None]:
        """Every entry, in the order open at the client, sent, queued; each once."""
        return dict.fromkeys((*self._dispatcher.messages.entries, *self._batches.unacknowledged, *self._queue))

    def _transients(self) -> list[Entry]:
        """The messages that are not stored: what the client has got first, then what is queued."""
        return [entry for entry in self._in_memory() if entry.is_transient]

    # Waiting again

    def _recall(self, entries: Iterable[Entry] = ()) -> None:
        """Let these, which were sent, wait again in their place; and let all that is stored wait in the store. The others wait
        in memory by priority and as they came: none is sent again first."""
        others = self._ledger.park_all(dict.fromkeys((*entries, *self._queue)))
        self._batches.unbatch()
        self._replace(as_they_came(others))

    def renew(self) -> None:
        """Another client continues the session: all that was sent goes out again."""
        if self._dispatcher is NO_DISPATCHER:
            entries = [*self._batches.reset(), *self._queue]
            # Of an absent client, memory has no bodies: they are loaded when it connects.
            self._replace(in_order(self._ledger.park_all(entries) if self.is_absent else entries))
        else:
            self._recall(dict.fromkeys((*self._dispatcher.messages.put_all_back(), *self._batches.reset())))
            self._dispatcher.flushes = bool(self._queue or self.evicted)

    def forget_stored(self, place: LogId) -> None:
        """Memory has the stored message at this place no more, wherever it was."""
        self._forget_many((place,))
        self._drop_where(lambda entry: entry.position == place)
        self._ledger.unpark(place)

    def give_back(self, place: LogId) -> int:
        """The message at this place of the inbox goes back into the shared queue that it came from. Returns how often it may
        have been sent."""
        attempts = self.view().attempts(place)
        self.forget_stored(place)
        own = self._ledger.give_back(place)
        if own is not None and comes_before(place, own.priority, self._queue):
            self._recall()  # so that it is read before what is younger
        return attempts

    # Ends

    def _end(self, entry: Entry, reason: EndReason) -> None:
        """The message has ended in this way."""
        self._take_out_many((entry,))
        self._ledger.end(entry.position, reason)

    def _end_at(self, index: int, reason: EndReason) -> None:
        """The message at this index of the queue, which was never sent, ends in this way."""
        entry = self._queue[index]
        if entry in self._batches.unacknowledged:  # put back by a failure, and its batch is not acknowledged yet
            self._end(entry, reason)
        else:
            self._count_bytes()
            self._queue.pop(index)
            self._queue_bytes -= len(entry.wire)
            if self._dispatcher.messages.close(id_of(entry)):
                self._count_retained()
            self._look()
            self._ledger.end(entry.position, reason)

    def _end_stored(self, place: LogId, reason: EndReason) -> None:
        """The stored message at this place ends in this way, and leaves nothing behind."""
        self.forget_stored(place)
        self._ledger.end(place, reason)

    def _end_evicted(self, place: LogId, reason: EndReason) -> None:
        """The evicted message at this place ends in this way. The queue does not have it, and is not looked through."""
        sent = self._batches.unacknowledged
        if any(each.position == place for each in sent) or str(place) in self._dispatcher.messages.opened:
            self._end_stored(place, reason)
        else:
            self._ledger.unpark(place)
            self._ledger.end(place, reason)

    def leave(self, now: int) -> None:
        """The session ends: its client will say nothing more of what it has got. `now`: microseconds since 1970."""
        if self._limit is not None:
            self._limit_open(0)
        if self._is_due(now):
            self.expire(now, is_gone=True)
            unanswered = [entry for entry in self._at_client() if entry.is_over(now)]
            self._take_out_many(unanswered)
            self._transients_expired(unanswered)
        messages = self._dispatcher.messages
        for message_id in filter(str.isdecimal, {*messages.waiting, *messages.opened}):  # for dead letters to come
            self._ledger.attempted(LogId(int(message_id)), messages.times_sent(message_id), messages.failed(message_id))

    def _is_due(self, now: int) -> bool:
        """Whether something may have to go out of all queues by now, microseconds since 1970."""
        return 0 < self._expiry <= now or self._ledger.is_due(now)

    def expire(self, now: int, *, is_gone: bool = False) -> bool:
        """End what has to go out of all queues by now: of a client that is away, or `is_gone`, also what it was sent and has
        never acknowledged. False if nothing in memory ever has to."""
        if not self._is_due(now):
            return self._expiry > 0
        gone = self._take_expired(now, is_away=is_gone or self.is_absent)
        self._transients_expired(gone)
        at_client = {entry.position for entry in self._at_client()}
        over = {each for each in self._ledger.expired(now) if each not in at_client}
        # By their places too: what the record says of a life may differ a little from what the message says.
        self._take_out_many([each for each in self._queue if each.position in over])
        self._ledger.end_all(over.union(entry.position for entry in gone if entry.position), EndReason.EXPIRED)
        return self._note_expiry()

    def _transients_expired(self, gone: list[Entry]) -> None:
        if self._batches is not NO_BATCHES:
            count = sum(not (entry.position or entry.is_oneway) for entry in gone)
            self._ledger.listener.transients_ended(EndReason.EXPIRED, count)

    def _forget_many(self, places: Collection[LogId], others: Iterable[Entry] = ()) -> None:
        """Memory has the messages at these places and these entries no more, at the cost of one look at the waiting ones."""
        wanted = set(places)
        self._take_out_many(dict.fromkeys((*others, *(each for each in self._in_memory() if each.position in wanted))))

    def _dead_letter_many(self, failed: Collection[FailedDelivery]) -> None:
        """All of these become dead letters, at the cost of one look at the waiting messages."""
        self._take_out_many([each.entry for each in failed])
        for each in failed:
            self._ledger.dead_letter(each)
