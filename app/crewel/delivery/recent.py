"""What a node has handed to many sessions at once, and has not booked in each of them yet.

To open a message for a session and to settle it again costs as much as to send it, and most messages are settled before the
next commit asks. So one that goes to many sessions that all want it is noted once, here; what a client acknowledges is put
down as it is, in its session; and a session books both as soon as anybody looks at it (`Durable.catch_up`), the commit at
the latest. Nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from crewel.delivery.records import EndReason, LogId, Settled, Waiting

if TYPE_CHECKING:
    from crewel.delivery.durable import Durable

__all__ = ["MOST_TAKEN", "Audience", "Owed", "Recent"]

MOST_TAKEN: Final = 1000
"""Messages that are noted at most before all sessions book them: commits may be far between."""

Audience = Mapping["Durable", None]
"""Sessions that all want a message. It must not change any more."""


class Recent:
    """What the sessions of one node share."""

    __slots__ = ("audience", "ids", "size", "taken", "upto", "version")

    def __init__(self) -> None:
        self.taken: list[tuple[LogId, Waiting, Audience]] = []
        """What was taken, in the order of the log."""
        self.ids: list[LogId] = []
        """The ids of that."""
        self.audience: Audience | None = None
        """The audience of all that, if it is the same."""
        self.upto = 0
        """How many were ever taken: the last of `taken` has this number."""
        self.size = 0
        """Bytes of what is in `taken`: no session has more that is not booked."""
        self.version = 0
        """Changes whenever another message might have another audience."""

    def take(self, log_id: LogId, waiting: Waiting, audience: Audience) -> None:
        """The message is open for all of them."""
        self.audience = audience if not self.taken or self.audience is audience else None
        self.taken.append((log_id, waiting, audience))
        self.ids.append(log_id)
        self.upto += 1
        self.size += waiting.size

    def everybody(self) -> dict[Durable, None]:
        """All who may have something to book."""
        found: dict[Durable, None] = {}
        last: Audience = found
        for _, _, audience in self.taken:
            if audience is not last:  # mostly the same, over and over
                found.update(audience)
                last = audience
        return found

    def settle_alike(self) -> tuple[Settled | None, Iterable[Durable]]:
        """Book at once what is settled for those who have acknowledged just what was taken, and have nothing else to tell.
        Returns that, and everybody else."""
        audience, ids = self.audience, self.ids
        if audience is None:
            return None, self.everybody()
        alike, others = [], []
        for durable in audience:
            if not durable.is_dirty and durable.passes(self):
                alike.append(durable.name)
            else:
                others.append(durable)
        return Settled(tuple(ids), tuple(alike)) if alike else None, others

    def clear(self) -> None:
        """Everybody has booked everything."""
        self.taken.clear()
        self.ids.clear()
        self.audience = None
        self.size = 0


class Owed:
    """What is open for one session, booked when somebody looks."""

    __slots__ = ("_ended", "_newest", "_recent", "_upto", "acknowledged", "booked", "booked_inbox", "booked_size")

    def __init__(self) -> None:
        self.acknowledged: list[LogId] = []
        """What its client has acknowledged and is not booked yet."""
        self.booked_size = 0
        """Bytes of all that is open, as far as it is booked."""
        self.booked: dict[LogId, Waiting] = {}
        """What is open in the log, as far as it is booked."""
        self.booked_inbox: dict[LogId, Waiting] = {}
        """What is open beside the log, as far as it is booked."""
        self._newest = LogId(0)
        """Nothing beyond this has been open here, or is accounted for; as far as it is booked."""
        self._ended: dict[EndReason, list[LogId]] = {}
        self._recent: Recent | None = None
        """What its node has taken lately, while it has one."""
        self._upto = 0
        """How much of that is booked here: the number of the last one."""

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
        self._upto = recent.upto
        recent.version += 1

    def detach(self) -> None:
        """The node has it no more."""
        self.catch_up()
        if self._recent is not None:
            self._recent.version += 1
            self._recent = None

    def catch_up(self) -> None:
        """Book what was taken, and then what was acknowledged."""
        recent = self._recent
        if recent is not None and self._upto != recent.upto:
            if self._settles_in_order(recent):
                return
            self._open_taken(recent)
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, []
            self.settle_all(acknowledged)

    def passes(self, recent: Recent) -> bool:
        """Leave behind what was taken, if it has booked nothing of it, and its client has acknowledged just that."""
        ids = recent.ids
        if self.acknowledged != ids or self._upto + len(ids) != recent.upto:
            return False
        self._upto = recent.upto
        self._newest = max(self._newest, ids[-1])
        self.acknowledged = []
        return True

    def _settles_in_order(self, recent: Recent) -> bool:
        """Book in one go, if that is so, that its client has acknowledged the first of all that is open, and no other."""
        acknowledged, audience = self.acknowledged, recent.audience
        if audience is None or self not in audience or self.booked_inbox or len(acknowledged) < len(self.booked):
            return False
        owed = [*self.booked, *recent.ids[self._upto - recent.upto :]]
        if acknowledged != owed[: len(acknowledged)]:
            return False
        left = recent.taken[len(recent.taken) - len(owed) + len(acknowledged) :]
        self._upto = recent.upto
        self._newest = max(self._newest, recent.ids[-1])
        self.booked = {log_id: waiting for log_id, waiting, _ in left}
        self.booked_size = sum(waiting.size for _, waiting, _ in left)
        if acknowledged:
            self._ended.setdefault(EndReason.SETTLED, []).extend(acknowledged)
            self.acknowledged = []
        return True

    def _open_taken(self, recent: Recent) -> None:
        new = recent.upto - self._upto
        self._upto = recent.upto
        for log_id, waiting, audience in recent.taken[-new:]:
            if self in audience:
                self.booked[log_id] = waiting
                self.booked_size += waiting.size
                if log_id > self._newest:  # else what came beside the log is newer
                    self._newest = log_id

    def settle_all(self, ids: Iterable[LogId]) -> None:
        """These messages have been answered OK; those that are not open are left alone."""
        opened, inbox = self.open, self.booked_inbox
        settled = self._ended.setdefault(EndReason.SETTLED, [])
        for log_id in ids:
            waiting = opened.pop(log_id, None) or inbox.pop(log_id, None)
            if waiting is not None:
                self.booked_size -= waiting.size
                settled.append(log_id)
        if not settled:
            del self._ended[EndReason.SETTLED]
