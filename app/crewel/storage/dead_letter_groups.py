"""How many dead letters there are of each code, receiver or channel, as the indexes of the store have them."""

from __future__ import annotations

import heapq
from typing import Any, Final, NamedTuple

from crewel.event_loop import Turns
from crewel.storage.store import Store

KINDS: Final = ("code", "channel", "receiver")
_AT_ONCE: Final = 500
_MOST_READ: Final = 20_000
"""Values of an index that one call reads."""
_MOST: Final = 1000


class Group(NamedTuple):
    """The dead letters that have one value in common."""

    letters: int
    value: str


class Groups(NamedTuple):
    """The groups of one kind."""

    largest: list[Group]
    """At most 1000, the largest first."""
    values: int
    """How many values there are in all."""
    is_partial: bool
    """Whether there are more than one call reads: then larger groups may be missing."""


async def groups(store: Store, kind: str) -> Groups:
    """Return the groups of this kind, one of `KINDS`. Raises StoreError."""
    key, turns = store.keys.dead_letter_values(kind), Turns()
    largest: list[Group] = []
    low, read = "-", 0
    while read < _MOST_READ:
        found: Any = await store.reader.zrangebylex(key, low, "+", start=0, num=_AT_ONCE)
        values = [value.decode() for value in found]
        pipeline = store.reader.pipeline(transaction=False)
        for value in values:
            pipeline.xlen(store.keys.dead_letters_by(kind, value))
        counts = await pipeline.execute() if values else []
        largest += [Group(count, value) for count, value in zip(counts, values, strict=True) if count]
        largest = heapq.nlargest(_MOST, largest)
        read += len(values)
        if len(values) < _AT_ONCE:
            return Groups(largest, read, is_partial=False)
        low = f"({values[-1]}"
        await turns.rest()
    return Groups(largest, int(await store.reader.zcard(key)), is_partial=True)
