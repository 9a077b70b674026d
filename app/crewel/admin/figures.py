"""What the findings are made of: the figures of one node, and of several nodes as one.

Nodes send them to each other by this schema, so that a finding has one cause, not one cause for each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from crewel.admin.past_troubles import LETTERS, PastTrouble
from crewel.admin.session_counts import SessionCounts, Trouble
from crewel.storage.dead_letter_groups import Pair
from crewel.storage.disk import Disk


class EmptyGroup(NamedTuple):
    """A consumer group without a member that takes messages."""

    pattern: str
    name: str
    waiting: int
    members: int
    since: int | None = None
    """Since when no member takes messages: milliseconds since 1970; None if that is not known."""
    why: str = ""
    """Why the member does not that was the last one to take messages."""

    @property
    def receiver(self) -> str:
        """Its name as a receiver."""
        return f"{self.pattern} {self.name}"


@dataclass(frozen=True, slots=True)
class Concern:
    """Why a server is not ready."""

    why: str
    since: int | None = None
    """Milliseconds since 1970; None if that is not known."""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """What the checks look at."""

    counted: SessionCounts = field(default_factory=SessionCounts)
    concerns: dict[str, Concern] = field(default_factory=dict)
    """Why the server is not ready, by what it is about."""
    failing_workers: dict[str, int] = field(default_factory=dict)
    """Number of a worker that does not start -> how often in a row it has been tried."""
    dead_letters_made: int = 0
    """Dead letters in the store that were made in the last hour: what was redriven or discarded does not count."""
    dead_letters_since: int | None = None
    """When the first of them was made: milliseconds since 1970."""
    dead_letter_pairs: list[Pair] = field(default_factory=list)
    """The newest of them, by receiver and code, the most first."""
    messages_dropped: int = 0
    """Messages of the last hour that were dropped and are in no dead letter."""
    dead_letters_dropped: int = 0
    """Dead letters that were dropped because there were too many."""
    store_used: int = 0
    store_most: int = 0
    """Bytes of the store's memory, and how many it may have; 0: any number."""
    store_busy: float = 0.0
    """Cores that the thread of the store has used in the last minute; 1 is all that it can use."""
    store_waiting: float = 0.0
    """The part of the last minute in which it has waited for its disk."""
    disk: Disk | None = None
    """The disk of an embedded store; None if the store is not the server's own."""
    store_process: str = ""
    """Program and number of its process; empty if it is not known."""
    facts_lost: int = 0
    """Facts and events that were removed before the data pipeline had read them."""
    empty_groups: list[EmptyGroup] = field(default_factory=list)
    """Consumer groups with messages that no member takes."""
    past: list[PastTrouble] = field(default_factory=list)
    """What was wrong with receivers in the last hour and has ended."""


_SCHEMA: Final = TypeAdapter(Figures)


def as_json(figures: Figures) -> dict[str, Any]:
    """The figures as another node reads them."""
    told: dict[str, Any] = _SCHEMA.dump_python(figures, mode="json")
    return told


def from_json(told: object) -> Figures:
    """What `as_json` made, also of a node of another version. Raises ValueError."""
    return _SCHEMA.validate_python(told)


def figures_as_one(own: Figures, others: Sequence[Figures], empty_groups: Sequence[EmptyGroup]) -> Figures:
    """Those of all nodes. What the store has, which they share, each of them has counted whole."""
    every = [own, *others]
    most = max(every, key=lambda each: (each.store_used, each.dead_letters_made))
    troubles: dict[str, Trouble] = {}
    queues: dict[str, Trouble] = {}
    for each in every:
        for kind, trouble in each.counted.troubles.items():
            troubles[kind] = troubles[kind].join(trouble) if kind in troubles else trouble
        for kind, trouble in each.counted.queues.items():
            queues[kind] = max(queues.get(kind, trouble), trouble, key=attrgetter("count"))
    return Figures(
        counted=SessionCounts(troubles=troubles, queues=queues),
        concerns=reduce(_concerns, (each.concerns for each in every)),
        failing_workers={number: count for each in every for number, count in each.failing_workers.items()},
        dead_letters_made=most.dead_letters_made,
        dead_letters_since=most.dead_letters_since,
        dead_letter_pairs=most.dead_letter_pairs,
        messages_dropped=sum(each.messages_dropped for each in every),
        dead_letters_dropped=max(each.dead_letters_dropped for each in every),
        store_used=most.store_used,
        store_most=most.store_most,
        store_busy=max(each.store_busy for each in every),
        store_waiting=max(each.store_waiting for each in every),
        disk=next((each.disk for each in every if each.disk is not None), None),
        store_process=next((each.store_process for each in every if each.store_process), ""),
        facts_lost=sum(each.facts_lost for each in every),
        empty_groups=list(empty_groups),
        past=_past([past for each in every for past in each.past]),
    )


def _past(troubles: Sequence[PastTrouble]) -> list[PastTrouble]:
    """Those of all nodes. What is at no node in particular, each of them has seen: the first to see its end tells it; of
    dead letters, the one that saw most of them."""
    found: dict[tuple[str, str, str, str], PastTrouble] = {}
    for each in troubles:
        key = each.kind, each.name, each.node, each.text if each.kind == LETTERS else ""
        found[key] = min(found.get(key, each), each, key=lambda each: (-each.letters, each.until))
    return list(found.values())


def _concerns(one: dict[str, Concern], other: dict[str, Concern]) -> dict[str, Concern]:
    """Both; of what is about the same, the words of the first, the earlier time, and the nodes of both."""
    both = dict(one)
    for about, concern in other.items():
        known = both.get(about)
        if known is None:
            both[about] = concern
            continue
        times = [each for each in (known.since, concern.since) if each is not None]
        nodes = tuple(dict.fromkeys((*known.nodes, *concern.nodes)))
        both[about] = Concern(known.why, min(times, default=None), nodes)
    return both
