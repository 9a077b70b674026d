"""How many dead letters there are, in all and of each code, receiver, channel, reason and shape.

The indexes of the store have some of these numbers. The others are counted by reading the newest dead letters."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final, NamedTuple

from crewel.event_loop import in_turns
from crewel.storage import dead_letter_store
from crewel.storage.data_shape import shape_of
from crewel.storage.dead_letter_matching import likeness_of, shape_of_reason
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter, place_of
from crewel.storage.sight import READING_S
from crewel.storage.store import Store

KINDS: Final = ("code", "channel", "receiver")
LIKENESS: Final = "likeness"
"""The kind of groups that no index knows: dead letters whose data has one shape."""
REASON: Final = "reason"
"""Another such kind: dead letters with one reason, whatever its numbers are."""
RETURNS: Final = "returns"
"""Another such kind: how often the message was redriven before, and failed again."""
GROUPED: Final = (*KINDS, REASON, LIKENESS, RETURNS)
"""All kinds."""
_AT_ONCE: Final = 500
_LENGTHS_AT_ONCE: Final = 100
"""Indexes whose lengths are asked for in one round trip: some milliseconds of this process."""
_MOST_READ: Final = 20_000
"""Values of an index that one call reads."""
_MOST: Final = 1000
_TOGETHER: Final = 1000
"""Values of indexes that are counted in one step of the store, which takes a millisecond."""
_TRIES: Final = 3
_SEVERAL: Final = 2
"""Of so many filters no index has the number."""
_FEW: Final = 200
"""Values of an index that are counted from some time on, one after the other."""
_ALL: Final = DeadLetterFilter()
_MOST_PAIRED: Final = 1000
"""Dead letters that one call looks at by receiver and code: some 20 ms of this process."""


class Group(NamedTuple):
    """The dead letters that have one value in common."""

    letters: int
    value: str
    like: str = ""
    """Of a shape: the filter for it."""
    example: str = ""
    """Of a shape: the dead id of its newest one."""


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
    ids: Mapping[tuple[str, str], set[str]]
    """The dead ids of these, by receiver and code."""

    @property
    def is_whole(self) -> bool:
        """Whether these are all that were asked for."""
        return self.read < _MOST_PAIRED


class Groups(NamedTuple):
    """The groups of one kind."""

    largest: list[Group]
    """At most 1000, the largest first."""
    values: int
    """How many values there are in all."""
    is_partial: bool
    """Whether there are more than one call reads: then larger groups may be missing."""


class Counted(NamedTuple):
    """Dead letters in all and by kinds, as one look has found them: the numbers agree with each other."""

    letters: int
    is_partial: bool
    """Whether there may be more, which one call does not read and no index counts."""
    groups: dict[str, Groups]
    """By kind."""


async def count_by(
    store: Store, wanted: DeadLetterFilter = _ALL, kinds: Collection[str] = KINDS, until: str = ""
) -> Counted:
    """Return how many dead letters are wanted, and how many of each kind, which are some of `GROUPED`. With `until`, a dead id,
    what comes later does not count, so that several looks agree. Of very many, groups are of the newest that one call reads,
    unless an index has them. Raises StoreError."""
    indexed = [kind for kind in kinds if kind in KINDS]
    if wanted == _ALL and not until and len(indexed) == len(kinds):
        return await _of_indexes(store, kinds)
    read = await _read(store, wanted, kinds, until)
    if not read.is_partial:
        return read
    if wanted == _ALL:
        whole = await _of_indexes(store, indexed)
        return Counted(whole.letters, is_partial=False, groups=read.groups | whole.groups)
    is_known = not wanted.is_read and len(wanted.kinds) < _SEVERAL
    letters = await dead_letter_store.count(store, wanted) if is_known else read.letters
    return Counted(letters, not is_known, read.groups | await _recent(store, wanted, indexed))


async def _of_indexes(store: Store, kinds: Collection[str]) -> Counted:
    """All dead letters, by some of `KINDS`, at one moment of the store; if there are very many groups, soon after another."""
    for _ in range(_TRIES):
        values = {kind: await _values(store, kind) for kind in kinds}
        if sum(map(len, values.values())) > _TOGETHER:
            total = int(await store.reader.xlen(store.keys.dead))
            return Counted(total, is_partial=False, groups={kind: await groups(store, kind) for kind in kinds})
        pipeline = store.reader.pipeline(transaction=True)
        pipeline.xlen(store.keys.dead)
        for kind, some in values.items():
            for value in some:
                pipeline.xlen(store.keys.dead_letters_by(kind, value))
        total, *lengths = await pipeline.execute()
        left = iter(lengths)
        found = {
            kind: [Group(count, value) for value in some if (count := next(left))] for kind, some in values.items()
        }
        # Else the first dead letter of a new value came in between.
        if all(sum(group.letters for group in some) == total for some in found.values()):
            break
    return Counted(int(total), is_partial=False, groups={kind: _largest(some) for kind, some in found.items()})


async def _values(store: Store, kind: str) -> list[str]:
    found: Any = await store.reader.zrangebylex(
        store.keys.dead_letter_values(kind), "-", "+", start=0, num=_TOGETHER + 1
    )
    return [value.decode() for value in found]


def _largest(found: list[Group]) -> Groups:
    return Groups(heapq.nlargest(_MOST, found), len(found), is_partial=False)


async def _recent(store: Store, wanted: DeadLetterFilter, kinds: Collection[str]) -> dict[str, Groups]:
    """Groups as indexes have them, if nothing but a time is asked for."""
    if replace(wanted, since_ms=0) != _ALL:
        return {}
    found = {kind: await groups_since(store, kind, wanted.since_ms) for kind in kinds}
    return {kind: some for kind, some in found.items() if some is not None}


async def _read(store: Store, wanted: DeadLetterFilter, kinds: Collection[str], until: str) -> Counted:
    """The newest dead letters that are wanted, one by one."""
    after, read, letters = "", 0, 0
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    newest: dict[str, str] = {}
    bounded = replace(wanted, until=wanted.until or until)
    ends = perf_counter() + READING_S
    while read < _MOST_READ and (perf_counter() < ends or not wanted.within):
        page = await dead_letter_store.page(store, bounded, after, _AT_ONCE, newest_first=True)
        async for letter in in_turns(page.letters):
            for kind, found in counts.items():
                value = _value(letter, kind)
                found[value] += 1
                if kind == LIKENESS:
                    newest.setdefault(value, letter.dead_id)
            letters += 1
        read, after = read + _AT_ONCE, page.next
        if not after:
            break
    is_partial = bool(after)
    return Counted(
        letters, is_partial, {kind: _groups(kind, found, newest, is_partial) for kind, found in counts.items()}
    )


def _groups(kind: str, counts: Counter[str], newest: Mapping[str, str], is_partial: bool) -> Groups:
    found = counts.most_common(_MOST)
    if kind == LIKENESS:
        largest = [Group(count, value, likeness_of(value), newest[value]) for value, count in found]
    else:
        largest = [Group(count, value) for value, count in found]
    return Groups(largest, len(counts), is_partial)


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
    found: dict[tuple[str, str], list[str]] = {}
    for place, fields in entries:  # the newest first
        pair = fields.get(b"receiver", b"").decode(), fields.get(b"code", b"").decode()
        found.setdefault(pair, []).append(place.decode())
    first: Any = (
        entries[-1:] if len(entries) < _MOST_PAIRED else await store.reader.xrange(store.keys.dead, low, count=1)
    )
    pairs = [Pair(*pair, len(ids), place_of(ids[-1])[0]) for pair, ids in found.items()]
    pairs.sort(key=lambda each: (-each.letters, each.receiver, each.code))
    since = place_of(first[0][0].decode())[0] if first else None
    return RecentPairs(pairs, len(entries), since, {pair: set(ids) for pair, ids in found.items()})


async def groups_since(store: Store, kind: str, since_ms: int) -> Groups | None:
    """Return the groups of this kind, one of `KINDS`, among the dead letters that were made from this time on (milliseconds
    since 1970); None if the kind has very many. Raises StoreError."""
    values: Any = await store.reader.zrangebylex(store.keys.dead_letter_values(kind), "-", "+", start=0, num=_FEW + 1)
    if len(values) > _FEW:
        return None
    found = [
        Group(count, value.decode())
        for value in values
        if (
            count := await dead_letter_store.count_since(
                store, store.keys.dead_letters_by(kind, value.decode()), since_ms
            )
        )
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
