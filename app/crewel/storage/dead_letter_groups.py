"""How many dead letters there are of each code, receiver or channel, as the indexes of the store have them."""

from __future__ import annotations

import heapq
from collections import Counter
from time import perf_counter
from typing import Any, Final, NamedTuple

from crewel.event_loop import Turns
from crewel.storage import dead_letters
from crewel.storage.data_shape import shape_of
from crewel.storage.dead_letter_matching import likeness_of, shape_of_reason
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from crewel.storage.sight import READING_S
from crewel.storage.store import Store

KINDS: Final = ("code", "channel", "receiver")
LIKENESS: Final = "likeness"
"""The kind of groups that no index knows: dead letters whose data has one shape."""
REASON: Final = "reason"
"""Another such kind: dead letters with one reason, whatever its numbers are."""
RETURNS: Final = "returns"
"""Another such kind: how often the message was redriven before, and failed again."""
_AT_ONCE: Final = 500
_LENGTHS_AT_ONCE: Final = 100
"""Indexes whose lengths are asked for in one round trip: some milliseconds of this process."""
_MOST_READ: Final = 20_000
"""Values of an index that one call reads."""
_MOST: Final = 1000
_FEW: Final = 200
"""Values of an index that are counted from some time on, one after the other."""
_ALL: Final = DeadLetterFilter()
_MOST_PAIRED: Final = 1000
"""Dead letters that one call looks at by receiver and code: some 20 ms of this process."""


class Group(NamedTuple):
    """The dead letters that have one value in common."""

    letters: int
    value: str


class Pair(NamedTuple):
    """Dead letters of one receiver with one code."""

    receiver: str
    code: str
    letters: int
    since: int
    """When the first of them was made: milliseconds since 1970."""


class RecentPairs(NamedTuple):
    """The newest dead letters, by receiver and code."""

    pairs: list[Pair]
    """Those with the most first."""
    read: int
    """How many dead letters they have together."""
    since: int | None
    """When the first dead letter was made of all that were asked for, also of those that were not read."""


class Groups(NamedTuple):
    """The groups of one kind."""

    largest: list[Group]
    """At most 1000, the largest first."""
    values: int
    """How many values there are in all."""
    is_partial: bool
    """Whether there are more than one call reads: then larger groups may be missing."""


async def alike(
    store: Store, wanted: DeadLetterFilter = _ALL, kind: str = LIKENESS
) -> tuple[list[tuple[Group, str, str]], bool]:
    """Return the groups of the newest dead letters that are wanted, by the shape of their data or by another kind, the largest
    first, each with its likeness and the dead id of its newest; and whether there are more dead letters than one call reads.
    Raises StoreError."""
    turns, counts, newest = Turns(), Counter[str](), dict[str, str]()
    after, read, until = "", 0, perf_counter() + READING_S
    while read < _MOST_READ and (perf_counter() < until or not wanted.within):
        page = await dead_letters.page(store, wanted, after, _AT_ONCE, newest_first=True)
        for letter in page.letters:
            shape = _value(letter, kind)
            counts[shape] += 1
            newest.setdefault(shape, letter.dead_id)
            await turns.rest()
        read, after = read + _AT_ONCE, page.next
        if not after:
            break
    found = [(Group(count, shape), likeness_of(shape), newest[shape]) for shape, count in counts.most_common(_MOST)]
    return found, bool(after)


def _value(letter: StoredDeadLetter, kind: str) -> str:
    """What the dead letter has in common with others of its group."""
    if kind == LIKENESS:
        return shape_of(letter.body)
    return shape_of_reason(letter.reason) if kind == REASON else str(getattr(letter, kind))


async def recent_pairs(store: Store, since_ms: int) -> RecentPairs:
    """Return the newest 1000 dead letters that were made from this time on (milliseconds since 1970), by receiver and code.
    Their texts are not read. Raises StoreError."""
    low = f"{since_ms}-0"
    entries: Any = await store.reader.xrevrange(store.keys.dead, "+", low, count=_MOST_PAIRED)
    found: dict[tuple[str, str], Pair] = {}
    for place, fields in entries:  # the newest first
        receiver, code = fields.get(b"receiver", b"").decode(), fields.get(b"code", b"").decode()
        known = found.get((receiver, code))
        found[receiver, code] = Pair(receiver, code, 1 if known is None else known.letters + 1, _made_at(place))
    first: Any = (
        entries[-1:] if len(entries) < _MOST_PAIRED else await store.reader.xrange(store.keys.dead, low, count=1)
    )
    pairs = sorted(found.values(), key=lambda each: (-each.letters, each.receiver, each.code))
    return RecentPairs(pairs, len(entries), _made_at(first[0][0]) if first else None)


def _made_at(dead_id: bytes) -> int:
    return int(dead_id.partition(b"-")[0])


async def groups_since(store: Store, kind: str, since_ms: int) -> Groups | None:
    """Return the groups of this kind, one of `KINDS`, among the dead letters that were made from this time on (milliseconds
    since 1970); None if the kind has very many. Raises StoreError."""
    values: Any = await store.reader.zrangebylex(store.keys.dead_letter_values(kind), "-", "+", start=0, num=_FEW + 1)
    if len(values) > _FEW:
        return None
    found = [
        Group(count, value.decode())
        for value in values
        if (count := await dead_letters.count_since(store, store.keys.dead_letters_by(kind, value.decode()), since_ms))
    ]
    return Groups(sorted(found, reverse=True), len(found), is_partial=False)


async def groups(store: Store, kind: str) -> Groups:
    """Return the groups of this kind, one of `KINDS`. Raises StoreError."""
    key = store.keys.dead_letter_values(kind)
    largest: list[Group] = []
    low, read = "-", 0
    while read < _MOST_READ:
        found: Any = await store.reader.zrangebylex(key, low, "+", start=0, num=_LENGTHS_AT_ONCE)
        values = [value.decode() for value in found]
        pipeline = store.reader.pipeline(transaction=False)
        for value in values:
            pipeline.xlen(store.keys.dead_letters_by(kind, value))
        counts = await pipeline.execute() if values else []
        largest += [Group(count, value) for count, value in zip(counts, values, strict=True) if count]
        if len(largest) >= _MOST + _AT_ONCE:
            largest = heapq.nlargest(_MOST, largest)
        read += len(values)
        if len(values) < _LENGTHS_AT_ONCE:
            return Groups(heapq.nlargest(_MOST, largest), read, is_partial=False)
        low = f"({values[-1]}"
    return Groups(heapq.nlargest(_MOST, largest), int(await store.reader.zcard(key)), is_partial=True)
