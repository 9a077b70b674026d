"""What operators have used up, by its id: codes that have signed a page in, and sign-ins of pages that were signed out.

An id says when it was issued. What was issued before a backup was restored counts as spent: what happened to it between the
backup and the restore is not known any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from time import time
from typing import Any, Final

from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store import Store

_SKEW_S: Final = 3600.0
"""So much later than it has expired by the server's clock may an id be forgotten by the store's."""


def new_id() -> str:
    """Return an id that is issued now."""
    return f"{int(time() * 1000):x}-{secrets.token_urlsafe(12)}"


def issued_at(id_: str) -> float:
    """When what has this id was issued, in seconds since 1970; 0 if the id does not say."""
    try:
        return int(id_.partition("-")[0], 16) / 1000
    except ValueError:
        return 0.0


def spend(k: Keys, id_: str, until: float) -> Step[bool]:
    """Mark this id, which expires then (seconds since 1970), as spent. Returns whether it was not spent before. May be
    repeated."""
    return Step("spend", (k.spent(id_),), (int((until + _SKEW_S) * 1000),), bool)


async def spent(store: Store, ids: Sequence[str]) -> set[str]:
    """Return those of these ids that are spent. Raises StoreError."""
    if not ids:
        return set()
    keys = store.keys
    restored, *found = await store.reader.mget([keys.restored, *map(keys.spent, ids)])
    since = int(restored or 0) / 1000
    return {id_ for id_, mark in zip(ids, found, strict=True) if mark is not None or issued_at(id_) < since}


def restored_now(keys: Keys) -> tuple[Any, ...]:
    """Return the command by which all that was issued until now counts as spent."""
    return b"SET", keys.restored, int(time() * 1000)
