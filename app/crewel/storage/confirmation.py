"""What replicas have confirmed of the writes of one connection: by numbered marks, which any store can be compared with.

A mark is written before each WAIT, which waits only for writes of its own connection. Of a step that found everything done, by
another connection, it would say at once that the replicas have it. A store copies its writes in their order. So one that has a
mark has all that was written before it, and one that was promoted and has the newest confirmed mark lacks nothing that was
answered.
"""

from __future__ import annotations

from math import inf
from typing import Final

from crewel.storage.script_step import Step

_KEPT_MS: Final = 3_600_000
"""How long a store keeps the mark of a connection that writes no more."""


class Marks:
    """Those of one connection after another to the same store, each of which is closed before the next is made."""

    def __init__(self, key: str) -> None:
        self.key = key
        """The key that has the number of the newest mark."""
        self._number = 0
        self._confirmed: float = 0

    def step(self) -> Step[bytes]:
        """Return the next mark, a step that writes and nothing else."""
        self._number += 1
        return Step("mark", (self.key,), (self._number, _KEPT_MS), bytes)

    def confirm(self) -> None:
        """Replicas have all that was written up to the newest mark."""
        self._confirmed = self._number

    def lapse(self) -> None:
        """Something was answered without a mark. Nothing is known from now on, until a mark is confirmed."""
        self._confirmed = inf

    def are_in(self, value: bytes | None) -> bool:
        """Whether a store that has this under `key` has all that was confirmed."""
        return int(value or 0) >= self._confirmed
