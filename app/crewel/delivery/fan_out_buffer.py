"""The fan-out buffer: messages that many sessions receive, recorded once, and applied to each session later.

To open a message for a session and to settle it again costs as much as to send it, and most messages are settled before the
next commit. So one message for many sessions that all want it has one fan-out record here, with the sessions for which it is
still open. A session applies its records as soon as something reads its state (`DurableSession.apply_pending`), or when a
commit needs it. No caller can see the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from crewel.delivery.pending_dead_letters import DeadLetterBacklog
from crewel.delivery.records import EndReason, LogId, PendingMessage, SessionName, Settled

if TYPE_CHECKING:
    from crewel.delivery.durable_session import DurableSession

MAX_PENDING_DELIVERIES: Final = 1_000_000
"""Pending deliveries, one for each message and receiver, before all sessions apply them: commits may be far between. They
take some 50 MB, and a commit applies them in steps long before."""


class SubscriberSet:
    """Sessions that all want a message. The set must not change any more."""

    def __init__(self, sessions: Iterable[DurableSession]) -> None:
        self.sessions: Mapping[DurableSession, None] = dict.fromkeys(sessions)
        self.recent: list[FanOutRecord] = []
        """Their records in the buffer."""

    @cached_property
    def names(self) -> tuple[SessionName, ...]:
        """The names of all of them."""
        return tuple(each.name for each in self.sessions)

    def names_but(self, others: Set[DurableSession]) -> tuple[SessionName, ...]:
        """The names of all but these."""
        if self.sessions.keys().isdisjoint(others):
            return self.names
        return tuple(each.name for each in self.sessions if each not in others)


class FanOutRecord:
    """One message that was taken for a set of subscribers."""

    __slots__ = ("audience", "id", "number", "open", "waiting")

    def __init__(self, number: int, log_id: LogId, waiting: PendingMessage, audience: SubscriberSet) -> None:
        self.number = number
        """How many were ever taken, with this one."""
        self.id = log_id
        self.waiting = waiting
        self.audience = audience
        self.open = set(audience.sessions)
        """The sessions that have not acknowledged it. It says nothing of a session that has applied it."""


NO_RECIPIENTS: Final = FanOutRecord(0, LogId(0), PendingMessage(), SubscriberSet(()))
"""Stands for all messages without a recipient."""


class FanOutBuffer:
    """The records that the sessions of one node share."""

    __slots__ = ("audiences", "booked", "letters", "owed", "size", "taken", "upto", "version")

    def __init__(self) -> None:
        self.taken: list[FanOutRecord] = []
        """The records, in the order of the log."""
        self.upto = 0
        """How many were ever taken: the number of the last one."""
        self.audiences: list[SubscriberSet] = []
        """The sets that have a record."""
        self.booked: dict[DurableSession, None] = {}
        """The sessions that have applied one of the records."""
        self.owed = 0
        """How many deliveries are recorded: one for each message and session."""
        self.size = 0
        """Bytes of the recorded messages: no session has more that it has not applied."""
        self.letters = DeadLetterBacklog()
        """The dead letters of all sessions that the store does not have."""
        self.version = 0
        """Changes whenever another message might have other subscribers."""

    def take(self, log_id: LogId, waiting: PendingMessage, audience: SubscriberSet) -> FanOutRecord:
        """The message is open for all of them."""
        self.upto += 1
        taken = FanOutRecord(self.upto, log_id, waiting, audience)
        if not audience.recent:
            self.audiences.append(audience)
        audience.recent.append(taken)
        self.taken.append(taken)
        self.owed += len(audience.sessions)
        self.size += waiting.size
        return taken

    def everybody(self) -> dict[DurableSession, None]:
        """All sessions of the records."""
        return dict.fromkeys(chain.from_iterable(audience.sessions for audience in self.audiences))

    def lacking(self) -> dict[DurableSession, None]:
        """The sessions for which a record is open, and those that have applied one."""
        lacking = dict(self.booked)
        for audience in self.audiences:
            some: set[DurableSession] = set().union(*(taken.open for taken in audience.recent))
            if some:
                lacking.update((each, None) for each in audience.sessions if each in some)
        return lacking

    def leave_behind(self, upto: int, others: Set[DurableSession]) -> list[Settled]:
        """Forget the records up to this number. `others` have applied them, like the sessions in `applied`.
        Returns what all other sessions have settled."""
        settled = []
        for audience in self.audiences:
            ids = tuple(taken.id for taken in audience.recent if taken.number <= upto)
            names = audience.names_but(others | self.booked.keys()) if ids else ()
            if names:
                settled.append(Settled(ids, names))
            audience.recent = [taken for taken in audience.recent if taken.number > upto]
        for taken in self.taken:
            if taken.number <= upto:
                self.owed -= len(taken.audience.sessions)
                self.size -= taken.waiting.size
                taken.open.clear()  # its message may wait in queues for long
        self.taken = [taken for taken in self.taken if taken.number > upto]
        self.audiences = [audience for audience in self.audiences if audience.recent]
        return settled

    def clear(self) -> None:
        """Each session has applied all records, or need not."""
        for taken in self.taken:
            taken.open.clear()  # its message may wait in queues for long
        for audience in self.audiences:
            audience.recent = []
        self.taken.clear()
        self.audiences.clear()
        self.booked.clear()
        self.owed = self.size = 0


class PendingDeliveries:
    """What is open for one session. Records are applied when something reads it."""

    __slots__ = (
        "_ended",
        "_newest",
        "_recent",
        "acknowledged",
        "booked",
        "booked_inbox",
        "booked_size",
        "notices",
        "upto",
    )

    def __init__(self) -> None:
        self.acknowledged: list[LogId] = []
        """What its client has acknowledged of the applied messages, until that is applied too."""
        self.booked_size = 0
        """Bytes of all that is open, without records that are not applied."""
        self.booked: dict[LogId, PendingMessage] = {}
        """What is open in the log, without records that are not applied."""
        self.booked_inbox: dict[LogId, PendingMessage] = {}
        """What is open in the inbox, outside the log."""
        self.notices: dict[LogId, PendingMessage] = {}
        """Notices that topics were erased, which wait like messages and are none: by their places."""
        self._newest = LogId(0)
        """Nothing beyond this has been open here, or is accounted for; without records that are not applied."""
        self._ended: dict[EndReason, list[LogId]] = {}
        self._recent: FanOutBuffer | None = None
        """The records of its node, while it has one."""
        self.upto = 0
        """The number of the last record that is applied here, or was discarded."""

    @property
    def open(self) -> dict[LogId, PendingMessage]:
        """What waits for it in the log."""
        self.apply_pending()
        return self.booked

    @property
    def inbox(self) -> dict[LogId, PendingMessage]:
        """What waits for it in the inbox, outside the log."""
        self.apply_pending()
        return self.booked_inbox

    @property
    def size(self) -> int:
        """Bytes of all that is open."""
        self.apply_pending()
        return self.booked_size

    def fits(self, most: int) -> bool:
        """Whether all that is open has at most so many bytes. Records are applied only if that is not certain without them."""
        ahead = 0 if self._recent is None else self._recent.size
        return self.booked_size + ahead <= most or self.size <= most

    def attach(self, recent: FanOutBuffer) -> None:
        """A node has it from now on."""
        self._recent = recent
        self.upto = recent.upto
        recent.version += 1

    def detach(self) -> None:
        """The node has it no more."""
        self.apply_pending()
        if self._recent is not None:
            self._recent.version += 1
            self._recent = None

    def apply_pending(self) -> None:
        """Apply the records, and then the acknowledgements."""
        recent = self._recent
        if recent is not None and self.upto != recent.upto:
            self._book(recent)
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, []
            self.settle_all(acknowledged)

    def _book(self, recent: FanOutBuffer) -> None:
        first = max(0, len(recent.taken) - (recent.upto - self.upto))  # those before were discarded
        self.upto = recent.upto
        settled = []
        for taken in recent.taken[first:]:
            if self in taken.open:
                self.booked[taken.id] = taken.waiting
                self.booked_size += taken.waiting.size
            elif self in taken.audience.sessions:
                settled.append(taken.id)
            else:
                continue
            if taken.id > self._newest:  # else a message in the inbox is newer
                self._newest = taken.id
        if settled:
            self._ended.setdefault(EndReason.SETTLED, []).extend(settled)
        if first < len(recent.taken):
            recent.booked[cast("DurableSession", self)] = None

    def settle_all(self, ids: Iterable[LogId]) -> None:
        """These messages have been answered OK; those that are not open are left alone."""
        opened, inbox = self.open, self.booked_inbox
        settled = self._ended.setdefault(EndReason.SETTLED, [])
        for log_id in ids:
            waiting = opened.pop(log_id, None) or inbox.pop(log_id, None)
            if waiting is not None:
                self.booked_size -= waiting.size
                settled.append(log_id)
            elif self.notices:
                self.notices.pop(log_id, None)
        if not settled:
            del self._ended[EndReason.SETTLED]
