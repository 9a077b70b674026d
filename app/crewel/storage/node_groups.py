"""The groups of consumers that have members at each node, where several nodes share the store. A node learns of them here too,
if it has no link to the other one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store import Store

MOST_NOTED: Final = 1000
"""Groups that one step notes at most."""


def note(k: Keys, token: str, queues: Sequence[str]) -> Step[int]:
    """The groups with these queues, at most `MOST_NOTED`, have a member at this node. May be repeated. Raises Fenced."""
    return Step("note_groups", (k.node(token), k.groups(token)), ("SADD", *queues), int)


def forget(k: Keys, token: str, queues: Sequence[str]) -> Step[int]:
    """They have none there any more. May be repeated. Raises Fenced."""
    return Step("note_groups", (k.node(token), k.groups(token)), ("SREM", *queues), int)


async def changes(store: Store, tokens: Sequence[str]) -> list[int]:
    """Return for each of these nodes how often its groups have changed. Raises StoreError."""
    pipeline = store.reader.pipeline(transaction=False)
    for token in tokens:
        pipeline.hget(store.keys.node(token), "groups")
        pipeline.hget(store.keys.left(token), "groups")  # if it is dead
    found = await pipeline.execute()
    return [int(alive or dead or 0) for alive, dead in zip(found[::2], found[1::2], strict=True)]


async def of(store: Store, token: str) -> list[str]:
    """Return the queues of the groups with members at this node. Raises StoreError."""
    found: Any = await store.reader.smembers(store.keys.groups(token))
    return [each.decode() for each in found]
