"""What a node has handed to many sessions at once, and has not booked in each of them yet.

To open a message for a session and to settle it again costs as much as to send it, and most messages are settled before the
next commit asks. So one that goes to many sessions that all want it is noted once, here, with those for whom it is open still;
and a session books what was noted for it as soon as anybody looks at it (`Durable.catch_up`), or when a commit finds it among
these. Nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from crewel.delivery.pending_letters import LetterBacklog
from crewel.delivery.records import EndReason, LogId, SessionName, Settled, Waiting

if TYPE_CHECKING:
    from crewel.delivery.durable import Durable

MOST_OWED: Final = 1_000_000
"""Messages, once for each receiver, that are noted at most before all sessions book them: commits may be far between. They
take some 50 MB, and a commit books them in turns long before."""


class Audience:
    """Sessions that all want a message. They must not change any more."""

    def __init__(self, sessions: Iterable[Durable]) -> None:
        self.sessions: Mapping[Durable, None] = dict.fromkeys(sessions)
        self.recent: list[Taken] = []
        """What was taken for them, as long as it is noted."""

    @cached_property
    def names(self) -> tuple[SessionName, ...]:
        """The names of all of them."""
        return tuple(each.name for each in self.sessions)

    def names_but(self, others: Set[Durable]) -> tuple[SessionName, ...]:
        """The names of all but these."""
        if self.sessions.keys().isdisjoint(others):
            return self.names
        return tuple(each.name for each in self.sessions if each not in others)


class Taken:
    """A message that was taken for an audience."""

    __slots__ = ("audience", "id", "number", "open", "waiting")

    def __init__(self, number: int, log_id: LogId, waiting: Waiting, audience: Audience) -> None:
        self.number = number
        """How many were ever taken, with this one."""
        self.id = log_id
        self.waiting = waiting
        self.audience = audience
        self.open = set(audience.sessions)
        """Who has not acknowledged it. Of one that has booked it this says nothing."""


UNHEARD: Final = Taken(0, LogId(0), Waiting(), Audience(()))
"""Stands for all messages that were taken for nobody."""


class Recent:
    """What the sessions of one node share."""

    __slots__ = ("audiences", "booked", "letters", "owed", "size", "taken", "upto", "version")

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        """What is noted, in the order of the log."""
        self.upto = 0
        """How many were ever taken: the number of the last one."""
        self.audiences: list[Audience] = []
        """Those for whom something is noted."""
        self.booked: dict[Durable, None] = {}
        """Who has booked something of it."""
        self.owed = 0
        """How many messages are noted, counted once for each session that gets them."""
        self.size = 0
        """Bytes of what is noted: no session has more that is not booked."""
        self.letters = LetterBacklog()
        """The dead letters of all sessions that the store does not have."""
        self.version = 0
        """Changes whenever another message might have another audience."""

    def take(self, log_id: LogId, waiting: Waiting, audience: Audience) -> Taken:
        """The message is open for all of them."""
        self.upto += 1
        taken = Taken(self.upto, log_id, waiting, audience)
        if not audience.recent:
            self.audiences.append(audience)
        audience.recent.append(taken)
        self.taken.append(taken)
        self.owed += len(audience.sessions)
        self.size += waiting.size
        return taken

    def everybody(self) -> dict[Durable, None]:
        """All for whom something is noted."""
        return dict.fromkeys(chain.from_iterable(audience.sessions for audience in self.audiences))

    def lacking(self) -> dict[Durable, None]:
        """Those for whom something is open, and others who have booked it."""
        lacking = dict(self.booked)
        for audience in self.audiences:
            some: set[Durable] = set().union(*(taken.open for taken in audience.recent))
            if some:
                lacking.update((each, None) for each in audience.sessions if each in some)
        return lacking

    def leave_behind(self, upto: int, others: Set[Durable]) -> list[Settled]:
        """Forget what was taken up to this number, which `others` have booked, and those who have booked
        anything. Returns what all but these have settled."""
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
        """Everybody has booked everything, or left it behind."""
        for taken in self.taken:
            taken.open.clear()  # its message may wait in queues for long
        for audience in self.audiences:
            audience.recent = []
        self.taken.clear()
        self.audiences.clear()
        self.booked.clear()
        self.owed = self.size = 0


class Owed:
    """What is open for one session, booked when somebody looks."""

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
        """What its client has acknowledged of what is booked, until that is booked too."""
        self.booked_size = 0
        """Bytes of all that is open, as far as it is booked."""
        self.booked: dict[LogId, Waiting] = {}
        """What is open in the log, as far as it is booked."""
        self.booked_inbox: dict[LogId, Waiting] = {}
        """What is open beside the log, as far as it is booked."""
        self.notices: dict[LogId, Waiting] = {}
        """Notices that topics were erased, which wait like messages and are none: by their places."""
        self._newest = LogId(0)
        """Nothing beyond this has been open here, or is accounted for; as far as it is booked."""
        self._ended: dict[EndReason, list[LogId]] = {}
        self._recent: Recent | None = None
        """What its node has taken lately, while it has one."""
        self.upto = 0
        """How much of that is booked here, or was left behind: the number of the last one."""

    @property
    def open(self) -> dict[LogId, Waiting]:
        """What waits for it in the log."""
        self.catch_up()
        return self.booked

    @property
    def inbox(self) -> dict[LogId, Waiting]:
        """What waits for it beside the log."""
        self.catch_up()
        return self.booked_inbox

    @property
    def size(self) -> int:
        """Bytes of all that is open."""
        self.catch_up()
        return self.booked_size

    def fits(self, most: int) -> bool:
        """Whether all that is open has at most so many bytes. It is booked only if that is not certain anyhow."""
        ahead = 0 if self._recent is None else self._recent.size
        return self.booked_size + ahead <= most or self.size <= most

    def attach(self, recent: Recent) -> None:
        """A node has it from now on."""
        self._recent = recent
        self.upto = recent.upto
        recent.version += 1

    def detach(self) -> None:
        """The node has it no more."""
        self.catch_up()
        if self._recent is not None:
            self._recent.version += 1
            self._recent = None

    def catch_up(self) -> None:
        """Book what was taken, and then what was acknowledged of what is booked."""
        recent = self._recent
        if recent is not None and self.upto != recent.upto:
            self._book(recent)
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, []
            self.settle_all(acknowledged)

    def _book(self, recent: Recent) -> None:
        first = max(0, len(recent.taken) - (recent.upto - self.upto))  # what lies before was left behind
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
            if taken.id > self._newest:  # else what came beside the log is newer
                self._newest = taken.id
        if settled:
            self._ended.setdefault(EndReason.SETTLED, []).extend(settled)
        if first < len(recent.taken):
            recent.booked[cast("Durable", self)] = None

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
