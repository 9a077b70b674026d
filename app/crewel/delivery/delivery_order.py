"""The order in which the pending messages of a durable session are delivered: by priority, then age.

A message whose body is not in memory is evicted: only its rank is kept, and the body is read when its turn comes. Notices
wait among the messages, and are none: each goes behind the messages that it is about.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice

from crewel.delivery.entry import place_of, priority_of, rank_of
from crewel.delivery.fan_out_buffer import PendingDeliveries
from crewel.delivery.records import LogId, PendingMessage
from crewel.qos.publish import NORMAL


class DeliveryOrder(PendingDeliveries):
    """What is pending for one session, in its order."""

    __slots__ = ("_stored_notices", "evicted", "failed")

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[int] = []
        """The ranks of the pending messages whose bodies are not in memory, sorted."""
        self._stored_notices: dict[str, LogId] = {}
        self.failed: dict[str, str] = {}
        """Pattern -> why the server has ended the subscription, JSON, while the notice of it waits."""

    def find(self, log_id: LogId) -> PendingMessage | None:
        """What is known of a pending message, or of a notice that waits; None if there is none."""
        return self.pending.get(log_id) or self.inbox.get(log_id) or self.notices.get(log_id)

    def _rank(self, log_id: LogId) -> int:
        pending = self.find(log_id)
        return rank_of(log_id, NORMAL if pending is None else pending.priority)

    def evict(self, log_id: LogId) -> None:
        """Its body need not be kept: it will be read when the client is there."""
        insort(self.evicted, self._rank(log_id))

    def in_order(self) -> list[LogId]:
        """All pending messages, in the order in which they are to be delivered."""
        return sorted({*self.pending, *self.inbox}, key=self._rank)

    def is_evicted(self, log_id: LogId) -> bool:
        """Whether the message, which is pending, is evicted."""
        rank = self._rank(log_id)
        position = bisect_left(self.evicted, rank)
        return position < len(self.evicted) and self.evicted[position] == rank

    def has_evicted_before(self, log_id: LogId, priority: int) -> bool:
        """Whether something is evicted that goes before a message of this place and priority."""
        return bool(self.evicted) and self.evicted[0] < rank_of(log_id, priority)

    def lowest_evicted(self) -> int | None:
        """The rank of the evicted message that is dropped first: the oldest of the lowest priority. None if there is none.
        Notices are not dropped."""
        evicted, end = self.evicted, len(self.evicted)
        while end:
            start = bisect_left(evicted, rank_of(LogId(0), priority_of(evicted[end - 1])), 0, end)
            for position in range(start, end):
                if place_of(evicted[position]) not in self.notices:
                    return evicted[position]
            end = start
        return None

    def evicted_sizes(self, priority: int) -> Iterator[int]:
        """The bytes of each evicted message that has no higher priority than this."""
        for position in range(bisect_left(self.evicted, rank_of(LogId(0), priority)), len(self.evicted)):
            yield self.size_of(place_of(self.evicted[position]))

    def size_of(self, log_id: LogId) -> int:
        """The bytes of a pending message; 0 if it is not pending, or is a notice."""
        pending = self.find(log_id)
        return 0 if pending is None else pending.size

    def forget_evicted(self, log_id: LogId) -> None:
        """The message, which is pending, is evicted no more, if it was."""
        if self.is_evicted(log_id):
            self.forget_rank(self._rank(log_id))

    def forget_rank(self, rank: int) -> None:
        """The message with this rank, which is evicted, is evicted no more, whether or not it is pending."""
        del self.evicted[bisect_left(self.evicted, rank)]

    def first_evicted(self, count: int) -> list[LogId]:
        """The first evicted ids that are still pending, at most so many. They stay evicted."""
        return list(islice((place for place in map(place_of, self.evicted) if self.find(place) is not None), count))

    def load(self, ids: Collection[LogId]) -> list[LogId]:
        """Those of the ids that go before all else that is evicted, and are still pending; they are evicted no more."""
        taken: list[LogId] = []
        position = 0
        while position < len(self.evicted):
            place = place_of(self.evicted[position])
            if self.find(place) is not None:
                if place not in ids:
                    break
                taken.append(place)
            position += 1
        del self.evicted[:position]
        return taken

    # Notices that topics were erased, or that the server has ended subscriptions

    def notice(self, log_id: LogId, channel: str, lowest: int = NORMAL, why: str = "") -> list[LogId]:
        """The store has put the notice that the topic of this channel was erased at this place, or with `why` that the
        subscription to this pattern has ended, instead of any that waited there for the session; its priority is at most
        `lowest`. Returns the places of the others."""
        former = self.forget_notice(channel)
        if why:
            self.failed[channel] = why
        self.notices[log_id] = PendingMessage(channel=channel, priority=lowest)
        self._stored_notices[channel] = log_id
        self.place_notices()
        return former

    def forget_notice(self, channel: str) -> list[LogId]:
        """The notice about this channel, if one waits, waits no more: the session has subscribed again, say. Returns its
        place."""
        self.failed.pop(channel, None)
        places = [place for place, pending in self.notices.items() if pending.channel == channel]
        for place in places:
            self.forget_evicted(place)
            del self.notices[place]
        return places

    def place_notices(self) -> None:
        """Let each notice wait behind all messages of its topic or subscription that came before it: within the lowest
        priority that any of them has."""
        for place, notice in self.notices.items():
            priority = notice.priority
            for messages in (self.pending, self.inbox):
                for at, each in messages.items():
                    if each.priority < priority and at < place and notice.is_about(each.channel):
                        priority = each.priority
            if priority != notice.priority:
                was_evicted = self.is_evicted(place)
                self.forget_evicted(place)
                self.notices[place] = notice._replace(priority=priority)
                if was_evicted:
                    self.evict(place)
