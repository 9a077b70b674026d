"""How many messages receivers acknowledged, groups gave to their members, and topics got lately, as the facts have it: by slice
of time, for small charts. Facts are of stored messages only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from crewel.delivery.records import EndReason
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

SLICES: Final = 20
SLICE_MS: Final = 30_000
"""Ten minutes in all."""
_LATELY: Final = 4
"""The last two minutes."""
_PORTION: Final = 200
_MOST_READ: Final = 4000
"""Facts that one call reads: some 50 ms of this process, with turns for others."""

Counted = Iterable[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class RecentRates:
    """What was counted, by name."""

    start_ms: int
    """When the first slice begins: milliseconds since 1970."""
    counts: dict[str, list[int]]
    """By name, a number for each slice; what had none is left out."""
    known_from: int
    """The first slice that the facts cover as a whole: where there are very many, they reach less far back."""

    def lately(self, name: str) -> int | None:
        """How many a minute there were of this name in the last two minutes; None if the facts do not reach back so far."""
        if self.known_from > SLICES - _LATELY:
            return None
        return round(sum(self.counts.get(name, ())[-_LATELY:]) * 60_000 / (_LATELY * SLICE_MS))


def _acknowledged(fields: Mapping[str, Any]) -> Counted:
    return (
        (each["session"], len(each["ids"])) for each in fields["ended"] if each["reason"] == EndReason.SETTLED.value
    )


def _leased(fields: Mapping[str, Any]) -> Counted:
    return [(fields["queue"], sum(len(each["ids"]) for each in fields["leases"]))]


def _published(fields: Mapping[str, Any]) -> Counted:
    return ((channel, 1) for channel in fields["channels"] if channel)


_READERS: Final[Mapping[str, Mapping[bytes, Callable[[Mapping[str, Any]], Counted]]]] = {
    "receiver": {b"ended": _acknowledged},
    "group": {b"leased": _leased},
    "topic": {b"published": _published},
}
KINDS: Final = tuple(_READERS)
"""What is counted by: receivers by name, groups by the name of their queue, topics by channel."""


async def recent_rates(store: Store, kind: str, now_ms: int) -> RecentRates:
    """Count the messages of the last ten minutes, or of less where there are very many facts. Raises StoreError."""
    readers, counts = _READERS[kind], dict[str, list[int]]()
    at_ms = start_ms = now_ms - SLICES * SLICE_MS
    facts = Walk(store, store.keys.facts, f"{start_ms}-0", newest_first=True, portion=_PORTION, most=_MOST_READ)
    async for at_ms, entry in facts:
        reader = readers.get(entry[b"t"])
        if reader is not None:
            # The clock of the store may be ahead of this one.
            slice_ = min((at_ms - start_ms) // SLICE_MS, SLICES - 1)
            for name, number in reader(orjson.loads(entry[b"d"])):
                counts.setdefault(name, [0] * SLICES)[slice_] += number
    known_from = 0 if facts.is_whole else min((at_ms - start_ms) // SLICE_MS + 1, SLICES - 1)
    return RecentRates(start_ms, counts, known_from)
