"""The timelines of receivers: what happened to each of them lately, in rings.

A ring is made when something happens that an operator may ask about: a failure, a hold, an absence, an end. So many
receivers without trouble cost nothing; and the same again is counted, not listed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import time
from typing import Any, Final

MOST_RECEIVERS: Final = 2000
"""Receivers that have a timeline; of more, those to which nothing has happened for longest lose theirs."""
MOST_EVENTS: Final = 50
"""Events of one receiver."""
_ONLY_AFTER_OTHERS: Final = frozenset(("opened", "closed", "back"))
"""What makes no timeline, but stands in one."""
_OF_ANY_CHANNEL: Final = frozenset(("overflow",))
"""What counts messages of any channel, also of one to which the receiver was not subscribed when it was counted."""


@dataclass(slots=True)
class Event:
    """One thing that happened to a receiver, once or several times in a row."""

    what: str
    since: int
    """Milliseconds since 1970 when it happened first."""
    at: int
    """When it happened last."""
    count: int
    fields: dict[str, Any]
    subscriptions: frozenset[str]
    """What the receiver was subscribed to then, one set for all events in a row; empty if unknown."""
    about: str
    """The channel of the message that it is about; empty if there is none."""


@dataclass(slots=True)
class _Ring:
    events: deque[Event]
    dropped: int = 0


class Timelines:
    """The timelines of one server. `clock` tells seconds since 1970."""

    def __init__(
        self,
        clock: Callable[[], float] = time,
        channels_of: Callable[[str, str], tuple[frozenset[str], str]] = lambda name, message_id: (frozenset(), ""),
    ) -> None:
        """`channels_of` says what the receiver of this name is subscribed to, and the channel of its message with this id."""
        self._clock, self._channels_of = clock, channels_of
        self._rings: OrderedDict[str, _Ring] = OrderedDict()

    def add(self, what: str, name: str, fields: dict[str, Any], count: int = 1) -> None:
        """This has happened to the receiver of this name, so many times."""
        ring = self._rings.get(name)
        if ring is None:
            if what in _ONLY_AFTER_OTHERS:
                return
            ring = self._rings[name] = _Ring(deque(maxlen=MOST_EVENTS))
            if len(self._rings) > MOST_RECEIVERS:
                self._rings.popitem(last=False)
        else:
            self._rings.move_to_end(name)
        now, events = int(self._clock() * 1000), ring.events
        subscriptions, about = self._channels_of(name, str(fields.get("id", "")))
        last = events[-1] if events else None
        is_as_before = last is not None and last.subscriptions == subscriptions
        if (
            last is not None
            and is_as_before
            and (last.what, last.about) == (what, about)
            and _same(last.fields, fields)
        ):
            last.at, last.count, last.fields = now, last.count + count, fields
            return
        ring.dropped += len(events) == MOST_EVENTS
        kept = last.subscriptions if last is not None and is_as_before else subscriptions
        events.append(Event(what, now, now, count, fields, kept, about))

    def of(self, name: str, covers: Callable[[str], bool] | None = None) -> tuple[list[dict[str, Any]], int] | None:
        """What has happened to the receiver, the newest first, and how many earlier events have been dropped. With `covers`,
        which says whether a reader sees a channel: only events that are known to be of such channels. None if nothing is known
        of it."""
        ring = self._rings.get(name)
        if ring is None:
            return None
        events = [each for each in ring.events if covers is None or _is_covered(each, covers)]
        return [_shown(event) for event in reversed(events)], ring.dropped


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether both say the same but for the message."""
    return {**before, "id": ""} == {**after, "id": ""}


def _is_covered(event: Event, covers: Callable[[str], bool]) -> bool:
    """Whether all channels of the event are known and covered."""
    if event.what in _OF_ANY_CHANNEL or not event.subscriptions:
        return False
    return all(map(covers, event.subscriptions)) and (not event.about or covers(event.about))


def _shown(event: Event) -> dict[str, Any]:
    told = asdict(event)
    del told["subscriptions"], told["about"]
    return {**told.pop("fields"), **told}
