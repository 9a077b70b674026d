"""How fast a receiver has acknowledged messages lately, as the facts tell it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import EndReason
from crewel.event_loop import Turns
from crewel.storage.store import Store

_WITHIN_MS: Final = 300_000
_PORTION: Final = 100
_MOST_READ: Final = 1000
"""Facts that one call reads."""


class Pace(NamedTuple):
    """What one session has acknowledged."""

    messages: int
    within_ms: int
    """In this time until now: five minutes, or less where there are very many facts."""
    last_ms: int | None
    """When it acknowledged the last of them: milliseconds since 1970."""


async def pace_of(store: Store, name: str, now_ms: int) -> Pace:
    """Return how many messages the session of this name has acknowledged lately. Raises StoreError."""
    needle, turns = f'"{name}"'.encode(), Turns()
    count, last, at_ms, read = 0, None, now_ms, 0
    high, low = "+", f"{now_ms - _WITHIN_MS}-0"
    while read < _MOST_READ:
        entries: Any = await store.reader.xrevrange(store.keys.facts, high, low, count=_PORTION)
        for place, entry in entries:
            at_ms = int(place.partition(b"-")[0])
            if entry[b"t"] == b"ended" and needle in entry[b"d"]:
                settled = sum(
                    len(each["ids"])
                    for each in orjson.loads(entry[b"d"])["ended"]
                    if each["session"] == name and each["reason"] == EndReason.SETTLED.value
                )
                last = last or (at_ms if settled else None)
                count += settled
            await turns.rest()
        read += len(entries)
        if len(entries) < _PORTION:
            return Pace(count, _WITHIN_MS, last)
        high = f"({place.decode()}"
    return Pace(count, max(now_ms - at_ms, 1), last)
