"""The mailbox of a session that the store does not have: its messages end with the process."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import assert_never

from crewel.broker.mailboxes.forms import Form_co, Forms, Owner_contra
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.offers import ENDED
from crewel.delivery.dispatcher import NO_DISPATCHER, FailedDelivery
from crewel.delivery.entry import NO_ENTRIES, Entry, beyond
from crewel.delivery.records import EndReason, LogId
from crewel.qos.connect import OverflowPolicy


class MemoryMailbox(Mailbox):
    """Nothing in it is stored, and nothing of it becomes a dead letter."""

    __slots__ = ()

    @classmethod
    def holding(cls, former: Mailbox) -> MemoryMailbox:
        """The mailbox of a session that has left the store, with what `former` holds in memory."""
        made = cls.__new__(cls)
        made.take_over(former)
        return made

    def choose(self, forms: Forms[Owner_contra, Form_co], session: Owner_contra) -> Form_co:
        """The form of something that goes with this mailbox, which is the session's."""
        return forms.in_memory(session)

    @property
    def has_notices(self) -> bool:
        """Whether a notice of a subscription waits."""
        return bool(self.queue) and any(entry.is_notice for entry in self.queue)

    def stored(self) -> list[LogId]:
        """The places of the stored messages: none."""
        return []

    @property
    def death(self) -> None:
        """Nothing is kept for a client that has failed for good."""

    def die(self, code: str, reason: str) -> None:
        """Nothing is kept for the client."""

    @property
    def ends_in_letters(self) -> bool:
        """Whether messages that are open when the session ends become dead letters: never."""
        return False

    def confirm(self) -> list[Entry] | None:
        """A client that waits has got everything: the store has nothing of it. None if more is to be looked at."""
        if self.dispatcher is not NO_DISPATCHER:
            return None
        self.retained, self.batches.futile, self.batches.sent = 0, 0, {}
        return NO_ENTRIES

    def _end_acknowledged(self, entries: list[Entry]) -> None:
        """Nothing is kept of them."""

    def reserve_batches(self) -> None:
        """Its numbers end with the process."""

    def room_in_bytes(self) -> int:
        """How many bytes more may wait, 0 at least."""
        return max(self._listener.share(self.bounds.max_bytes) - self.count_bytes(), 0)

    # Coming

    def _offer_stored(self, entry: Entry, cursor: LogId) -> int:
        """Nothing is stored for it."""
        return ENDED

    def evict_arrived(self, place: LogId, priority: int) -> None:
        """Nothing is stored."""

    # A full queue

    def _has_room(self, entry: Entry) -> bool:
        """Whether the entry may wait: there is room, or the policy of the queue has made some. If not, the entry has ended, or
        the session must."""
        if self.recovered is not None and self.recovered not in self.queue:
            self.recovered = None  # it has gone out
        limit = self._most
        if self._fits(entry, limit) or (entry.is_notice and self.overflow_policy is OverflowPolicy.DISCONNECT):
            return True
        policy = self.overflow_policy
        if policy is not OverflowPolicy.DISCONNECT and not self._can_make_room(entry, limit):
            self._listener.overflowed(policy, "")
            return False
        while self._apply_policy(entry):
            if self._fits(entry, limit):
                return True
        return False

    def shorten(self) -> bool:
        """Cut the queue if it has more than its share, when all queues together have too much. A queue that nothing more comes
        to would keep what it has. True: the session has to end."""
        while self.queue and not self.has_bytes(0):
            if not self._apply_policy(self.queue[-1]):
                break
        return self.must_end

    def _apply_policy(self, entry: Entry) -> bool:
        """Do as the policy says; True if a message was dropped for this one."""
        policy = self.overflow_policy
        self._listener.overflowed(policy, "")
        match policy:
            case OverflowPolicy.DISCONNECT:
                self.must_end = True
                return False
            case OverflowPolicy.DROP_OLDEST | OverflowPolicy.DEAD_MESSAGE:  # no login without a store gets the latter
                return not self.queue or self._drop_oldest(entry)
            case _:
                assert_never(policy)

    def _fits(self, entry: Entry, limit: int) -> bool:
        queue = self.queue
        if (self.rejects_all or len(queue) + self.retained >= limit) and (queue or self.retained):
            return False
        return not queue or self.has_bytes(len(entry.wire))

    def _can_make_room(self, entry: Entry, limit: int) -> bool:
        """Whether to drop messages makes room for the entry. What goes out again, what has a higher priority, and notices
        stay."""
        front = beyond(self.queue, self.batches.resending, entry.priority)
        if (self.rejects_all or front + self.retained >= limit) and (front or self.retained):
            return False
        waiting = self.count_bytes()
        excess = waiting + len(entry.wire) - self._listener.share(self.bounds.max_bytes)
        total = 0
        for each in islice(self.queue, front, None):
            if total >= excess:
                return True
            total += 0 if each.is_notice else len(each.wire)
        return total >= excess or total == waiting  # a message that is alone fits, however large

    def give_back(self, place: LogId) -> int:
        """Nothing is in the inbox."""
        return 0

    def notices_after(self, entries: Iterable[Entry]) -> list[Entry]:
        """Notices of topics and subscriptions that wait behind messages: none."""
        return []

    def end_stored(self, place: LogId, reason: EndReason) -> None:
        """Nothing is stored."""

    def end_evicted(self, place: LogId, reason: EndReason) -> None:
        """Nothing is evicted."""

    def dead_letter_new(self, failed: FailedDelivery) -> None:
        """The message only ends."""
        self._listener.left_no_letter()

    def dead_letter_stored(self, place: LogId, code: str, reason: str, given: str = "") -> bool:
        """Nothing is stored."""
        return False

    def _end_place(self, place: LogId, reason: EndReason) -> None:
        pass

    def _end_places(self, places: Collection[LogId], reason: EndReason) -> None:
        pass
