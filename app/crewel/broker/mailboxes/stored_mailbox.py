"""The mailbox of a session that the store has.

Stored messages are moved by their place in the log: what must wait again is evicted, and read back by priority and age. So a
message that is delivered again keeps its place, and no queue is sorted. Transient ones are few, and stay in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple, assert_never

from crewel.broker.mailboxes.forms import Form_co, Forms, Owner_contra
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.offers import ENDED, EVICTED, LEAVES, OVERFULL, READY, UNSURE
from crewel.delivery.batches import NO_BATCHES
from crewel.delivery.dispatcher import NO_DISPATCHER, FailedDelivery
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, beyond, comes_before, place_of, priority_of
from crewel.delivery.records import BATCH_BLOCK, EndReason, LogId, PendingDeadLetter
from crewel.delivery.sent_messages import id_of
from crewel.qos.connect import Bounds, OverflowPolicy

SIZE: Final = "resource.overflow.queue.bytes"
EXHAUSTED: Final = "resource.exhaust"
"""The code of a session that ends because its account has too many pending dead letters."""


class _Seen(NamedTuple):
    """What a mailbox looked like when messages were counted. The count holds until one of these changes, as messages come,
    leave and are acknowledged, or `_changed` reports another change."""

    batch: int
    stored: int
    queued: int
    unacknowledged: int
    opened: int


class StoredMailbox(Mailbox):
    """What it holds of the log is in `durable`, and outlives the process."""

    __slots__ = ("_counted", "_droppable", "durable")

    def __init__(self, former: Mailbox, durable: DurableSession) -> None:
        """It holds what the session's former mailbox holds in memory."""
        self.take_over(former)
        self.durable = durable
        self.evicted = durable.evicted
        self._counted: tuple[_Seen, int] | None = None
        self._droppable: tuple[tuple[_Seen, int, int], int] | None = None
        if self.batches is not NO_BATCHES:
            self.batches.continue_from(durable.batch)

    def choose(self, forms: Forms[Owner_contra, Form_co], session: Owner_contra) -> Form_co:
        """The form of something that goes with this mailbox, which is the session's."""
        return forms.in_store(session, self.durable)

    @property
    def _stored_name(self) -> str:
        """The name of the session."""
        return self.durable.name

    @property
    def has_notices(self) -> bool:
        """Whether a notice of a subscription waits."""
        return bool(self.durable.failed or self.durable.notices)

    # How much there is

    @property
    def depth(self) -> int:
        """How many messages wait, are sent, or are open."""
        return len(self.durable) + super().depth

    @property
    def size(self) -> int:
        """Their bytes."""
        return self.durable.size + super().size

    def channels(self) -> Iterator[str]:
        """The channels of all messages and notices that wait, are sent, or are open, some of them several times."""
        durable = self.durable
        yield from durable.failed
        for stored in (durable.notices, durable.inbox, durable.pending):
            for each in stored.values():
                yield each.channel
        yield from super().channels()

    @property
    def accounts_for_all(self) -> bool:
        """Whether it is recorded how each of its messages ends: always."""
        return True

    def stored(self) -> list[LogId]:
        """The places of the stored messages, by priority and age."""
        return self.durable.in_order()

    def has(self, message_id: str) -> bool:
        """Whether the message of this id waits, is sent, or is open."""
        return super().has(message_id) or (
            message_id.isdigit() and self.durable.find(LogId(int(message_id))) is not None
        )

    def room_in_bytes(self) -> int:
        """How many bytes more may wait, 0 at least."""
        return max(self.bounds.max_bytes - self.durable.size, 0)

    # Coming

    def _offer_stored(self, entry: Entry, cursor: LogId) -> int:
        place, is_usual = entry.position, self._is_usual()
        if not (is_usual or self._has_room(entry)):
            return OVERFULL if self.must_end else ENDED
        waits = place < cursor and comes_before(place, entry.priority, self.queue)
        if not (is_usual or waits):
            waits = self.is_absent or self.is_paused or self.durable.has_evicted_before(place, entry.priority)
        if not waits:
            return self.load(entry)
        if cursor:
            self.evict_arrived(place, entry.priority)
        else:
            self.durable.evict(place)
        return EVICTED

    def offer_at_once(self, entry: Entry) -> int:
        """Offer a message of the log, if one look says that there is room: as for most. UNSURE: nothing has been done."""
        if (
            not (self.queue or self.retained or self.is_absent or self.evicted or entry.lazy)
            and self.dispatcher is NO_DISPATCHER
        ):
            self.queue = [entry]
            self.queue_bytes = len(entry.wire)
            self.news = LEAVES
            return READY
        return self.load(entry) if self._is_usual() else UNSURE

    def _is_usual(self) -> bool:
        """Whether the next message of the log has room for certain, and nothing that waits in the store goes before it."""
        bounds = self.bounds
        return (
            not (self.is_absent or self.is_paused or self.rejects_all or self.evicted)
            and len(self.queue) + self.retained < bounds.max_entries
            and self.durable.certainly_fits(bounds.max_bytes)
        )

    def evict_arrived(self, place: LogId, priority: int) -> None:
        """The message at this place, which came past the log, waits in the store: it is read before what is younger."""
        if comes_before(place, priority, self.queue):
            self.recall()
        self.durable.evict(place)

    # A full queue

    def _has_room(self, entry: Entry) -> bool:
        """Whether the entry may wait: there is room, or the policy of the queue has made some. If not, the entry has ended, or
        the session must."""
        bounds, rejection = self.bounds, self.dispatcher.rejection
        if rejection is not None:
            self.dead_letter_new(FailedDelivery(entry, rejection.code, rejection.reason, given=rejection.given))
            return False
        if (
            self._waiting_at_most() < bounds.max_entries
            and self.durable.fits(bounds.max_bytes)
            and self._has_bytes(entry)
        ):
            return True
        now = self._listener.now()
        if self.is_due(now):
            self.expire(now, is_away=self.is_absent)
        is_first = True
        while True:
            code = self._exceeded(entry, bounds)
            if entry.position and (self.durable.find(entry.position) is None or self.must_end):
                return False  # its own life had ended; or it becomes a dead letter with the end of the session
            if code is None:
                self._note_coming(entry)
                return True
            if not self._apply_policy(entry, bounds, code, is_first=is_first):
                return False
            is_first = False

    def shorten(self) -> bool:
        """Nothing: its bounds hold for each message that comes. True: the session has to end."""
        return self.must_end

    def _exceeded(self, entry: Entry, bounds: Bounds) -> str | None:
        """The code of the bound that the entry goes beyond."""
        stored = len(self.durable) - (1 if entry.position else 0)
        code = bounds.exceeded(self._count_waiting(stored, bounds), self.durable.size)
        return SIZE if code is None and not self._has_bytes(entry) else code

    def _waiting_at_most(self) -> int:
        """An upper bound that costs little: what is open at the client and waits again counts twice."""
        return len(self.queue) + self.retained + len(self.evicted)

    def _has_bytes(self, entry: Entry) -> bool:
        """Whether the queue has room for the bytes of a transient entry; those of a stored one count where it is stored."""
        return bool(entry.position) or not self.queue or self.has_bytes(len(entry.wire))

    def _count_waiting(self, stored: int, bounds: Bounds) -> int:
        """How many messages wait, so many of them stored: exactly if they may be too many, and else whether any does. A large
        message may take the place of very many small ones, and this is asked after each of them."""
        if stored >= bounds.max_entries:
            return stored
        if self._waiting_at_most() < bounds.max_entries:
            return stored or self.retained or any(each.is_transient for each in self.queue)
        return stored + self._count_transients()

    def _count_transients(self) -> int:
        """How many messages wait that are not stored. A full queue is asked about every message that arrives, so they are
        counted again only after something has come or gone."""
        seen = self._seen()
        if self._counted is None or self._counted[0] != seen:
            self._counted = seen, len(self.transients())
        return self._counted[1]

    def _changed(self, queue: list[Entry]) -> None:
        super()._changed(queue)
        self._counted = self._droppable = None

    def _note_coming(self, entry: Entry) -> None:
        if not entry.position:  # a stored one is no transient one, and may be evicted
            self._count_one(entry, 1)

    def _count_one(self, entry: Entry, more: int) -> None:
        if self._counted is not None:
            seen, count = self._counted
            self._counted = seen._replace(queued=seen.queued + more), count + more * entry.is_transient

    def _seen(self, stored: int = 0) -> _Seen:
        batches, queued = self.batches, len(self.queue)
        return _Seen(
            batches.number, stored, queued, len(batches) + batches.resending, len(self.dispatcher.messages.opened)
        )

    def _apply_policy(self, entry: Entry, bounds: Bounds, code: str, *, is_first: bool) -> bool:
        """Do as the policy says; True if a message was dropped for this one, which may not be the first."""
        durable, recovered, policy = self.durable, self.recovered, bounds.policy
        if policy is OverflowPolicy.DROP_OLDEST and recovered is not None and recovered in self.queue:
            policy = OverflowPolicy.DISCONNECT  # a client that knows that it misses nothing sees no gap
        self._listener.overflowed(policy, durable.name)
        self._listener.has_changed(durable)
        match policy:
            case OverflowPolicy.DROP_OLDEST:
                is_in_memory = code == SIZE and not entry.position and durable.fits(bounds.max_bytes)
                if not is_first or self._has_droppable(entry, bounds):
                    self._droppable = None  # what is dropped changes it
                    if super()._drop_oldest(entry) if is_in_memory else self._drop_oldest(entry):
                        return True  # what is stored and not in memory would not make room there
                self._end_place(entry.position, EndReason.DROPPED)
            case OverflowPolicy.DISCONNECT:
                self.must_end = True
            case OverflowPolicy.DEAD_MESSAGE:
                if self.leaves_letters:
                    self.dead_letter_new(FailedDelivery(entry, code, "the queue of the receiver is full"))
                    if why := self._listener.charged(durable):
                        durable.death, self.must_end = (EXHAUSTED, why), True
                else:
                    self._listener.left_no_letter()
                    self._end_place(entry.position, EndReason.DROPPED)
            case _:
                assert_never(policy)
        return False

    def _has_droppable(self, entry: Entry, bounds: Bounds) -> bool:
        """Whether to drop messages makes room for the bytes of the entry. What the client has, what goes out again, and what
        has a higher priority stays."""
        durable, queue, resending = self.durable, self.queue, self.batches.resending
        front = beyond(queue, resending, entry.priority)
        excess = durable.size - bounds.max_bytes
        sizes: Iterable[int]
        if excess > 0:
            waiting = durable.size - (durable.size_of(entry.position) if entry.position else 0)
            stays = bool(self.retained) or any(each.is_transient for each in queue[:front])
            evicted = () if resending else durable.evicted_sizes(entry.priority)
            sizes = chain(
                evicted, (durable.size_of(each.position) for each in islice(queue, front, None) if each.position)
            )
        elif self._has_bytes(entry):
            return True
        else:
            waiting, stays = self.count_bytes(), front > 0
            excess = waiting + len(entry.wire) - self._listener.share(self.bounds.max_bytes)
            sizes = (len(each.wire) for each in islice(queue, front, None) if not each.is_notice)
        seen = self._seen(len(durable) - (1 if entry.position else 0)), waiting, entry.priority
        if self._droppable is None or self._droppable[0] != seen:
            total = 0
            for size in sizes:
                total += size
                if total >= excess:
                    return True
            self._droppable = seen, total  # one that is refused is often followed by others
        total = self._droppable[1]
        return total >= excess or (total == waiting and not stays)  # a message that is alone fits, however large

    def _drop_oldest(self, entry: Entry) -> bool:
        """End the oldest message of the lowest priority that was never sent, unless all of them have a higher one than this.
        What is evicted goes behind what is queued, but for what is being sent again at the queue's front."""
        evicted = None if self.batches.resending else self.durable.lowest_evicted()
        if evicted is not None and priority_of(evicted) <= entry.priority:
            self.durable.forget_rank(evicted)  # one that has ended since has another by now
            self.end_evicted(place_of(evicted), EndReason.DROPPED)
            return True
        return super()._drop_oldest(entry)

    @property
    def leaves_letters(self) -> bool:
        """Whether what ends with it unsettled becomes dead letters. No client comes back to a session without a name."""
        return self.durable.is_named or self._listener.letters_for_anonymous

    @property
    def death(self) -> tuple[str, str] | None:
        """Code and reason, if the client has failed for good."""
        return self.durable.death

    def die(self, code: str, reason: str) -> None:
        """The client has failed for good: what ends with the session has this code and reason."""
        self.durable.death = code, reason

    @property
    def ends_in_letters(self) -> bool:
        """Whether messages that are open when the session ends become dead letters: what a client reports always does."""
        return self.leaves_letters or self.durable.death is not None

    # Acknowledgements

    def confirm(self) -> list[Entry] | None:
        """A client that waits has got everything. Returns what has ended by that; None if more is to be looked at."""
        if self.dispatcher is not NO_DISPATCHER:
            return None
        self.retained = 0
        batches = self.batches
        if len(batches.sent) == 1:  # `hand_over`, without a call
            batches.futile = 0
            return batches.sent.popitem()[1]
        return batches.hand_over()

    def _end_acknowledged(self, entries: list[Entry]) -> None:
        if places := [entry.position for entry in entries if entry.position]:
            self.durable.settle_all(places)
            self._listener.acknowledged(self.durable, entries)

    def reserve_batches(self) -> None:
        """Have more numbers reserved, with the next commit."""
        self.durable.batch += BATCH_BLOCK
        self.batches.reserve_at += BATCH_BLOCK
        self._listener.has_changed(self.durable)

    # Waiting again

    def recall(self, entries: Iterable[Entry] = ()) -> None:
        """Let these, which were sent, wait again in their place; and let all that is stored wait in the store."""
        durable, entries, queue = self.durable, list(entries), self.queue
        for place in {each.position for each in (*entries, *queue) if each.position}:
            if durable.find(place) is not None and not durable.is_evicted(place):
                durable.evict(place)
        self._let_wait(*([each for each in some if not each.position] for some in (entries, queue)))

    def come_back(self, now: float) -> list[LogId]:
        """The client is there again. What is stored waits in the store; returns its places."""
        places = super().come_back(now)
        for place in places:
            self.durable.evict(place)
        return places

    def give_back(self, place: LogId) -> int:
        """The message at this place of the inbox goes back into the shared queue that it came from. Returns how often it may
        have been sent."""
        attempts = self.attempts(place)
        self.forget_stored(place)
        self.durable.requeue(place)
        own = self.durable.pending.get(place)
        if own is not None:  # it is for the session all the same, by its subscription
            self.durable.evict(place)
            if comes_before(place, own.priority, self.queue):
                self.recall()  # so that it is read before what is younger
        self._listener.has_changed(self.durable)
        return attempts

    def notices_after(self, entries: Iterable[Entry]) -> list[Entry]:
        """What was sent to tell what has happened to the topics or subscriptions of these, which wait again: it comes after
        them, so it waits again too. Nothing waits for its status any more."""
        durable, dispatcher = self.durable, self.dispatcher
        if not durable.notices:
            return []
        found = [durable.find(each.position) for each in entries]
        channels = {each.channel for each in found if each is not None}
        channels.update(each.channel for each in entries if not each.position)
        notices = [each for each in dispatcher.messages.entries if each.position in durable.notices]
        after = [each for each in notices if any(durable.notices[each.position].is_about(name) for name in channels)]
        for entry in after:
            dispatcher.messages.close(id_of(entry))
        return after

    # Ends

    def end_at(self, index: int, reason: EndReason) -> None:
        """The message at this index of the queue, which was never sent, ends in this way."""
        entry = self.queue[index]
        super().end_at(index, reason)
        self._count_one(entry, -1)
        self._end_place(entry.position, reason)

    def end_stored(self, place: LogId, reason: EndReason) -> None:
        """The stored message at this place ends in this way, and leaves nothing behind."""
        self.forget_stored(place)
        self._end_place(place, reason)

    def end_evicted(self, place: LogId, reason: EndReason) -> None:
        """The evicted message at this place ends in this way. The queue does not have it, and is not looked through."""
        sent = self.batches.unacknowledged
        if any(each.position == place for each in sent) or str(place) in self.dispatcher.messages.opened:
            self.end_stored(place, reason)
        else:
            self.durable.forget_evicted(place)
            self._end_place(place, reason)

    def end_messages(self, places: Collection[LogId], entries: Collection[Entry], reason: EndReason) -> None:
        """The stored messages at these places, and these entries which are not stored, end in this way, at the cost of one
        look at everything that waits."""
        super().end_messages(places, entries, reason)
        self._end_places(places, reason)

    def conflate(self, channel: str, newest: LogId) -> None:
        """The session wants the newest message of this channel only: all earlier ones that wait for it end. What its client
        has got stays; `newest` is the place of the one that comes now, 0 if it has none."""
        if not (self.queue or self.durable.pending):
            return
        for place in self._never_sent(channel, newest):
            self.end_stored(place, EndReason.FILTERED)
        self._conflate_queued(channel, [each for each in self.queue if not each.position])

    def is_due(self, now: int) -> bool:
        """Whether something may have to go out of all queues by now, microseconds since 1970."""
        return 0 < self.expiry <= now or 0 < self.durable.expiry <= now

    def expire(self, now: int, *, is_away: bool) -> bool:
        """End what has to go out of all queues by now. `is_away`: also what was sent and never acknowledged. False if nothing
        in memory ever has to."""
        gone = self.take_expired(now, is_away=is_away)
        self._transients_expired(gone)
        at_client = {entry.position for entry in self.at_client()}
        over = {each for each in self.durable.expired(now) if each not in at_client}
        # By their places too: what the record says of a life may differ a little from what the message says.
        self.take_out_many([each for each in self.queue if each.position in over])
        self.durable.expire(over.union(entry.position for entry in gone if entry.position))
        self._listener.has_changed(self.durable)
        return self.note_expiry()

    def forget_stored(self, place: LogId) -> None:
        """Memory has the stored message at this place no more, wherever it was."""
        super().forget_stored(place)
        self.durable.forget_evicted(place)

    def _end_place(self, place: LogId, reason: EndReason) -> None:
        if place:
            self.durable.end_message(place, reason)
            self._listener.has_changed(self.durable)

    def _end_places(self, places: Collection[LogId], reason: EndReason) -> None:
        if places:
            self.durable.end_messages(places, reason)
            self._listener.has_changed(self.durable)

    def _never_sent(self, channel: str, newest: LogId) -> list[LogId]:
        """The places of the channel's stored messages that are open and not at the client."""
        queued = {entry.position for entry in self.queue}  # what goes out again is there too
        sent = {entry.position for entry in self.in_memory()} - queued
        return [
            place
            for place, pending in self.durable.pending.items()
            if pending.channel == channel and place != newest and place not in sent and place not in self.durable.inbox
        ]

    # Dead letters

    def dead_letter_new(self, failed: FailedDelivery) -> None:
        """Make a dead letter of a message that is not in memory, or not any more. One of the server about itself only ends."""
        durable, (entry, code, reason, attempts, given, tries) = self.durable, failed
        place = entry.position
        if entry.leaves_letter:
            message = None if place else self._listener.as_transient(entry)
            attempts += self._stored_attempts(place)
            durable.dead_letter(PendingDeadLetter(durable.name, place, code, reason, attempts, message, given, tries))
        else:
            self._listener.left_no_letter()
            if place:
                durable.end_message(place, EndReason.DROPPED)
        self._listener.has_changed(durable)

    def dead_letter_stored(self, place: LogId, code: str, reason: str, given: str = "") -> bool:
        """The stored message at this place becomes a dead letter; False if it is not open."""
        durable = self.durable
        if place not in durable.pending and place not in durable.inbox:
            return False
        attempts, tries = self.attempts(place), self.dispatcher.messages.failed(str(place))
        self.forget_stored(place)
        durable.dead_letter(PendingDeadLetter(durable.name, place, code, reason, attempts, given=given, tries=tries))
        self._listener.has_changed(durable)
        return True

    def dead_letter_all(self, now: int, code: str, reason: str, given: str = "") -> int:
        """Make dead letters of all waiting messages but for those that have to go out of all queues by now (microseconds since
        1970); returns how many."""
        count = super().dead_letter_all(now, code, reason, given)
        durable = self.durable
        durable.evicted[:] = [rank for rank in durable.evicted if place_of(rank) in durable.notices]
        places = self.stored()
        self._forget_many(places)
        for place in places:
            self.dead_letter_stored(place, code, reason, given)
        return count

    # Attempts

    def attempts(self, place: LogId) -> int:
        """How often the stored message at this place may have been sent."""
        pending = self.durable.find(place)
        return super().attempts(place) + (0 if pending is None else pending.attempts)

    def _stored_attempts(self, place: LogId) -> int:
        pending = self.durable.pending.get(place) or self.durable.inbox.get(place)
        return 0 if pending is None else pending.attempts

    def leave(self, now: int) -> None:
        """The session ends: its client will say nothing more of what it has got. The dead letters of what is stored are written
        later, with the attempts of this server."""
        super().leave(now)
        for message_id in {*self.dispatcher.messages.waiting, *self.dispatcher.messages.opened}:
            if message_id.isdecimal():
                tries = self.dispatcher.messages.failed(message_id)
                self.durable.attempted(LogId(int(message_id)), self.dispatcher.messages.times_sent(message_id), tries)
