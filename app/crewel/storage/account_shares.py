"""How accounts are called, and what each holds of a bounded store of things: of the dead letters, or of all stored messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from redis.asyncio import Redis

from crewel.qos.names import ANONYMOUS
from crewel.storage.keys import Shares


class Share(NamedTuple):
    """What one account holds."""

    account: str
    entries: int
    bytes: int
    """About."""


def address_account(address: str) -> str:
    """The account of an address; empty: of a client at a local socket."""
    return f"address {address or 'local'}"


def subject_account(subject: str) -> str:
    """The account of a subject."""
    return f"subject {subject}"


def account_of_name(name: str) -> str:
    """The account of the session, or the subject, that is called so (`client/joe/1`, `client/joe`); empty if that is anonymous,
    or has no name."""
    subject = name.split("/")[1] if name else ANONYMOUS
    return "" if subject == ANONYMOUS else subject_account(subject)


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
