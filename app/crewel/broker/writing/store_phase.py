"""Where a server stands with its store: the phases of reading its sessions, at the start and again while it serves.

```
SERVING ──▶ STARTING ──▶ SERVING
SERVING ──▶ READING ──▶ CATCHING_UP ──▶ SERVING
READING ──▶ READING         the store has failed, and is read once more
CATCHING_UP ──▶ READING     it has failed, or has changed again
READING ──▶ SERVING         reading has failed in a way that is not foreseen
any other ──▶ SUPERSEDED
```

A server that loses its place while it starts, or that ends while it reads, stays in that phase until it has started or ended.
A server has one phase at a time (`StoreAccess.phase`). What belongs to one reading carries the node of that time, and ends when
`StoreAccess.node` is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class StorePhase(Enum):
    """A phase. What parts of a broker ask about it are attributes: they are asked with each request."""

    SERVING = "the sessions in memory are those of the store, or there is no store"
    STARTING = "sessions are read for the first time"
    READING = "all sessions are read again, and those in memory are not replaced yet"
    CATCHING_UP = "they are replaced, and what they have missed is read"
    SUPERSEDED = "another server has taken over the store: this one serves nothing any more"

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning
        self.is_adopting = self.name in ("STARTING", "READING")
        """Whether sessions are being read, and do not replace those in memory yet: neither have what the store puts into one
        of them now."""
        self.is_reloading = self.name in ("READING", "CATCHING_UP")
        """Whether the sessions are read again: what is asked for them now would get lost."""
        self.is_superseded = self.name == "SUPERSEDED"
        """Whether this server serves nothing any more."""

    def followed_by(self, phase: StorePhase) -> StorePhase:
        """Return the next phase. Raises ValueError if it cannot follow."""
        if phase not in FOLLOWING[self]:
            raise ValueError(f"{phase.name} cannot follow {self.name}")
        return phase


FOLLOWING: Final[Mapping[StorePhase, frozenset[StorePhase]]] = {
    StorePhase.SERVING: frozenset({StorePhase.STARTING, StorePhase.READING, StorePhase.SUPERSEDED}),
    StorePhase.STARTING: frozenset({StorePhase.SERVING, StorePhase.SUPERSEDED}),
    StorePhase.READING: frozenset(
        {StorePhase.READING, StorePhase.CATCHING_UP, StorePhase.SERVING, StorePhase.SUPERSEDED}
    ),
    StorePhase.CATCHING_UP: frozenset({StorePhase.READING, StorePhase.SERVING, StorePhase.SUPERSEDED}),
    StorePhase.SUPERSEDED: frozenset(),
}
"""The phases that may follow each."""
