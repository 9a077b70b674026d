"""What there is to say of a topic and its groups: at this node, at the others, and at all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from crewel.delivery.records import LogId
from crewel.topics import State, TopicSettings


class GroupState(NamedTuple):
    """A group as operators see it."""

    pattern: str
    name: str
    waiting: int
    """Messages that no member has got yet."""
    members: list[str]
    """Names of the sessions."""


def joined_groups(nodes: Iterable[Iterable[GroupState]]) -> list[GroupState]:
    """The groups of several nodes, each with its members at all of them, by pattern and name."""
    found: dict[tuple[str, str], GroupState] = {}
    for group in chain.from_iterable(nodes):
        known = found.get(group[:2], group._replace(members=[]))
        waiting = max(known.waiting, group.waiting)  # in the store, as far as each node knows
        found[group[:2]] = known._replace(waiting=waiting, members=sorted([*known.members, *group.members]))
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True)
class TopicView:
    """What there is to say of a topic at one moment."""

    name: str
    state: State
    settings: TopicSettings
    epoch: str
    """Of the history; empty if it has none."""
    newest: LogId
    """The newest message of the history; 0 if there is none."""
    history: int
    """Messages in the history."""
    queued: int
    """Messages that wait in queues, counted once for each."""
    subscribers: int
    """Sessions that are subscribed to its very name."""
    receivers: int
    """Sessions that are subscribed to it, by its name or by a pattern."""
    groups: list[GroupState]
    """The groups of consumers that receive it."""
    dies_in_ms: int | None = None
    """How long it will live if nothing happens; None: without limit, or something refers to it."""
    unreached: int | None = None
    """Other nodes that have not said what they have of it; None: there are none to ask."""
    failed: int = 0
    """Those of them that failed, and were not silent."""


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
