"""The facts about one message, found among those that the store keeps."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import LogId
from crewel.event_loop import Turns
from crewel.storage.store import Store

_PORTION: Final = 500
_MOST_READ: Final = 20_000
"""Facts that one call reads."""
_EARLIER_MS: Final = 2000
"""How much older than the time in its id the first fact about a message may be: ids of a burst run ahead of the clock."""


class Fact(NamedTuple):
    """One fact."""

    at_ms: int
    """When it was written, by the store's clock: milliseconds since 1970."""
    type: str
    fields: dict[str, Any]


class Found(NamedTuple):
    """What the store has about one message."""

    facts: list[Fact]
    """The oldest first."""
    is_partial: bool
    """Whether there are more facts than one call reads: then later ones may be missing."""


async def facts_of(store: Store, log_id: LogId) -> Found:
    """Return the facts that name this message. Raises StoreError."""
    needle, turns = str(log_id).encode(), Turns()
    found: list[Fact] = []
    low, read = f"{max(log_id // 1000 - _EARLIER_MS, 0)}-0", 0
    while read < _MOST_READ:
        entries: Any = await store.reader.xrange(store.keys.facts, min=low, count=_PORTION)
        for place, entry in entries:
            kind, text = entry[b"t"].decode(), entry[b"d"]
            if needle in text or kind == "published":
                fields = orjson.loads(text)
                if kind != "published" or fields["first"] <= log_id < fields["first"] + len(fields["channels"]):
                    found.append(Fact(int(place.split(b"-")[0]), kind, fields))
        read += len(entries)
        if len(entries) < _PORTION:
            return Found(found, is_partial=False)
        low = f"({entries[-1][0].decode()}"
        await turns.rest()
    return Found(found, is_partial=True)
