"""How fast receivers have acknowledged messages lately, as the facts tell it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import EndReason
from crewel.event_loop import in_turns
from crewel.storage.store import Store

_WITHIN_MS: Final = 300_000
_PORTION: Final = 100
_MOST_READ: Final = 1000
"""Facts that one call reads."""
_LARGE_PORTION: Final = 500
_MOST_READ_FOR_ALL: Final = 3000
"""Facts that are read for what is usual: of several receivers, and of one that has acknowledged nothing for long."""
_ENOUGH: Final = 200
"""Messages of one receiver from which the usual time is taken."""


class Pace(NamedTuple):
    """What one session has acknowledged."""

    messages: int
    within_ms: int
    """In this time until now: five minutes, or less where there are very many facts."""
    last_ms: int | None
    """When it acknowledged the last of them: milliseconds since 1970."""


async def pace_of(store: Store, name: str, now_ms: int) -> Pace:
    """Return how many messages the session of this name has acknowledged lately. Raises StoreError."""
    needle = f'"{name}"'.encode()
    count, last, at_ms, read = 0, None, now_ms, 0
    high, low = "+", f"{now_ms - _WITHIN_MS}-0"
    while read < _MOST_READ:
        entries: Any = await store.reader.xrevrange(store.keys.facts, high, low, count=_PORTION)
        async for place, entry in in_turns(entries):
            at_ms = int(place.partition(b"-")[0])
            if entry[b"t"] == b"ended" and needle in entry[b"d"]:
                settled = sum(
                    len(each["ids"])
                    for each in orjson.loads(entry[b"d"])["ended"]
                    if each["session"] == name and each["reason"] == EndReason.SETTLED.value
                )
                last = last or (at_ms if settled else None)
                count += settled
        read += len(entries)
        if len(entries) < _PORTION:
            return Pace(count, _WITHIN_MS, last)
        high = f"({place.decode()}"
    return Pace(count, max(now_ms - at_ms, 1), last)


async def usual_times(store: Store, before: Mapping[str, int]) -> dict[str, int]:
    """Return how many milliseconds usually pass from the publish of a message to its acknowledgement by each of these sessions:
    the median of those that it acknowledged last before its time (milliseconds since 1970). Sessions that
    the newest facts before these times do not name are missing. Raises StoreError."""
    needles = {name: f'"{name}"'.encode() for name in before}
    took: dict[str, list[int]] = {}
    high, read = f"({max(before.values(), default=0)}-0", 0
    while needles and read < _MOST_READ_FOR_ALL:
        entries: Any = await store.reader.xrevrange(store.keys.facts, high, "-", count=_LARGE_PORTION)
        async for place, entry in in_turns(entries):
            at_ms = int(place.partition(b"-")[0])
            found = (
                {name for name, needle in needles.items() if at_ms < before[name] and needle in entry[b"d"]}
                if entry[b"t"] == b"ended"
                else ()
            )
            if found:
                for each in orjson.loads(entry[b"d"])["ended"]:
                    if each["session"] in found and each["reason"] == EndReason.SETTLED.value:
                        took.setdefault(each["session"], []).extend(at_ms - int(one) // 1000 for one in each["ids"])
        needles = {name: needle for name, needle in needles.items() if len(took.get(name, ())) < _ENOUGH}
        read += len(entries)
        if len(entries) < _LARGE_PORTION:
            break
        high = f"({place.decode()}"
    return {name: max(round(median(times)), 0) for name, times in took.items()}
