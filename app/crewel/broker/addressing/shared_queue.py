"""One shared queue, as a server knows it: the store has the messages."""

from __future__ import annotations


class SharedQueue:
    """What this server knows of one shared queue: how much waits in it, and since when the store is asked for some."""

    __slots__ = ("count", "is_asked", "lease_again", "looked_at", "name", "touched_at")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.count = 0
        """How many messages wait in it."""
        self.touched_at = now
        """Loop time (s) at which the last one came."""
        self.is_asked = False
        """Whether the store is just being asked to lease some."""
        self.lease_again = False
        """Whether there was reason meanwhile to ask it again."""
        self.looked_at = now
        """Loop time (s) at which the store was last asked whether sessions of other nodes have emptied it."""
