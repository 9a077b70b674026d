"""How much of the store the log and its company take: what the upkeep looks at every second, in one exchange."""

from __future__ import annotations

from typing import NamedTuple

from crewel.storage.store import Store


class Occupied(NamedTuple):
    """What a look finds."""

    log: int
    """Bytes of the store's memory, about."""
    facts: int
    """Bytes, about."""
    dropped: int
    """Dead letters that were dropped because there were too many."""


async def occupied(store: Store) -> Occupied:
    """Look once. Raises StoreError."""
    keys = store.keys
    found = await store.look(("MEMORY", "USAGE", keys.log), ("MEMORY", "USAGE", keys.facts), ("GET", keys.dropped))
    return Occupied(*(int(each or 0) for each in found))
