"""The mailbox of a session that the store does not have: its messages end with the process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from math import inf
from typing import Final, assert_never

from crewel.broker.mailboxes.mailbox import Form_co, Forms, Mailbox, Owner_contra
from crewel.delivery.entry import Entry, beyond
from crewel.delivery.pending_dead_letters import Payers
from crewel.delivery.records import EndReason, LogId, PendingMessage
from crewel.qos.connect import OverflowPolicy

_NOTHING: Final[Mapping[LogId, PendingMessage]] = {}


class MemoryMailbox(Mailbox):
    """Nothing in it is stored, and nothing of it becomes a dead letter."""

    has_more = False
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

    def promises(self) -> dict[str, bool]:
        """What logins and operators see of it."""
        return {"update": self.dispatcher.rules.tells, "durable": False}

    @property
    def has_notices(self) -> bool:
        """Whether a notice of a subscription waits."""
        return bool(self.queue) and any(entry.is_notice for entry in self.queue)

    def count_evicted(self) -> int:
        """How many messages are in the store only: none."""
        return 0

    def stored(self) -> list[LogId]:
        """The places of the stored messages: none."""
        return []

    def oldest(self) -> None:
        """Nothing is stored."""

    @property
    def is_evictable(self) -> bool:
        """Whether memory may let go of bodies: never."""
        return False

    @property
    def gives_up(self) -> float:
        """Seconds after which a client that is away has failed for good: it never has, its session ends."""
        return inf

    def subscribed_since(self, pattern: str) -> LogId:
        """Nothing is stored."""
        return LogId(0)

    @property
    def inbox(self) -> Mapping[LogId, PendingMessage]:
        """Nothing is stored."""
        return _NOTHING

    def open_at(self, place: LogId) -> None:
        """Nothing is stored."""

    @property
    def death(self) -> None:
        """Nothing is kept for a client that has failed for good."""

    def die(self, code: str, reason: str) -> None:
        """Nothing is kept for the client."""

    @property
    def ends_in_letters(self) -> bool:
        """Whether messages that are open when the session ends become dead letters: never."""
        return False

    def _end_acknowledged(self, entries: list[Entry]) -> None:
        """Nothing is kept of them."""

    def reserve_batches(self) -> None:
        """Its numbers end with the process."""

    def room_in_bytes(self) -> int:
        """How many bytes more may wait, 0 at least."""
        return max(self._listener.share(self.queue_max_bytes) - self.count_bytes(), 0)

    # A full queue

    def make_room(self, entry: Entry, usual: int) -> bool:
        """Whether the entry may wait: there is room, or the policy of the queue has made some. If not, the entry has ended, or
        the session must. `usual` is the limit of messages where the session has none of its own."""
        if self.recovered is not None and self.recovered not in self.queue:
            self.recovered = None  # it has gone out
        limit = self.queue_limit or usual
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

    def shorten(self) -> None:
        """Cut the queue if it has more than its share, when all queues together have too much. A queue that nothing more comes
        to would keep what it has."""
        while self.queue and not self.has_bytes(0):
            if not self._apply_policy(self.queue[-1]):
                break

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
        excess = waiting + len(entry.wire) - self._listener.share(self.queue_max_bytes)
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

    def dead_letter_new(
        self, entry: Entry, code: str, reason: str, attempts: int = 0, given: str = "", tries: str = ""
    ) -> None:
        """The message only ends."""
        self._listener.left_no_letter()

    def dead_letter_stored(self, place: LogId, code: str, reason: str, given: str = "") -> bool:
        """Nothing is stored."""
        return False

    def charge(self, payers: Payers) -> None:
        """It leaves no dead letters."""

    def known_attempts(self, place: LogId, waiting: PendingMessage) -> int:
        """How often the message was sent before for certain."""
        return waiting.attempts

    def _end_place(self, place: LogId, reason: EndReason) -> None:
        pass

    def _end_places(self, places: Collection[LogId], reason: EndReason) -> None:
        pass

    def has_stored(self, entry: Entry) -> bool:
        """Whether the store has this entry: never."""
        return False
