"""The fan-out buffer: messages that many sessions receive, recorded once, and applied to each session later.

To add a message to a session and to remove it again costs as much as to send it, and most messages are acknowledged before the
next commit. So one message for many sessions that all want it has one fan-out record here, with the sessions for which it is
still pending. A session applies its records as soon as something reads its state (`DurableSession.apply_pending`), or when a
commit needs it. No caller can see the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from crewel.delivery.changes import Changes
from crewel.delivery.pending_dead_letters import DeadLetterBacklog
from crewel.delivery.records import LogId, PendingMessage, SessionName, Settled

S = TypeVar("S")
"""A session as a node has it (`DurableSession`). The buffer only keeps it, so it asks nothing of it."""

MAX_PENDING_DELIVERIES: Final = 1_000_000
"""Pending deliveries, one for each message and receiver, before all sessions apply them: commits may be far between. They
take some 50 MB, and a commit applies them in steps long before."""


class SubscriberSet(Generic[S]):
    """Sessions that all want a message, each with its name. The dictionary must not change any more."""

    def __init__(self, sessions: Mapping[S, SessionName]) -> None:
        self.sessions = sessions
        self.records: list[FanOutRecord[S]] = []
        """Their records in the buffer."""

    @cached_property
    def names(self) -> tuple[SessionName, ...]:
        """The names of all of them."""
        return tuple(self.sessions.values())

    def names_except(self, others: Set[S]) -> tuple[SessionName, ...]:
        """The names of all but these."""
        if self.sessions.keys().isdisjoint(others):
            return self.names
        return tuple(name for each, name in self.sessions.items() if each not in others)


class FanOutRecord(Generic[S]):
    """One message that was taken for a set of subscribers."""

    __slots__ = ("id", "message", "number", "subscribers", "unacknowledged")

    def __init__(self, number: int, log_id: LogId, message: PendingMessage, subscribers: SubscriberSet[S]) -> None:
        self.number = number
        """How many were ever taken, with this one."""
        self.id = log_id
        self.message = message
        self.subscribers = subscribers
        self.unacknowledged = set(subscribers.sessions)
        """The sessions that have not acknowledged it. It says nothing of a session that has applied it."""


NO_RECIPIENTS: Final[FanOutRecord[Any]] = FanOutRecord(0, LogId(0), PendingMessage(), SubscriberSet({}))
"""The record of every message that no session receives."""


class FanOutBuffer(Generic[S]):
    """The records that the sessions of one node share."""

    __slots__ = (
        "applied",
        "changes",
        "dead_letters",
        "deliveries",
        "last_number",
        "records",
        "size",
        "subscriber_sets",
    )

    def __init__(self) -> None:
        self.records: list[FanOutRecord[S]] = []
        """The records, in the order of the log."""
        self.last_number = 0
        """How many were ever taken: the number of the last one."""
        self.subscriber_sets: list[SubscriberSet[S]] = []
        """The sets that have a record."""
        self.applied: dict[S, None] = {}
        """The sessions that have applied one of the records."""
        self.deliveries = 0
        """How many deliveries are recorded: one for each message and session."""
        self.size = 0
        """Bytes of the recorded messages: no session has more that it has not applied."""
        self.dead_letters = DeadLetterBacklog()
        """The dead letters of all sessions that the store does not have."""
        self.changes: Changes[S] = Changes()
        """The sessions that may be in other subscriber sets than before."""

    def take(self, log_id: LogId, message: PendingMessage, subscribers: SubscriberSet[S]) -> FanOutRecord[S]:
        """The message is pending for all of them."""
        self.last_number += 1
        record = FanOutRecord(self.last_number, log_id, message, subscribers)
        if not subscribers.records:
            self.subscriber_sets.append(subscribers)
        subscribers.records.append(record)
        self.records.append(record)
        self.deliveries += len(subscribers.sessions)
        self.size += message.size
        return record

    def sessions(self) -> dict[S, None]:
        """All sessions of the records."""
        return dict.fromkeys(chain.from_iterable(subscribers.sessions for subscribers in self.subscriber_sets))

    def sessions_to_apply(self) -> dict[S, None]:
        """The sessions that have not acknowledged a record, and those that have applied one."""
        found = dict(self.applied)
        for subscribers in self.subscriber_sets:
            some: set[S] = set().union(*(record.unacknowledged for record in subscribers.records))
            if some:
                found.update((each, None) for each in subscribers.sessions if each in some)
        return found

    def discard(self, number: int, others: Set[S]) -> list[Settled]:
        """Forget the records up to this number. `others` have applied them, like the sessions in `applied`.
        Returns what all other sessions have settled."""
        settled = []
        for subscribers in self.subscriber_sets:
            ids = tuple(record.id for record in subscribers.records if record.number <= number)
            names = subscribers.names_except(others | self.applied.keys()) if ids else ()
            if names:
                settled.append(Settled(ids, names))
            subscribers.records = [record for record in subscribers.records if record.number > number]
        for record in self.records:
            if record.number <= number:
                self.deliveries -= len(record.subscribers.sessions)
                self.size -= record.message.size
                record.unacknowledged.clear()  # its message may wait in queues for long
        self.records = [record for record in self.records if record.number > number]
        self.subscriber_sets = [subscribers for subscribers in self.subscriber_sets if subscribers.records]
        return settled

    def clear(self) -> None:
        """Each session has applied all records, or need not."""
        for record in self.records:
            record.unacknowledged.clear()  # its message may wait in queues for long
        for subscribers in self.subscriber_sets:
            subscribers.records = []
        self.records.clear()
        self.subscriber_sets.clear()
        self.applied.clear()
        self.deliveries = self.size = 0
