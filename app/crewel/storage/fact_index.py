"""Which messages the portions of the facts name, as far as they have been read. Pure.

The facts are only ever added at their end and removed at their beginning. So what was read once of a portion stays so, and a
question about one message need not read again those that name other messages only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

from crewel.delivery.records import LogId

Place: TypeAlias = tuple[int, int]
"""The id of an entry of the stream: milliseconds since 1970, and a number."""

_SHIFT: Final = 20
"""Log ids are microseconds; messages are distinguished by 2**20 of them, about a second."""
_MOST_SECONDS: Final = 1000
"""Of one portion. Where there are more, the whole range is taken."""
_MOST_PORTIONS: Final = 20_000
"""Of some hundred bytes each; then the older half is forgotten."""

_MOST_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Portion:
    """Facts that have been read."""

    after: Place
    """They are later than this,"""
    last: Place
    """and not later than this."""
    seconds: Container[int]

    def may_name(self, log_id: LogId) -> bool:
        """Whether one of them may name this message."""
        return log_id >> _SHIFT in self.seconds


class FactIndex:
    """The portions that have been read of one generation of the store; none overlaps another."""

    def __init__(self) -> None:
        self.generation = ""
        """That of the store of which this has been read."""
        self._portions: list[Portion] = []

    def __len__(self) -> int:
        """The number of portions."""
        return len(self._portions)

    def of(self, generation: str) -> FactIndex:
        """The index for this generation of the store: if it is another, what was known no longer holds, because facts may have
        been lost and others written in their place."""
        if generation != self.generation:
            self.generation, self._portions = generation, []
        return self

    def at(self, place: Place) -> Portion | None:
        """The portion that has what comes next after this place, if it has been read."""
        number = bisect_right(self._portions, place, key=attrgetter("after")) - 1
        return self._portions[number] if number >= 0 and place < self._portions[number].last else None

    def next_start(self, place: Place) -> Place | None:
        """Where the next portion begins after this place, if there is one."""
        number = bisect_right(self._portions, place, key=attrgetter("after"))
        return self._portions[number].after if number < len(self._portions) else None

    def add(self, after: Place, last: Place, seconds: set[int]) -> None:
        """Add a portion that has been read, with what `seconds_of` says of its facts. If another question has meanwhile read
        some of it, it is left out."""
        following = self.next_start(after)
        if self.at(after) is not None or (following is not None and following < last):
            return
        is_wide = len(seconds) > _MOST_SECONDS
        portion = Portion(after, last, range(min(seconds), max(seconds) + 1) if is_wide else frozenset(seconds))
        self._portions.insert(bisect_right(self._portions, after, key=attrgetter("after")), portion)
        if len(self._portions) > _MOST_PORTIONS:
            del self._portions[: _MOST_PORTIONS // 2]


def seconds_of(kind: str, fields: Mapping[str, Any]) -> set[int]:
    """The times of the messages that this fact names, about seconds since 1970."""
    return {log_id >> _SHIFT for log_id in _NAMED.get(kind, _none)(fields)}


def _none(_: Mapping[str, Any]) -> Iterable[int]:
    return ()


def _lists(name: str) -> Callable[[Mapping[str, Any]], Iterable[int]]:
    """The ids in the objects of this list."""
    return lambda fields: chain.from_iterable(each["ids"] for each in fields[name])


def _numbers(texts: Iterable[str]) -> Iterable[int]:
    """The ids of stored messages among these; those of others are no numbers."""
    return (int(text) for text in texts if text.isdecimal() and len(text) <= _MOST_DIGITS)


_NAMED: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[int]]]] = {
    "published": lambda fields: chain(
        range(fields["first"], fields["first"] + len(fields["channels"])), fields.get("scheduled", {}).values()
    ),
    "scheduled": lambda fields: (fields["id"],),
    "cancelled": lambda fields: fields["ids"],
    "addressed": lambda fields: (fields["id"],),
    "leased": _lists("leases"),
    "returned": lambda fields: fields["ids"],
    "ended": _lists("ended"),
    "redriven": lambda fields: chain((fields["id"],), _numbers((fields["message"],))),
    "discarded": lambda fields: _numbers(fields.get("messages", ())),
    "restored": lambda fields: _numbers(fields["messages"]),
}
"""The messages that each type of fact names; the other types name none."""
