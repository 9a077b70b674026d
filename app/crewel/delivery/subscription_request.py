"""A subscribe or unsubscribe whose answer from the store is on its way."""

from __future__ import annotations

from collections.abc import Collection

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import LogId, PendingMessage

Interval = tuple[LogId, LogId | None]
"""From after this entry, until this one or (None) until further notice."""

Seen = tuple[LogId, Collection[str], PendingMessage]
"""An entry: its id, the patterns of its channel, what is known of it."""


class SubscriptionRequest:
    """A subscribe or unsubscribe whose answer from the store is on its way. Entries that are taken meanwhile are
    remembered: the store decides where the interval begins or ends, and no commit moves the cursor past where it was
    asked."""

    __slots__ = ("cursor", "durable", "ends", "patterns", "seen", "since")

    def __init__(self, durable: DurableSession, patterns: Collection[str], cursor: LogId) -> None:
        self.durable = durable
        self.patterns = patterns
        self.cursor = cursor
        self.ends = False
        """Whether it is an unsubscribe."""
        self.since: dict[str, LogId] = {}
        """What held before an unsubscribe, to be put back if it fails."""
        self.seen: list[Seen] = []
        """What was taken while it was under way."""

    def meets(self, patterns: Collection[str]) -> bool:
        """Whether it is about one of these patterns."""
        return any(pattern in patterns for pattern in self.patterns)
