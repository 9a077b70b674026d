"""One topic as the server remembers it."""

from __future__ import annotations

from crewel.delivery.records import LogId
from crewel.topics import USUAL, TopicSettings


class Topic:
    """A channel that has been published to, or that the store knows. Only `TopicTable` and `Endings` change it."""

    __slots__ = (
        "asked",
        "changed_at",
        "claims",
        "epoch",
        "history_count",
        "is_erased",
        "is_fresh",
        "is_marked",
        "is_plain",
        "is_stored",
        "name",
        "newest",
        "settings",
        "unreferenced_at",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        """The channel's."""
        self.settings: TopicSettings = USUAL
        self.asked = b""
        """What the store has to know of the settings, a JSON object; empty: nothing."""
        self.changed_at = LogId(0)
        """Where the log has the last change of it that this server has applied; 0: it has none."""
        self.claims = 0
        """What speaks for it: publishes, and whatever else has brought it about. Those that the store refused do not."""
        self.is_stored = False
        """Whether the store knows that, or was asked to."""
        self.epoch = ""
        """Names this life of the history, as far as this server knows."""
        self.newest = LogId(0)
        """The newest message that went into the history; 0 if none did."""
        self.history_count = 0
        """How many messages the history holds."""
        self.is_plain = True
        """Whether a publish that asks for nothing has nothing to look up here. Groups are not in it: each that begins or ends
        would change it in very many topics."""
        self.is_fresh = True
        """Whether it was published to since it was last looked at."""
        self.is_erased = False
        """Whether it has ended, and is at most remembered for what still waits in queues."""
        self.is_marked = False
        """Whether the store knows that it was erased."""
        self.unreferenced_at: float | None = None
        """Loop time (s) since which nothing refers to it; None while something does, or it is not known yet."""

    def emptied(self) -> None:
        """The history has gone."""
        self.history_count, self.newest, self.epoch = 0, LogId(0), ""

    def is_due(self, now: float) -> bool:
        """Whether it is to end by this loop time (s), because nothing has referred to it for as long as its `destroyDelay`."""
        delay = self.settings.destroy_delay_ms / 1000
        return self.unreferenced_at is not None and 0 <= delay <= now - self.unreferenced_at

    def dies_in_ms(self, now: float) -> int | None:
        """Return how long it will live from this loop time (s) if nothing refers to it; None: without limit."""
        delay = self.settings.destroy_delay_ms
        if delay < 0:
            return None
        since = now if self.unreferenced_at is None else self.unreferenced_at
        return max(0, round((since - now) * 1000) + delay)
