"""What the store has of one session's messages, for its mailbox: a `StoreLedger`, or a `NoLedger` where it has nothing.

A mailbox changes what is stored by its ledger alone, and the next commit looks at each change. The ledger also knows the
server's listener, so that no mailbox has to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from crewel.broker.mailboxes.offers import UNSTORED
from crewel.delivery.entry import Entry, notice_entry, place_of
from crewel.delivery.records import BATCH_BLOCK, EndReason, LogId, NoLetter, PendingDeadLetter, PendingMessage

if TYPE_CHECKING:
    from crewel.broker.mailboxes.mailbox_listener import MailboxListener
    from crewel.delivery.dispatcher import FailedDelivery
    from crewel.delivery.durable_session import DurableSession
    from crewel.delivery.records import Logged
    from crewel.qos.connect import OverflowPolicy

EXHAUSTED: Final = "resource.exhaust"
"""The code of a session that ends because its account has too many pending dead letters."""


class Seen(NamedTuple):
    """What a mailbox looked like when messages were counted. A count holds until one of these changes, as messages come, leave
    and are acknowledged, or until the mailbox has forgotten it, for something else has changed."""

    batch: int
    stored: int
    queued: int
    unacknowledged: int
    opened: int


class Counts(NamedTuple):
    """What was counted of a full queue that the store has. Such a queue is asked about every message that arrives."""

    transients: tuple[Seen, int] | None = None
    """How many messages wait that are not stored."""
    droppable: tuple[tuple[Seen, int, int], int] | None = None
    """How many bytes may be dropped, for a message of a priority."""


class Wanted(NamedTuple):
    """Stored messages, and notices, that are to be read."""

    places: list[LogId]
    """Theirs, in the order in which they leave."""
    logged: list[LogId]
    """Of these, the messages that came by the log."""
    messages: list[LogId]
    """Of these, all but notices."""


class NoLedger:
    """The store has nothing of the session. One serves all such sessions of a server."""

    __slots__ = ("counts", "listener")

    size = 0
    """Bytes of all that is pending."""
    evicted: Sequence[int] = UNSTORED
    """In place of the ranks of what is in the store only."""
    batch = 0
    """Batch numbers up to this one are reserved."""
    inbox: Mapping[LogId, PendingMessage] = MappingProxyType({})
    """What is pending outside the log, by place: what is addressed to it, or comes from a shared queue."""
    notices: Mapping[LogId, PendingMessage] = MappingProxyType({})
    """Notices of topics and subscriptions that wait behind messages, by their places."""
    failed: Mapping[str, str] = MappingProxyType({})
    """Why subscriptions have failed, JSON, by their patterns."""
    has_notices = False
    """Whether any waits, or did until the last commit."""
    death: tuple[str, str] | None = None
    """Code and reason, if the client has failed for good."""
    leaves_letters = False
    """Whether what a session leaves becomes dead letters."""

    def __init__(self, listener: MailboxListener) -> None:
        self.listener = listener
        self.counts: Counts | None = None

    # What there is

    def __len__(self) -> int:
        """How many messages are pending."""
        return 0

    def find(self, place: LogId) -> PendingMessage | None:
        """What is known of the pending message, or of the notice, at this place."""
        return None

    def has(self, place: LogId) -> bool:
        """Whether the message at this place is pending."""
        return False

    def places(self) -> list[LogId]:
        """The places of the pending messages, by priority and age."""
        return []

    def logged(self, channel: str) -> list[LogId]:
        """The places of the channel's pending messages that came by the log only."""
        return []

    def channels(self) -> Iterable[str]:
        """The channels of all that is pending, some of them several times."""
        return ()

    def attempts(self, place: LogId) -> int:
        """How often earlier servers may have sent the message at this place."""
        return 0

    def certainly_fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes, as far as one look can tell."""
        return True

    def fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes."""
        return True

    def size_of(self, place: LogId) -> int:
        """The bytes of the pending message at this place."""
        return 0

    def oldest(self) -> LogId | None:
        """The place of the oldest message that is pending; None without one."""
        return None

    # What is in the store only

    def first(self, most: int) -> Wanted:
        """What is pending and goes first, at most so many."""
        return Wanted([], [], [])

    def is_parked(self, place: LogId) -> bool:
        """Whether the message at this place waits in the store only."""
        return False

    def park(self, place: LogId) -> None:
        """The message at this place waits in the store only."""

    def park_all(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of the entries that are stored wait in the store only. Returns the others."""
        return list(entries)

    def unpark(self, place: LogId) -> None:
        """The message at this place is in the store only no more, if it was."""

    def unpark_rank(self, rank: int) -> None:
        """No message of this rank is in the store only, whether or not it is pending."""

    def unpark_messages(self) -> None:
        """Nothing but notices is in the store only."""

    def goes_before(self, place: LogId, priority: int) -> bool:
        """Whether something is in the store only that goes before a message of this place and priority."""
        return False

    def lowest(self) -> int | None:
        """The rank of the message in the store only that is dropped first."""
        return None

    def parked_sizes(self, priority: int) -> Iterator[int]:
        """The bytes of each message in the store only that has no higher priority than this."""
        return iter(())

    # Notices

    def notices_about(self, entries: Iterable[Entry]) -> set[LogId]:
        """The places of the notices that are about the topics or subscriptions of these."""
        return set()

    def forget_notice(self, channel: str) -> None:
        """The notice about this channel, if one waits, waits no more."""

    # Ends

    def settle(self, entries: list[Entry]) -> None:
        """These have ended, because their batches are acknowledged and no status is awaited."""

    def end(self, place: LogId, reason: EndReason) -> None:
        """The message at this place has ended in this way: 0 is no place."""

    def end_all(self, places: Collection[LogId], reason: EndReason) -> None:
        """The messages at these places have ended in this way."""

    def expired(self, now: int) -> list[LogId]:
        """The places of what has to go out of all queues by now, microseconds since 1970."""
        return []

    def is_due(self, now: int) -> bool:
        """Whether something may have to."""
        return False

    def give_back(self, place: LogId) -> PendingMessage | None:
        """The message at this place of the inbox goes back into the shared queue that it came from. Returns what is known of it
        if it is for the session all the same, by its subscription: then it waits in the store."""
        return None

    # Dead letters

    def dead_letter(self, failed: FailedDelivery) -> None:
        """The message, which memory has no more, becomes a dead letter, if its receiver leaves any."""
        self.listener.left_no_letter(NoLetter.NOT_STORED)

    def die(self, code: str, reason: str) -> None:
        """The client has failed for good: what ends with the session has this code and reason."""

    def charge(self) -> bool:
        """A full queue has made a dead letter. Whether that was one too many for its account: the session has to end."""
        return False

    def attempted(self, place: LogId, times: int, tries: str) -> None:
        """The message at this place has been sent so many times; `tries` tells the attempts that failed."""

    # What is reported

    def reserve_batches(self) -> int:
        """Have more batch numbers reserved, with the next commit, so that they begin after those that were used, also after a
        restart. Returns how many."""
        return 0

    def resent(self, count: int, *, is_busy: bool) -> None:
        """So many messages leave again. `is_busy`: its client did not lack them."""
        self.listener.resent("", count, is_busy=is_busy)

    def overflowed(self, policy: OverflowPolicy) -> None:
        """The queue was full, and its policy was applied."""
        self.listener.overflowed(policy, "")


class StoreLedger:
    """The store has the session: `durable` says what of it."""

    __slots__ = ("counts", "durable", "listener")

    def __init__(self, durable: DurableSession, listener: MailboxListener) -> None:
        self.durable, self.listener = durable, listener
        self.counts: Counts | None = None

    def _changed(self) -> None:
        self.listener.has_changed(self.durable)

    # What there is

    def __len__(self) -> int:
        """How many messages are pending."""
        return len(self.durable)

    @property
    def size(self) -> int:
        """Bytes of all that is pending."""
        return self.durable.size

    @property
    def batch(self) -> int:
        """Batch numbers up to this one are reserved."""
        return self.durable.batch

    @property
    def inbox(self) -> Mapping[LogId, PendingMessage]:
        """What is pending outside the log, by place: what is addressed to it, or comes from a shared queue."""
        return self.durable.inbox

    @property
    def notices(self) -> Mapping[LogId, PendingMessage]:
        """Notices of topics and subscriptions that wait behind messages, by their places."""
        return self.durable.notices

    @property
    def failed(self) -> Mapping[str, str]:
        """Why subscriptions have failed, JSON, by their patterns."""
        return self.durable.failed

    @property
    def has_notices(self) -> bool:
        """Whether any waits, or did until the last commit."""
        return bool(self.durable.failed or self.durable.notices)

    def find(self, place: LogId) -> PendingMessage | None:
        """What is known of the pending message, or of the notice, at this place."""
        return self.durable.find(place)

    def has(self, place: LogId) -> bool:
        """Whether the message at this place is pending."""
        return place in self.durable.pending or place in self.durable.inbox

    def places(self) -> list[LogId]:
        """The places of the pending messages, by priority and age."""
        return self.durable.in_order()

    def logged(self, channel: str) -> list[LogId]:
        """The places of the channel's pending messages that came by the log only."""
        pending, inbox = self.durable.pending, self.durable.inbox
        return [place for place, each in pending.items() if each.channel == channel and place not in inbox]

    def channels(self) -> Iterable[str]:
        """The channels of all that is pending, and of notices, some of them several times."""
        durable = self.durable
        pending = chain(durable.notices.values(), durable.inbox.values(), durable.pending.values())
        return chain(durable.failed, (each.channel for each in pending))

    def attempts(self, place: LogId) -> int:
        """How often earlier servers may have sent the message at this place."""
        pending = self.durable.find(place)
        return 0 if pending is None else pending.attempts

    def certainly_fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes, as far as one look can tell."""
        return self.durable.certainly_fits(most)

    def fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes."""
        return self.durable.fits(most)

    def size_of(self, place: LogId) -> int:
        """The bytes of the pending message at this place."""
        return self.durable.size_of(place)

    def oldest(self) -> LogId | None:
        """The place of the oldest message that is pending; None without one."""
        return self.durable.oldest()

    # What is in the store only

    def wanted(self, most: int) -> Wanted:
        """What is in the store only and goes first, at most so many."""
        return self._wanted(self.durable.first_evicted(most))

    def first(self, most: int) -> Wanted:
        """What is pending and goes first, at most so many."""
        return self._wanted(self.durable.in_order()[:most])

    def _wanted(self, places: list[LogId]) -> Wanted:
        pending, notices = self.durable.pending, self.durable.notices
        logged = [each for each in places if each in pending]
        return Wanted(places, logged, [each for each in places if each not in notices])

    def read_back(self, places: Collection[LogId], found: Mapping[LogId, Logged]) -> tuple[list[Entry], int]:
        """Of what was to be read at these places, that which goes before all else in the store only is there only no more.
        Returns it, and how many messages of it the store had no more: they have ended."""
        durable, entries, lost = self.durable, [], 0
        for place in durable.load(places):
            notice, logged = durable.notices.get(place), found.get(place)
            if notice is not None:
                entries.append(notice_entry(notice, place, durable.failed.get(notice.channel, "")))
            elif logged is not None:
                pending = durable.find(place)
                # Its end is as it was counted when it was taken.
                entries.append(Entry.read_back(logged, 0 if pending is None else pending.expires))
            else:
                lost += durable.end_message(place, EndReason.DROPPED)
        self._changed()
        return entries, lost

    def is_parked(self, place: LogId) -> bool:
        """Whether the message at this place waits in the store only."""
        return self.durable.is_evicted(place)

    @property
    def evicted(self) -> list[int]:
        """The ranks of what is in the store only, sorted: always this list."""
        return self.durable.evicted

    def park(self, place: LogId) -> None:
        """The message at this place waits in the store only."""
        self.durable.evict(place)

    def park_all(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of the entries that are stored wait in the store only. Returns the others."""
        durable, others = self.durable, []
        for entry in entries:
            place = entry.position
            if not place:
                others.append(entry)
            elif durable.find(place) is not None and not durable.is_evicted(place):
                durable.evict(place)
        return others

    def unpark(self, place: LogId) -> None:
        """The message at this place is in the store only no more, if it was."""
        self.durable.forget_evicted(place)

    def unpark_rank(self, rank: int) -> None:
        """No message of this rank is in the store only, whether or not it is pending."""
        self.durable.forget_rank(rank)

    def unpark_messages(self) -> None:
        """Nothing but notices is in the store only."""
        evicted, notices = self.durable.evicted, self.durable.notices
        evicted[:] = [rank for rank in evicted if place_of(rank) in notices]

    def goes_before(self, place: LogId, priority: int) -> bool:
        """Whether something is in the store only that goes before a message of this place and priority."""
        return self.durable.has_evicted_before(place, priority)

    def lowest(self) -> int | None:
        """The rank of the message in the store only that is dropped first."""
        return self.durable.lowest_evicted()

    def parked_sizes(self, priority: int) -> Iterator[int]:
        """The bytes of each message in the store only that has no higher priority than this."""
        return self.durable.evicted_sizes(priority)

    # What comes past the log

    def arrived(self, place: LogId, pending: PendingMessage) -> bool:
        """The store has put a message into the inbox. False: that is known, or it is pending by the log too."""
        if not self.durable.arrived(place, pending):
            return False
        self._changed()
        return place not in self.durable.applied  # `arrived` has applied what was pending

    def is_due_to_come(self, place: LogId) -> bool:
        """Whether the message that arrived at this place is pending, and waits nowhere yet."""
        return place in self.durable.inbox and not self.durable.is_evicted(place)

    def notice(self, place: LogId, channel: str, lowest: int, why: str) -> list[LogId]:
        """The store has put a notice at this place, about this topic, or with `why` about this subscription. Its priority is at
        most `lowest`. Returns the places of those that it replaces."""
        former = self.durable.notice(place, channel, lowest, why)
        self._changed()
        return former

    def notices_about(self, entries: Iterable[Entry]) -> set[LogId]:
        """The places of the notices that are about the topics or subscriptions of these."""
        notices = self.durable.notices
        if not notices:
            return set()
        found = [self.durable.find(each.position) if each.position else each for each in entries]
        channels = {each.channel for each in found if each is not None}
        return {place for place, each in notices.items() if any(map(each.is_about, channels))}

    def forget_notice(self, channel: str) -> None:
        """The notice about this channel, if one waits, waits no more."""
        self.durable.forget_notice(channel)
        self._changed()

    # Ends

    def settle(self, entries: list[Entry]) -> None:
        """These have ended, because their batches are acknowledged and no status is awaited."""
        if places := [entry.position for entry in entries if entry.position]:
            self.durable.settle_all(places)
            self.listener.acknowledged(self.durable, entries)

    def end(self, place: LogId, reason: EndReason) -> None:
        """The message at this place has ended in this way: 0 is no place."""
        if place:
            self.durable.end_message(place, reason)
            self._changed()

    def end_all(self, places: Collection[LogId], reason: EndReason) -> None:
        """The messages at these places have ended in this way."""
        if places:
            self.durable.end_messages(places, reason)
            self._changed()

    def expired(self, now: int) -> list[LogId]:
        """The places of what has to go out of all queues by now, microseconds since 1970."""
        return self.durable.expired(now)

    def is_due(self, now: int) -> bool:
        """Whether something may have to."""
        return 0 < self.durable.expiry <= now

    def give_back(self, place: LogId) -> PendingMessage | None:
        """The message at this place of the inbox goes back into the shared queue that it came from. Returns what is known of it
        if it is for the session all the same, by its subscription: then it waits in the store."""
        self.durable.requeue(place)
        own = self.durable.pending.get(place)
        if own is not None:
            self.durable.evict(place)
        self._changed()
        return own

    # Dead letters

    @property
    def death(self) -> tuple[str, str] | None:
        """Code and reason, if the client has failed for good."""
        return self.durable.death

    @property
    def leaves_letters(self) -> bool:
        """Whether what a session leaves becomes dead letters. No client comes back to one without a name."""
        return self.durable.is_named or self.listener.letters_for_anonymous

    def dead_letter(self, failed: FailedDelivery) -> None:
        """The message, which memory has no more, becomes a dead letter. One of the server about itself only ends."""
        durable, (entry, code, reason, attempts, given, tries) = self.durable, failed
        place = entry.position
        if entry.leaves_letter:
            message = None if place else self.listener.as_transient(entry)
            attempts += self.attempts(place)
            durable.dead_letter(PendingDeadLetter(durable.name, place, code, reason, attempts, message, given, tries))
        else:
            self.listener.left_no_letter(NoLetter.NO_MESSAGE)
            if place:
                durable.end_message(place, EndReason.DROPPED)
        self._changed()

    def die(self, code: str, reason: str) -> None:
        """The client has failed for good: what ends with the session has this code and reason."""
        self.durable.death = code, reason

    def charge(self) -> bool:
        """A full queue has made a dead letter. Whether that was one too many for its account: the session has to end."""
        if why := self.listener.charged(self.durable):
            self.durable.death = EXHAUSTED, why
        return bool(why)

    def attempted(self, place: LogId, times: int, tries: str) -> None:
        """The message at this place has been sent so many times; `tries` tells the attempts that failed."""
        self.durable.attempted(place, times, tries)

    # What is reported

    def reserve_batches(self) -> int:
        """Have more batch numbers reserved, with the next commit, so that they begin after those that were used, also after a
        restart. Returns how many."""
        self.durable.batch += BATCH_BLOCK
        self._changed()
        return BATCH_BLOCK

    def resent(self, count: int, *, is_busy: bool) -> None:
        """So many messages leave again. `is_busy`: its client did not lack them."""
        self.listener.resent(self.durable.name, count, is_busy=is_busy)

    def overflowed(self, policy: OverflowPolicy) -> None:
        """The queue was full, and its policy was applied."""
        self.listener.overflowed(policy, self.durable.name)
        self._changed()


Ledger: TypeAlias = NoLedger | StoreLedger
"""What a mailbox asks. Both answer each question, but for what only the store brings: see `of_store`."""


def of_store(ledger: Ledger) -> StoreLedger:
    """The ledger of a mailbox to which something comes from the store, which so has the session."""
    assert isinstance(ledger, StoreLedger), "nothing comes from the store for a session that it does not have"
    return ledger
