"""What operators, metrics, logs and timers may know of a mailbox. It is read when it is asked for, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING

from crewel.broker.mailboxes.full_queue import policy_of
from crewel.broker.mailboxes.offers import UNSTORED
from crewel.delivery.batches import NO_BATCHES
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.records import LogId
from crewel.delivery.sent_messages import id_of

if TYPE_CHECKING:
    from crewel.broker.mailboxes.ledger import Wanted
    from crewel.broker.mailboxes.mailbox import Mailbox
    from crewel.delivery.dispatcher import Rejection, Rules
    from crewel.delivery.dispatcher_states import DispatcherState, Holdback
    from crewel.delivery.entry import Entry
    from crewel.delivery.records import PendingMessage
    from crewel.qos.connect import Bounds, OverflowPolicy


class MailboxView:
    """A look at one mailbox, as it is when a property is read."""

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    # Messages

    @property
    def depth(self) -> int:
        """How many messages wait, are sent, or are open."""
        return len(self._mailbox._ledger) + len(self._mailbox._transients())

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._mailbox._ledger.size + sum(len(entry.wire) for entry in self._mailbox._transients())

    @property
    def queued(self) -> int:
        """How many messages are in memory and wait."""
        return len(self._mailbox._queue)

    @property
    def at_client(self) -> int:
        """How many messages were sent and are not settled."""
        return max(len(self._mailbox._dispatcher.messages.opened), self._mailbox._retained)

    @property
    def sent_at(self) -> float | None:
        """The loop time (s) at which the first of them was sent; None if that is not known."""
        first = next(iter(self._mailbox._dispatcher.messages.opened.values()), None)
        return first.sent_at if first is not None and isfinite(first.sent_at) else None

    @property
    def lazy_at(self) -> float:
        """The loop time (s) at which lazy messages stop waiting; infinite if none waits."""
        return self._mailbox._lazy_at

    def is_open(self, place: LogId) -> bool:
        """Whether the client has the stored message, or notice, at this place, and has not settled it."""
        return str(place) in self._mailbox._dispatcher.messages.opened

    @property
    def unclaimed(self) -> int:
        """How many messages no listener of the client takes, as far as it says."""
        return self._mailbox._dispatcher.messages.unclaimed

    @property
    def is_at_rest(self) -> bool:
        """Whether no message waits or is at the client, and nothing stops it or has failed."""
        mailbox, dispatcher = self._mailbox, self._mailbox._dispatcher
        return not (
            mailbox._queue
            or mailbox._retained
            or mailbox.evicted
            or dispatcher.messages.opened
            or dispatcher.waits_until
            or dispatcher.holdback is not None
            or dispatcher.rejection is not None
        )

    def in_memory(self) -> Iterable[Entry]:
        """The messages that wait, are sent or are open, and are not known by a place in the store."""
        mailbox = self._mailbox
        if mailbox._batches is not NO_BATCHES or mailbox._dispatcher is not NO_DISPATCHER:
            return mailbox._transients()
        return mailbox._queue

    def transients(self) -> list[Entry]:
        """The messages that are not stored: what the client has got first, then what is queued."""
        return self._mailbox._transients()

    def first_stored(self, count: int) -> Wanted:
        """The stored messages that go first, at most so many, whether or not they were sent."""
        return self._mailbox._ledger.first(count)

    def waiting_ids(self) -> set[str]:
        """The ids of the messages that are stored, or are not sent yet."""
        places = {str(each) for each in self._mailbox._ledger.places()}
        return places.union(id_of(each) for each in self._mailbox._queue if each.position or each.origin is not None)

    def find(self, place: LogId) -> PendingMessage | None:
        """What is known of the stored message, or notice, at this place; None if it is not pending."""
        return self._mailbox._ledger.find(place)

    @property
    def inbox(self) -> Mapping[LogId, PendingMessage]:
        """What the store keeps for it outside the log, by place: what is addressed to it, or comes from a shared queue."""
        return self._mailbox._ledger.inbox

    @property
    def oldest(self) -> LogId | None:
        """The place of the oldest stored message; None without one."""
        return self._mailbox._ledger.oldest()

    def sent_places(self) -> set[LogId]:
        """The places of the stored messages that the client has got and has not settled."""
        return {entry.position for entry in self._mailbox._at_client()}

    def attempts(self, place: LogId) -> int:
        """How often the stored message at this place may have been sent."""
        return self._mailbox._dispatcher.messages.times_sent(str(place)) + self._mailbox._ledger.attempts(place)

    def channels(self) -> Iterator[str]:
        """The channels of all messages and notices that wait, are sent, or are open, some of them several times."""
        yield from self._mailbox._ledger.channels()
        yield from (entry.channel for entry in self._mailbox._in_memory())

    @property
    def has_notices(self) -> bool:
        """Whether a notice of a subscription waits: that it has failed, or that its topic was erased."""
        return self._mailbox._ledger.has_notices or any(entry.is_notice for entry in self._mailbox._queue)

    # Terms

    @property
    def bounds(self) -> Bounds | None:
        """The bounds of its queue, if the store has it."""
        return None if self._mailbox.evicted is UNSTORED else self._mailbox._bounds

    @property
    def max_entries(self) -> int:
        """Most messages that may wait; 0: as many as the server's settings say."""
        return self._mailbox._bounds.max_entries

    @property
    def max_bytes(self) -> int | None:
        """Most bytes that may wait; None unless that is a bound of what is stored."""
        return None if self.bounds is None else self.bounds.max_bytes

    @property
    def policy(self) -> OverflowPolicy:
        """What a full queue does."""
        return policy_of(self._mailbox) if self.bounds is None else self.bounds.policy

    @property
    def max_open(self) -> int:
        """Most messages that may be open at the client; 0: any number."""
        return 0 if self._mailbox._limit is None else self._mailbox._limit.most

    @property
    def room_at_client(self) -> int:
        """How many messages more may be open there, where that has a limit."""
        limit = self._mailbox._limit
        assert limit is not None
        return limit.room(self._mailbox._batches)

    @property
    def is_at_limit(self) -> bool:
        """Whether as many are open as may be."""
        return self._mailbox._limit is not None and self.room_at_client == 0

    @property
    def room(self) -> int:
        """How many messages more may wait, 0 at least; what the client has and has not settled counts."""
        mailbox = self._mailbox
        waiting = len(mailbox._queue) + mailbox._retained + len(mailbox.evicted)
        return 0 if self.rejection is not None else max(mailbox._most - waiting, 0)

    @property
    def room_in_bytes(self) -> int:
        """How many bytes more may wait, 0 at least."""
        mailbox, most = self._mailbox, self._mailbox._bounds.max_bytes
        if self.bounds is not None:
            return max(most - mailbox._ledger.size, 0)
        return max(mailbox._ledger.listener.share(most) - mailbox._count_bytes(), 0)

    def has_bytes(self, size: int) -> bool:
        """Whether so many bytes more may wait; to an empty queue, any number may come."""
        return not self._mailbox._queue or self._mailbox._has_bytes(size)

    @property
    def expiry(self) -> int:
        """None of its messages in memory goes out of all queues before this, microseconds since 1970; 0: none does at all."""
        return self._mailbox._expiry

    @property
    def accounts_for_all(self) -> bool:
        """Whether it is recorded how each of its messages ends."""
        return self.bounds is not None or self._mailbox._dispatcher is not NO_DISPATCHER

    @property
    def rules(self) -> Rules:
        """What is done when the client fails; NO_RULES while nothing needs a dispatcher."""
        return self._mailbox._dispatcher.rules

    # How its client does

    def state(self, *, is_gone: bool) -> DispatcherState:
        """Where its dispatcher stands, now that the client is there or gone."""
        return self._mailbox._dispatcher.observe(is_gone=is_gone)

    @property
    def next_at(self) -> float:
        """The loop time (s) at which a pause may end, or a status is overdue; infinite if never."""
        return self._mailbox._dispatcher.next_at()

    @property
    def has_evicted(self) -> bool:
        """Whether something is in the store only."""
        return bool(self._mailbox.evicted)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is sent to it: it is on hold, or waits after a failure."""
        return self._mailbox._is_paused

    @property
    def is_blocked(self) -> bool:
        """Whether nothing leaves for it: it is paused, or all that comes becomes dead letters."""
        return self._mailbox._is_paused or self.rejection is not None

    @property
    def has_reports(self) -> bool:
        """Whether failures were reported that `Mailbox.conclude` has yet to look at."""
        return bool(self._mailbox._dispatcher.reported)

    @property
    def is_absent(self) -> bool:
        """Whether the client has been away for so long that memory keeps only the places of what is stored."""
        return self._mailbox.is_absent

    @property
    def death(self) -> tuple[str, str] | None:
        """Code and reason, if the client has failed for good."""
        return self._mailbox._ledger.death

    @property
    def ends_in_letters(self) -> bool:
        """Whether messages that are open when the session ends become dead letters: what a client reports always does."""
        return self._mailbox._ledger.leaves_letters or self.death is not None

    @property
    def holdback(self) -> Holdback | None:
        """Why nothing is sent until an operator activates it; None if it is active."""
        return self._mailbox._dispatcher.holdback

    @property
    def has_held(self) -> bool:
        """Whether the message for which it is on hold still waits."""
        held = self._mailbox._dispatcher.holdback
        return held is not None and self._has(held.message_id)

    def _has(self, message_id: str) -> bool:
        if message_id.isdigit() and self._mailbox._ledger.find(LogId(int(message_id))) is not None:
            return True
        return any(each.origin is not None and each.origin.id == message_id for each in self._mailbox._transients())

    @property
    def rejection(self) -> Rejection | None:
        """Why all that comes becomes dead letters; None if it does not."""
        return self._mailbox._dispatcher.rejection

    @property
    def failure(self) -> tuple[str, str] | None:
        """Code and reason of the last failure that the client reported."""
        return self._mailbox._dispatcher.last_failure

    @property
    def failed_channels(self) -> tuple[str, ...]:
        """The channels of the failures that still count, that of `failure` at the end; "" stands for more of them."""
        return self._mailbox._dispatcher.failed_channels

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._mailbox._dispatcher.failures

    @property
    def waits_until(self) -> float:
        """The loop time (s) at which the pause after a failure ends; 0 if there is none."""
        return self._mailbox._dispatcher.waits_until
