"""How fast receivers have acknowledged messages lately, as the facts tell it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

import orjson

from crewel.delivery.records import EndReason
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

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
    count, last, at_ms = 0, None, now_ms
    facts = Walk(
        store, store.keys.facts, f"{now_ms - _WITHIN_MS}-0", newest_first=True, portion=_PORTION, most=_MOST_READ
    )
    async for at_ms, entry in facts:
        if entry[b"t"] == b"ended" and needle in entry[b"d"]:
            settled = sum(
                len(each["ids"])
                for each in orjson.loads(entry[b"d"])["ended"]
                if each["session"] == name and each["reason"] == EndReason.SETTLED.value
            )
            last = last or (at_ms if settled else None)
            count += settled
    return Pace(count, _WITHIN_MS if facts.is_whole else max(now_ms - at_ms, 1), last)


async def usual_times(store: Store, before: Mapping[str, int]) -> dict[str, int]:
    """Return how many milliseconds usually pass from the publish of a message to its acknowledgement by each of these sessions.
    It is the median of those that the session acknowledged last before its time (milliseconds since 1970). Sessions that the
    newest facts before these times do not name are missing. Raises StoreError."""
    needles = {name: f'"{name}"'.encode() for name in before}
    took: dict[str, list[int]] = {}
    if not before:
        return {}
    newest = f"({max(before.values())}-0"
    facts = Walk(
        store, store.keys.facts, high=newest, newest_first=True, portion=_LARGE_PORTION, most=_MOST_READ_FOR_ALL
    )
    async for at_ms, entry in facts:
        if entry[b"t"] != b"ended":
            continue
        found = {name for name, needle in needles.items() if at_ms < before[name] and needle in entry[b"d"]}
        for each in orjson.loads(entry[b"d"])["ended"] if found else ():
            name = each["session"]
            if name in found and each["reason"] == EndReason.SETTLED.value:
                times = took.setdefault(name, [])
                times.extend(at_ms - int(one) // 1000 for one in each["ids"])
                if len(times) >= _ENOUGH:
                    del needles[name]
                    found.remove(name)
        if not needles:
            break
    return {name: max(round(median(times)), 0) for name, times in took.items()}
