"""What other nodes have of a topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from crewel.broker.addressing.consumer_groups import GroupState
from crewel.topics import State, TopicSettings


@dataclass(frozen=True, slots=True)
class TopicShare:
    """What one node has of a topic."""

    state: State
    settings: TopicSettings | None
    """None if it does not know the topic."""
    queued: int
    """Messages that wait for its sessions."""
    subscribers: int
    receivers: int
    groups: list[GroupState]
    """Those that have members at this node."""
    lets_go: bool
    """Whether the topic may end, as far as this node knows."""


@dataclass(slots=True)
class Shares:
    """What the other nodes have of a topic."""

    found: list[TopicShare] = field(default_factory=list)
    unreached: int = 0
    """Nodes that have not said it."""
    failed: int = 0
    """Those of them that failed, and were not silent."""
