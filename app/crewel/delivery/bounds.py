"""How much may wait for one session, and what happens to what comes beyond that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OverflowPolicy(StrEnum):
    """What a full queue does, by the name that `ext.session` uses."""

    DEAD_MESSAGE = "deadMessage"
    DROP_OLDEST = "dropOldest"
    DISCONNECT = "disconnect"

    @property
    def meaning(self) -> str:
        """What it says, in one line."""
        return _MEANINGS[self]


_MEANINGS = {
    OverflowPolicy.DEAD_MESSAGE: "The arriving message becomes a dead letter.",
    OverflowPolicy.DROP_OLDEST: "The oldest message of the lowest priority that was not sent yet gives way.",
    OverflowPolicy.DISCONNECT: "The session ends.",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one session's queue; what was sent and is not acknowledged counts."""

    max_entries: int
    max_bytes: int
    policy: OverflowPolicy = OverflowPolicy.DEAD_MESSAGE

    def exceeded(self, entries: int, size: int) -> str | None:
        """The code of the bound that one message more than `entries`, with `size` bytes in all, goes beyond; None if it
        fits."""
        if entries >= self.max_entries:
            return "resource.overflow.queue.entries"
        if entries and size > self.max_bytes:  # a message that is alone fits, however large
            return "resource.overflow.queue.bytes"
        return None
