"""What operators have used up, by its id: codes that have signed a page in, and sign-ins of pages that were signed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store import Store

_SKEW_S: Final = 3600.0
"""So much later than it has expired by the server's clock may an id be forgotten by the store's."""


def spend(k: Keys, id_: str, until: float) -> Step[bool]:
    """Mark this id, which expires then (seconds since 1970), as spent. Returns whether it was not spent before. May be
    repeated."""
    return Step("spend", (k.spent(id_),), (int((until + _SKEW_S) * 1000),), bool)


async def spent(store: Store, ids: Sequence[str]) -> set[str]:
    """Return those of these ids that are spent. Raises StoreError."""
    if not ids:
        return set()
    found = await store.reader.mget([store.keys.spent(each) for each in ids])
    return {id_ for id_, mark in zip(ids, found, strict=True) if mark is not None}
