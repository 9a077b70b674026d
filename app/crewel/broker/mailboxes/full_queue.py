"""A queue that may be full: whether one more message may wait, and what the policy does if not.

A mailbox asks it where one look does not show that there is room. Fullness is decided here only, for both kinds of ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, assert_never

from crewel.broker.mailboxes.ledger import Counts, Seen
from crewel.broker.mailboxes.offers import UNSTORED
from crewel.delivery.batches import NO_BATCHES
from crewel.delivery.dispatcher import FailedDelivery
from crewel.delivery.entry import Entry, beyond, least, place_of, priority_of
from crewel.delivery.records import EndReason, LogId, NoLetter
from crewel.qos.connect import Bounds, OverflowPolicy

if TYPE_CHECKING:
    from crewel.broker.mailboxes.mailbox import Mailbox

SIZE: Final = "resource.overflow.queue.bytes"
"""The code of the bound of bytes."""


def policy_of(mailbox: Mailbox) -> OverflowPolicy:
    """What a full queue does. A client that knows what it has missed must see no gap, nor must one that acknowledges, of what
    the store does not have."""
    policy, recovered = mailbox._bounds.policy, mailbox._recovered
    if mailbox.evicted is UNSTORED:
        is_strict = mailbox._batches is not NO_BATCHES or recovered is not None
    else:
        is_strict = policy is OverflowPolicy.DROP_OLDEST and recovered is not None and recovered in mailbox._queue
    return OverflowPolicy.DISCONNECT if is_strict else policy


class FullQueue:
    """The queue of one mailbox, while a message comes."""

    __slots__ = ("_entry", "_is_stored", "_ledger", "_mailbox", "_place")

    def __init__(self, mailbox: Mailbox, entry: Entry) -> None:
        self._mailbox, self._ledger, self._entry = mailbox, mailbox._ledger, entry
        self._is_stored = mailbox.evicted is not UNSTORED
        self._place = entry.position if self._is_stored else LogId(0)
        """Where the store has it."""

    def has_room(self) -> bool:
        """Whether the message may wait: there is room, or the policy of the queue has made some. If not, it has ended, or the
        session must. What looks before, at each delivery, only says yes, and where this would."""
        mailbox, ledger, place = self._mailbox, self._ledger, self._place
        rejection = mailbox._dispatcher.rejection
        if rejection is not None:
            ledger.dead_letter(FailedDelivery(self._entry, rejection.code, rejection.reason, given=rejection.given))
            return False
        if mailbox._recovered is not None and mailbox._recovered not in mailbox._queue:
            mailbox._recovered = None  # it has gone out
        if self._certainly_fits():
            return True
        mailbox.expire(ledger.listener.now())
        is_first = True
        while True:
            code = self._exceeded()
            if place and (ledger.find(place) is None or mailbox._must_end):
                return False  # its own life had ended; or it becomes a dead letter with the end of the session
            if code is None:
                if not place:  # a stored one is no transient one, and may be evicted
                    self._count_one(self._entry, 1)
                return True
            if not self._apply_policy(code, is_first=is_first):
                return False
            is_first = False

    def shorten(self) -> bool:
        """Drop a message, so that the queue comes nearer to its share. False: none is dropped."""
        return self._apply_policy(SIZE, is_first=False)

    # Bounds

    def _certainly_fits(self) -> bool:
        mailbox = self._mailbox
        waiting = self._waiting_at_most()
        if (
            (waiting < mailbox._most or not waiting)
            and self._ledger.fits(mailbox._bounds.max_bytes)
            and self._has_bytes()
        ):
            return True
        return self._entry.is_notice and policy_of(mailbox) is OverflowPolicy.DISCONNECT

    def _exceeded(self) -> str | None:
        """The code of the bound that the message goes beyond."""
        mailbox, waiting = self._mailbox, self._count_waiting()
        bounds = Bounds(mailbox._most, mailbox._bounds.max_bytes)
        code = bounds.exceeded(waiting, self._ledger.size) if waiting else None
        return SIZE if code is None and not self._has_bytes() else code

    def _waiting_at_most(self) -> int:
        """An upper bound that costs little: what is open at the client and waits again counts twice."""
        mailbox = self._mailbox
        return len(mailbox._queue) + mailbox._retained + len(mailbox.evicted)

    def _has_bytes(self) -> bool:
        """Whether the queue has room for the bytes of a transient message; those of a stored one count where it is stored."""
        mailbox = self._mailbox
        return bool(self._place) or not mailbox._queue or mailbox._has_bytes(len(self._entry.wire))

    def _count_waiting(self) -> int:
        """How many messages wait: exactly if they may be too many, and else whether any does. A large message may take the
        place of very many small ones, and this is asked after each of them."""
        mailbox = self._mailbox
        if not self._is_stored:
            return self._waiting_at_most()
        stored = self._count_stored()
        if stored >= mailbox._most:
            return stored
        if self._waiting_at_most() < mailbox._most:
            return stored or mailbox._retained or any(each.is_transient for each in mailbox._queue)
        seen, counts = self._seen(), self._ledger.counts or Counts()
        if counts.transients is None or counts.transients[0] != seen:
            counts = self._ledger.counts = counts._replace(transients=(seen, len(mailbox._transients())))
        assert counts.transients is not None
        return stored + counts.transients[1]

    def _count_stored(self) -> int:
        return len(self._ledger) - bool(self._place)

    def _count_one(self, entry: Entry, more: int) -> None:
        """This one has come, or has gone."""
        counts = self._ledger.counts
        if counts is not None and counts.transients is not None:
            seen, count = counts.transients
            changed = seen._replace(queued=seen.queued + more), count + more * entry.is_transient
            self._ledger.counts = counts._replace(transients=changed)

    def _seen(self, stored: int = 0) -> Seen:
        mailbox, batches = self._mailbox, self._mailbox._batches
        opened = mailbox._dispatcher.messages.opened
        return Seen(batches.number, stored, len(mailbox._queue), len(batches) + batches.resending, len(opened))

    # Policies

    def _apply_policy(self, code: str, *, is_first: bool) -> bool:
        """Do as the policy says; True if a message was dropped for this one, which may not be the first."""
        mailbox, ledger, policy = self._mailbox, self._ledger, policy_of(self._mailbox)
        ledger.overflowed(policy)
        match policy:
            case OverflowPolicy.DROP_OLDEST:
                if (not is_first or self._has_droppable()) and self._drop_oldest(code):
                    return True
                ledger.end(self._place, EndReason.DROPPED)
            case OverflowPolicy.DISCONNECT:
                mailbox._must_end = True
            case OverflowPolicy.DEAD_MESSAGE:
                if ledger.leaves_letters:
                    ledger.dead_letter(FailedDelivery(self._entry, code, "the queue of the receiver is full"))
                    mailbox._must_end = ledger.charge() or mailbox._must_end
                else:
                    ledger.listener.left_no_letter(NoLetter.FULL if self._is_stored else NoLetter.NOT_STORED)
                    ledger.end(self._place, EndReason.DROPPED)
            case _:
                assert_never(policy)
        return False

    def _has_droppable(self) -> bool:
        """Whether to drop messages makes room for the bytes of this one. What the client has, what goes out again, and what
        has a higher priority stays."""
        mailbox, ledger, priority = self._mailbox, self._ledger, self._entry.priority
        queue, resending, most = mailbox._queue, mailbox._batches.resending, mailbox._bounds.max_bytes
        front = beyond(queue, resending, priority)
        sizes: Iterable[int]
        if (excess := ledger.size - most) > 0:
            waiting = ledger.size - (ledger.size_of(self._place) if self._place else 0)
            stays = bool(mailbox._retained) or any(each.is_transient for each in queue[:front])
            parked = () if resending else ledger.parked_sizes(priority)
            sizes = chain(
                parked, (ledger.size_of(each.position) for each in islice(queue, front, None) if each.position)
            )
        elif self._has_bytes():
            return True
        else:
            waiting, stays = mailbox._count_bytes(), front > 0
            excess = waiting + len(self._entry.wire) - ledger.listener.share(most)
            sizes = (len(each.wire) for each in islice(queue, front, None) if not each.is_notice)
        seen = self._seen(self._count_stored()), waiting, priority
        counts = self._ledger.counts or Counts()
        if counts.droppable is None or counts.droppable[0] != seen:
            total = 0
            for size in sizes:
                total += size
                if total >= excess:
                    return True
            counts = counts._replace(droppable=(seen, total))  # one that is refused is often followed by others
            if self._is_stored:
                ledger.counts = counts
        assert counts.droppable is not None
        total = counts.droppable[1]
        return total >= excess or (total == waiting and not stays)  # a message that is alone fits, however large

    def _drop_oldest(self, code: str) -> bool:
        """End the oldest message of the lowest priority that was never sent, unless all of them have a higher one than this:
        one that is queued, or evicted. What is being sent again at the queue's front stays."""
        mailbox, ledger, resending = self._mailbox, self._ledger, self._mailbox._batches.resending
        if ledger.counts is not None:
            ledger.counts = ledger.counts._replace(droppable=None)  # what is dropped changes it
        makes_room_in_memory = code == SIZE and not self._place and ledger.fits(mailbox._bounds.max_bytes)
        evicted = None if resending or makes_room_in_memory else ledger.lowest()
        index = least(mailbox._queue, resending)
        queued = None if index is None else mailbox._queue[index]
        if evicted is not None and queued is not None and _gives_way_first(queued, evicted):
            evicted = None
        if evicted is not None and priority_of(evicted) <= self._entry.priority:
            ledger.unpark_rank(evicted)  # one that has ended since has another by now
            mailbox._end_evicted(place_of(evicted), EndReason.DROPPED)
            return True
        if index is None or queued is None or queued.priority > self._entry.priority:
            return False
        mailbox._end_at(index, EndReason.DROPPED)
        self._count_one(queued, -1)
        return True


def _gives_way_first(queued: Entry, evicted: int) -> bool:
    """Whether a queued message is dropped before the evicted one of this rank. Of a client that went away before the others
    came, or that has loaded a part of its backlog, the queue has the oldest ones."""
    rank = priority_of(evicted), place_of(evicted)
    return bool(queued.position) and (queued.priority, queued.position) < rank
