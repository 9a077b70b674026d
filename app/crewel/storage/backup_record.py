"""When a backup of the store was made last: `crewel backup` notes it in the store, so that the server can say how old it is."""

from __future__ import annotations

from redis.asyncio import Redis

from crewel.storage.keys import Keys


async def note_backup(store: Redis, keys: Keys, seconds: float) -> None:
    """A backup of this instant (seconds since 1970) is whole. Raises StoreError."""
    await store.set(keys.backed_up, f"{seconds:.3f}")


async def last_backup(store: Redis, keys: Keys) -> float | None:
    """Return the instant of the last backup, seconds since 1970; None without one. Raises StoreError."""
    found = await store.get(keys.backed_up)
    return None if found is None else float(found)
