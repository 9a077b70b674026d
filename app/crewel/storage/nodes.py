"""The nodes that share a store: which there are, and how one inherits the sessions of a dead one.

A node is dead when its lease has ended. Its heir renames its record before the first session moves, so that the store refuses
every later step of it. The record then keeps the log for the sessions until the heir has them in a commit of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from crewel.delivery.records import BATCH_BLOCK, LogId
from crewel.storage import transient_sessions
from crewel.storage.keys import Keys
from crewel.storage.node_leases import Owner, Slice, adopted
from crewel.storage.script_step import Step
from crewel.storage.store import Store


@dataclass(frozen=True, slots=True)
class Node:
    """One node, as the store has it."""

    token: str
    name: str
    tag: str
    """What the `clientId`s of its own sessions end with; empty of a server that shares its store with no other."""
    link: str
    """Where other nodes reach it."""
    process: Owner | None
    lasts: float
    """Seconds until its lease ends; 0 or less: it has ended."""
    since: int
    """Microseconds since 1970 of its start, by the store's clock."""
    sessions: int
    """How many sessions the store has of it."""
    heir: str
    """The token of the node that takes its sessions; empty while it has none."""

    @property
    def lives(self) -> bool:
        """Whether its lease lasts, as far as the store knew then."""
        return self.lasts > 0 and not self.heir


class Members(NamedTuple):
    """All nodes at one instant."""

    nodes: dict[str, Node]
    """By token."""
    tags: Mapping[str, str]
    """Tag -> token of the node that has the sessions with it."""


def members(k: Keys) -> Step[Members]:
    """Return the nodes of the store."""
    return Step("members", (k.nodes, k.tags), (k.base,), _members)


def _members(answer: Any) -> Members:
    flat = iter(answer[0])
    tags = {tag.decode(): token.decode() for tag, token in zip(flat, flat, strict=True)}
    nodes = {}
    for token, name, tag, link, process, lasts_ms, since, sessions, heir in answer[1:]:
        nodes[token.decode()] = Node(
            token.decode(),
            name.decode(),
            tag.decode(),
            link.decode(),
            Owner(**orjson.loads(process)) if process else None,
            lasts_ms / 1000,
            int(since or 0),
            sessions,
            heir.decode(),
        )
    return Members(nodes, tags)


async def secret(store: Store) -> str:
    """Return what the nodes of this store prove to each other that they know; empty without a node. Raises StoreError."""
    found: Any = await store.reader.get(store.keys.secret)
    return found.decode() if found else ""


async def tokens(store: Store) -> list[str]:
    """Return the tokens of all nodes, also of dead ones whose sessions are not another one's yet. Raises StoreError."""
    found: Any = await store.reader.smembers(store.keys.nodes)
    return [token.decode() for token in found]


async def owner(store: Store, name: str, tokens: Sequence[str] = ()) -> str:
    """Return the token of the node that has the session of this name; empty if there is no such session. One that is not stored
    is looked for at the nodes with these `tokens`. Raises StoreError."""
    found: Any = await store.reader.hget(store.keys.session(name), "owner")
    if found:
        return str(found.decode())
    return next((each.owner for each in await transient_sessions.of_name(store, name, tokens)), "")


def inherit(k: Keys, token: str, count: int, dead: Iterable[str] = ()) -> Step[Slice]:
    """Take over sessions of dead nodes, at most so many. The leases of those in `dead` do not count. An empty slice, with
    nothing finished: there is nothing to inherit.

    Must not be repeated after an unknown outcome, because the sessions that it took would be unknown: start again under
    another token. Raises Fenced if this node is dead itself.
    """
    keys = (k.nodes, k.node(token), k.own(token), k.tags, k.last)
    return Step("inherit", keys, (k.base, token, count, BATCH_BLOCK, *dead), _slice)


def _slice(answer: Any) -> Slice:
    finished, moved, last = answer
    records = adopted(moved)
    for record in records:
        record.inbox_until = LogId(int(last))
    return Slice([each.decode() for each in finished], records)


def release(k: Keys, token: str, finished: Iterable[str]) -> Step[int]:
    """Forget these dead nodes, whose sessions all are in a commit of this one; returns how many. Raises Fenced."""
    return Step("release", (k.nodes, k.node(token)), (k.base, token, *finished), int)


def untag(k: Keys, token: str, tags: Iterable[str]) -> Step[int]:
    """Forget these tags of former nodes, with which this one has no session any more; returns how many. Raises Fenced."""
    return Step("untag", (k.tags, k.node(token)), (token, *tags), int)
