"""What a node has handed to many sessions at once, and has not booked in each of them yet.

To open a message for a session and to settle it again costs as much as to send it, and most messages are settled before the
next commit asks. So one that goes to many sessions that all want it is noted once, here; what a client acknowledges is put
down as it is, in its session; and a session books both as soon as anybody looks at it (`Durable.catch_up`), the commit at
the latest. Nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from crewel.delivery.records import EndReason, LogId, Waiting

if TYPE_CHECKING:
    from crewel.delivery.durable import Durable

__all__ = ["MOST_TAKEN", "Audience", "Owed", "Recent", "Taken"]

MOST_TAKEN: Final = 1000
"""Messages that are noted at most before all sessions book them: commits may be far between."""

Audience = Mapping["Durable", None]
"""Sessions that all want a message. It must not change any more."""

Taken = tuple[LogId, Waiting]
"""A message, and what is known of it."""


class Heard(NamedTuple):
    """What was taken for one audience."""

    audience: Audience
    messages: list[Taken]


class Recent:
    """What the sessions of one node share."""

    __slots__ = ("_heard", "size", "taken", "upto", "version")

    def __init__(self) -> None:
        self.taken: list[tuple[LogId, Waiting, Audience]] = []
        """What was taken, in the order of the log."""
        self.upto = 0
        """How many were ever taken: the last of `taken` has this number."""
        self.size = 0
        """Bytes of what is in `taken`: no session has more that is not booked."""
        self.version = 0
        """Changes whenever another message might have another audience."""
        self._heard: dict[int, Heard] = {}  # the same by audience, by its identity

    def take(self, log_id: LogId, waiting: Waiting, audience: Audience) -> None:
        """The message is open for all of them."""
        heard = self._heard.get(id(audience))
        if heard is None:
            heard = self._heard[id(audience)] = Heard(audience, [])
        heard.messages.append((log_id, waiting))
        self.taken.append((log_id, waiting, audience))
        self.upto += 1
        self.size += waiting.size

    def everybody(self) -> dict[Durable, None]:
        """All who may have something to book."""
        return dict.fromkeys(chain.from_iterable(heard.audience for heard in self._heard.values()))

    def alike(self) -> Iterator[tuple[list[Taken], Iterable[Durable]]]:
        """The same, those together for whom the same was taken, and what that is."""
        once: set[Durable] = set()
        more: set[Durable] = set()
        for heard in self._heard.values():
            more |= heard.audience.keys() & once
            once |= heard.audience.keys()
        for heard in self._heard.values():
            yield heard.messages, [each for each in heard.audience if each not in more] if more else heard.audience
        if more:
            yield from self._alike_in_several(more)

    def _alike_in_several(self, durables: Set[Durable]) -> Iterator[tuple[list[Taken], list[Durable]]]:
        heard_by: dict[Durable, list[int]] = {}
        for place, heard in self._heard.items():
            for durable in heard.audience:
                if durable in durables:
                    heard_by.setdefault(durable, []).append(place)
        together: dict[tuple[int, ...], list[Durable]] = {}
        for durable, places in heard_by.items():
            together.setdefault(tuple(places), []).append(durable)
        for places_of_all, those in together.items():
            yield sorted(chain.from_iterable(self._heard[place].messages for place in places_of_all)), those

    def clear(self) -> None:
        """Everybody has booked everything."""
        self.taken.clear()
        self._heard.clear()
        self.size = 0


class Owed:
    """What is open for one session, booked when somebody looks."""

    __slots__ = ("_ended", "_newest", "_recent", "_upto", "acknowledged", "booked", "booked_inbox", "booked_size")

    def __init__(self) -> None:
        self.acknowledged: list[LogId] = []
        """What its client has acknowledged and is not booked yet. Who adds something and `owes` is touched."""
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

    def catch_up(self, heard: Sequence[Taken] | None = None) -> None:
        """Book what was taken, and then what was acknowledged. `heard`: what was taken for it, if somebody knows."""
        recent = self._recent
        if recent is not None and self._upto != recent.upto:
            if heard is None or self._upto != recent.upto - len(recent.taken):
                heard = [
                    (log_id, waiting)
                    for log_id, waiting, all_ in recent.taken[self._upto - recent.upto :]
                    if self in all_
                ]
            self._upto = recent.upto
            if self._settles_in_order(heard):
                return
            self._open_taken(heard)
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, []
            self.settle_all(acknowledged)

    def passes(self, recent: Recent, ids: list[LogId]) -> bool:
        """Leave behind what was taken, these messages for it, if it has booked nothing of that, and its client has acknowledged
        just these."""
        if self.acknowledged != ids or self._upto != recent.upto - len(recent.taken):
            return False
        self._upto = recent.upto
        self._newest = max(self._newest, ids[-1])
        self.acknowledged = []
        return True

    def _settles_in_order(self, taken: Sequence[Taken]) -> bool:
        """Book in one go, if that is so, that its client has acknowledged the first of all that is open, and no other."""
        acknowledged = self.acknowledged
        if self.booked_inbox or len(acknowledged) < len(self.booked):
            return False
        owed = [*self.booked.items(), *taken]
        if acknowledged != [log_id for log_id, _ in owed[: len(acknowledged)]]:
            return False
        if owed:
            self._newest = max(self._newest, owed[-1][0])
        self.booked = dict(owed[len(acknowledged) :])
        self.booked_size = sum(waiting.size for waiting in self.booked.values())
        if acknowledged:
            self._ended.setdefault(EndReason.SETTLED, []).extend(acknowledged)
            self.acknowledged = []
        return True

    def _open_taken(self, taken: Iterable[Taken]) -> None:
        for log_id, waiting in taken:
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
