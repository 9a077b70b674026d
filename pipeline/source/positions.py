"""How far a stream has been read: positions, and what one batch takes. Pure.

The id of an entry is two numbers, milliseconds of the store's clock and a number among those of the same millisecond; all
streams of a store share the clock, so that one id cuts all of them at the same instant. A position also knows how many entries
were ever added up to it, its *count*. The store knows that of its newest entry only, and how many it has trimmed: with the
counts, what was trimmed before it was read is a plain difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

_ID: Final = re.compile(rb"(\d{1,20})-(\d{1,20})", re.ASCII)
_MOST: Final = 2**64 - 1


class EntryId(NamedTuple):
    """The id of an entry, in the order of the stream."""

    ms: int
    seq: int

    @classmethod
    def parse(cls, text: str | bytes) -> EntryId:
        """Return the id that a text tells. Raises ValueError."""
        matched = _ID.fullmatch(text.encode() if isinstance(text, str) else text)
        if matched is None:
            raise ValueError(f"{text!r} is no id of an entry, <milliseconds>-<number>")
        return cls(int(matched[1]), int(matched[2]))

    @classmethod
    def before(cls, ms: int) -> EntryId:
        """Return the last id that an entry of an earlier millisecond can have."""
        return cls(ms - 1, _MOST) if ms > 0 else BEGIN

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


BEGIN: Final = EntryId(0, 0)
"""Before all entries."""

END: Final = EntryId(_MOST, _MOST)
"""After all entries."""


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where a stream was read, inclusive."""

    id: EntryId
    count: int | None
    """How many entries were ever added up to it; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a stream goes at one instant."""

    newest: EntryId
    """Id of the newest entry that it ever had."""
    added: int
    """How many were ever added."""
    length: int
    """How many are there."""
    oldest: EntryId
    """Id of the oldest one that is there; BEGIN if it is empty."""
    deleted: EntryId = BEGIN
    """The largest id that was deleted on its own, as no server does."""

    @property
    def trimmed(self) -> int:
        """How many have been trimmed: always the oldest."""
        return self.added - self.length

    @property
    def end(self) -> Position:
        """The position after all of it."""
        return Position(self.newest, self.added)

    def between(self, start: Position, end: Position) -> int | None:
        """Return how many entries are there after one position up to another; None if no one knows."""
        if start.count is None or end.count is None or (end.id > start.id and end.count <= start.count):
            return None
        return max(end.count - max(start.count, self.trimmed), 0)

    def anchored(self, position: Position) -> Position:
        """Return a position with its count, as far as it follows from what is there."""
        if position.count is not None:
            return position
        if position.id >= self.newest:
            return replace(position, count=self.added)
        if position.id < self.oldest:
            return replace(position, count=self.trimmed)
        return position


Offset = dict[str, dict[str, Any]]
"""What Spark keeps of positions, by stream, and as JSON: `{"facts": {"id": "1790000000000-0", "count": 17}}`."""


def offset_of(positions: Mapping[str, Position]) -> Offset:
    """Return positions as Spark keeps them."""
    return {stream: {"id": str(each.id), "count": each.count} for stream, each in sorted(positions.items())}


def positions_of(
    offset: Mapping[str, Mapping[str, Any]], streams: Sequence[str], first: Position
) -> dict[str, Position]:
    """Return the positions of these streams; one that joins an older checkpoint begins at `first`. Raises ValueError."""
    return {
        stream: Position(EntryId.parse(told["id"]), told.get("count")) if (told := offset.get(stream)) else first
        for stream in streams
    }


@dataclass(frozen=True, slots=True)
class Share:
    """How many entries of a stream a batch may take, and whether there are more."""

    entries: int
    is_all: bool


def shares(available: Mapping[str, int | None], most: int) -> dict[str, Share]:
    """Return how many entries each stream gives to a batch of `most`: all get the same, and what one does not need goes to the
    others. None is a stream of which no one knows how many it has. Each gives at least one."""
    given: dict[str, Share] = {}
    left = most
    known = sorted((count for count in available.items() if count[1] is not None), key=lambda each: each[1] or 0)
    waiting = len(available)
    for stream, count in known:
        fair = max(left // waiting, 1)
        entries = min(count or 0, fair)
        given[stream] = Share(entries, entries == count)
        left -= entries
        waiting -= 1
    for stream in available:
        if stream not in given:
            given[stream] = Share(max(left // waiting, 1), is_all=False)
    return given


def slices(after: EntryId, until: EntryId, number: int) -> list[tuple[EntryId, EntryId]]:
    """Return at most `number` parts of what lies after one id up to another, each as `(after, until]`, equally long in time."""
    span = until.ms - after.ms
    number = max(min(number, span), 1)
    cuts = [EntryId.before(after.ms + 1 + span * i // number) for i in range(1, number)]
    bounds = [after, *(cut for cut in cuts if after < cut < until), until]
    return list(pairwise(bounds))
