"""The fan-out buffer: messages that many sessions receive, recorded once, and applied to each session later.

To add a message to a session and to remove it again costs as much as to send it, and most messages are acknowledged before the
next commit. So one message for many sessions that all want it has one fan-out record here, with the sessions for which it is
still pending. A session applies its records as soon as something reads its state (`DurableSession.apply_pending`), or when a
commit needs it. No caller can see the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from crewel.delivery.changes import Changes
from crewel.delivery.pending_dead_letters import DeadLetterBacklog
from crewel.delivery.records import EndReason, LogId, PendingMessage, SessionName, Settled

if TYPE_CHECKING:
    from crewel.delivery.durable_session import DurableSession

MAX_PENDING_DELIVERIES: Final = 1_000_000
"""Pending deliveries, one for each message and receiver, before all sessions apply them: commits may be far between. They
take some 50 MB, and a commit applies them in steps long before."""


class SubscriberSet:
    """Sessions that all want a message. The set must not change any more, nor the dictionary that it may be made of."""

    def __init__(self, sessions: Iterable[DurableSession] | dict[DurableSession, None]) -> None:
        self.sessions: Mapping[DurableSession, None] = (
            sessions if isinstance(sessions, dict) else dict.fromkeys(sessions)
        )
        self.records: list[FanOutRecord] = []
        """Their records in the buffer."""

    @cached_property
    def names(self) -> tuple[SessionName, ...]:
        """The names of all of them."""
        return tuple(each.name for each in self.sessions)

    def names_except(self, others: Set[DurableSession]) -> tuple[SessionName, ...]:
        """The names of all but these."""
        if self.sessions.keys().isdisjoint(others):
            return self.names
        return tuple(each.name for each in self.sessions if each not in others)


class FanOutRecord:
    """One message that was taken for a set of subscribers."""

    __slots__ = ("id", "message", "number", "subscribers", "unacknowledged")

    def __init__(self, number: int, log_id: LogId, message: PendingMessage, subscribers: SubscriberSet) -> None:
        self.number = number
        """How many were ever taken, with this one."""
        self.id = log_id
        self.message = message
        self.subscribers = subscribers
        self.unacknowledged = set(subscribers.sessions)
        """The sessions that have not acknowledged it. It says nothing of a session that has applied it."""


NO_RECIPIENTS: Final = FanOutRecord(0, LogId(0), PendingMessage(), SubscriberSet(()))
"""The record of every message that no session receives."""


class FanOutBuffer:
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
        self.records: list[FanOutRecord] = []
        """The records, in the order of the log."""
        self.last_number = 0
        """How many were ever taken: the number of the last one."""
        self.subscriber_sets: list[SubscriberSet] = []
        """The sets that have a record."""
        self.applied: dict[DurableSession, None] = {}
        """The sessions that have applied one of the records."""
        self.deliveries = 0
        """How many deliveries are recorded: one for each message and session."""
        self.size = 0
        """Bytes of the recorded messages: no session has more that it has not applied."""
        self.dead_letters = DeadLetterBacklog()
        """The dead letters of all sessions that the store does not have."""
        self.changes: Changes[DurableSession] = Changes()
        """The sessions that may be in other subscriber sets than before."""

    def take(self, log_id: LogId, message: PendingMessage, subscribers: SubscriberSet) -> FanOutRecord:
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

    def sessions(self) -> dict[DurableSession, None]:
        """All sessions of the records."""
        return dict.fromkeys(chain.from_iterable(subscribers.sessions for subscribers in self.subscriber_sets))

    def sessions_to_apply(self) -> dict[DurableSession, None]:
        """The sessions that have not acknowledged a record, and those that have applied one."""
        found = dict(self.applied)
        for subscribers in self.subscriber_sets:
            some: set[DurableSession] = set().union(*(record.unacknowledged for record in subscribers.records))
            if some:
                found.update((each, None) for each in subscribers.sessions if each in some)
        return found

    def discard(self, number: int, others: Set[DurableSession]) -> list[Settled]:
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


class PendingDeliveries:
    """What is pending for one session. Records are applied when something reads it."""

    __slots__ = (
        "_ended",
        "_fan_out",
        "_newest",
        "acknowledged",
        "adopted_to",
        "applied",
        "applied_inbox",
        "applied_number",
        "applied_size",
        "in_both",
        "notices",
    )

    def __init__(self) -> None:
        self.acknowledged: list[LogId] = []
        """What its client has acknowledged of the applied messages, until that is applied too."""
        self.applied_size = 0
        """Bytes of all that is pending, without records that are not applied."""
        self.applied: dict[LogId, PendingMessage] = {}
        """What is pending in the log, without records that are not applied."""
        self.applied_inbox: dict[LogId, PendingMessage] = {}
        """What is pending in the inbox, outside the log."""
        self.in_both = 0
        """How many messages are pending in both, for they came by the log and from a group: each is one, with the bytes that it
        has in the log."""
        self.notices: dict[LogId, PendingMessage] = {}
        """Notices that topics were erased, which wait like messages and are none: by their places."""
        self._newest = LogId(0)
        """Nothing beyond this has been open here, or is accounted for; without records that are not applied."""
        self.adopted_to = LogId(0)
        """What was open up to here when the session was taken over counts as sent once more, although it may not have been."""
        self._ended: dict[EndReason, list[LogId]] = {}
        self._fan_out: FanOutBuffer | None = None
        """The records of its node, while it has one."""
        self.applied_number = 0
        """The number of the last record that is applied here, or was discarded."""

    def known_attempts(self, log_id: LogId, waiting: PendingMessage) -> int:
        """How often this message, which is open here, was sent before for certain."""
        return max(waiting.attempts - (log_id <= self.adopted_to), 0)

    def oldest(self) -> LogId | None:
        """The place of the oldest message that waits for it; None without one."""
        oldest = [next(iter(self.pending), None), min(self.inbox, default=None)]  # the log's come in its order
        return min((place for place in oldest if place is not None), default=None)

    @property
    def pending(self) -> dict[LogId, PendingMessage]:
        """The messages that wait for it in the log."""
        self.apply_pending()
        return self.applied

    @property
    def inbox(self) -> dict[LogId, PendingMessage]:
        """The messages that wait for it in the inbox, outside the log."""
        self.apply_pending()
        return self.applied_inbox

    @property
    def size(self) -> int:
        """Bytes of all that is pending."""
        self.apply_pending()
        return self.applied_size

    def fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes. Applies records only if that is not certain without them."""
        ahead = 0 if self._fan_out is None else self._fan_out.size
        return self.applied_size + ahead <= most or self.size <= most

    def attach(self, fan_out: FanOutBuffer) -> None:
        """A node has it from now on."""
        self._fan_out = fan_out
        self.applied_number = fan_out.last_number
        fan_out.changes.note(cast("DurableSession", self))

    def detach(self) -> None:
        """The node has it no more."""
        self.apply_pending()
        if self._fan_out is not None:
            self._fan_out.changes.note(cast("DurableSession", self))
            self._fan_out = None

    def apply_pending(self) -> None:
        """Apply the records, and then the acknowledgements."""
        fan_out = self._fan_out
        if fan_out is not None and self.applied_number != fan_out.last_number:
            self._apply(fan_out)
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, []
            self.settle_all(acknowledged)

    def _apply(self, fan_out: FanOutBuffer) -> None:
        first = max(
            0, len(fan_out.records) - (fan_out.last_number - self.applied_number)
        )  # those before were discarded
        self.applied_number = fan_out.last_number
        settled = []
        for record in fan_out.records[first:]:
            if self in record.unacknowledged:
                self.applied[record.id] = record.message
                self.applied_size += record.message.size
            elif self in record.subscribers.sessions:
                settled.append(record.id)
            else:
                continue
            if record.id > self._newest:  # else a message in the inbox is newer
                self._newest = record.id
        if settled:
            self._ended.setdefault(EndReason.SETTLED, []).extend(settled)
        if first < len(fan_out.records):
            fan_out.applied[cast("DurableSession", self)] = None

    def settle_all(self, ids: Iterable[LogId]) -> None:
        """These messages have been answered OK; those that are not pending are left alone."""
        opened, inbox = self.pending, self.applied_inbox
        settled = self._ended.setdefault(EndReason.SETTLED, [])
        for log_id in ids:
            pending = opened.pop(log_id, None)
            if inbox and (leased := inbox.pop(log_id, None)) is not None:
                self.in_both -= pending is not None
                pending = pending or leased
            if pending is not None:
                self.applied_size -= pending.size
                settled.append(log_id)
            elif self.notices:
                self.notices.pop(log_id, None)
        if not settled:
            del self._ended[EndReason.SETTLED]
