"""What accounts hold of a bounded store of things: of the dead letters, or of all stored messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from redis.asyncio import Redis

from crewel.storage.keys import Shares


class Share(NamedTuple):
    """What one account holds."""

    account: str
    entries: int
    bytes: int
    """About."""


async def largest(reader: Redis, keys: Shares, most: int = 100) -> list[Share]:
    """The accounts that hold most, by bytes, the largest first. Raises StoreError."""
    found: Any = await reader.zrange(keys.bytes, 0, most - 1, desc=True, withscores=True)
    if not found:
        return []
    counts: Any = await reader.zmscore(keys.entries, [account for account, _ in found])
    return [
        Share(account.decode(), int(count or 0), int(size))
        for (account, size), count in zip(found, counts, strict=True)
    ]
