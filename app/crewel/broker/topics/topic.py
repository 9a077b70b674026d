"""One topic as the server remembers it, and what operators see of it."""

from __future__ import annotations

from dataclasses import dataclass

from crewel.bayeux.channel import Channel
from crewel.delivery.records import LogId
from crewel.topics.configured import USUAL, TopicSettings
from crewel.topics.lifecycle import State

__all__ = ["Topic", "TopicView"]


class Topic:
    """A channel that has been published to, or that the store knows. Only `Topics` changes it."""

    __slots__ = (
        "asked",
        "channel",
        "epoch",
        "history_count",
        "is_erased",
        "is_fresh",
        "is_plain",
        "is_stored",
        "newest",
        "settings",
        "unreferenced_at",
    )

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.settings: TopicSettings = USUAL
        self.asked: bytes = b""
        """What the store has, or is being told, of the settings; empty: it knows nothing of the topic."""
        self.epoch = ""
        """Names this life of the history: positions of another one mean nothing. Empty until the store has answered."""
        self.newest = LogId(0)
        """The newest message that went into the history; 0 if none did."""
        self.history_count = 0
        """How many messages the history holds."""
        self.is_plain = True
        """Whether a publish that asks for nothing has nothing to look up here."""
        self.is_fresh = True
        """Whether it was published to since it was last looked at."""
        self.is_erased = False
        """Whether it was erased, and only remembered for what still waits in queues."""
        self.is_stored = False
        """Whether the store has answered that it knows the settings."""
        self.unreferenced_at: float | None = None
        """Loop time (s) since which nothing refers to it; None while something does, or nobody has looked."""

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.channel.name


@dataclass(frozen=True, slots=True)
class TopicView:
    """What there is to say of a topic at one moment."""

    name: str
    state: State
    settings: TopicSettings
    epoch: str
    newest: LogId
    history: int
    """Messages in the history."""
    queued: int
    """Messages that wait in queues, counted once for each."""
    subscribers: int
    """Sessions that are subscribed to its very name."""
    dies_in_ms: int | None = None
    """How long it will live if nothing happens; None: until something does."""
