"""note_groups.lua: the groups that have members at each node, where several share the store."""

from __future__ import annotations

import pytest

from crewel.errors import Fenced
from crewel.storage import node_groups, nodes
from crewel.storage.store import Store
from tests.storage.test_inherit import die, inherit, joined

QUEUE, OTHER = "group:/a/* workers", "group:/b others"


async def test_a_node_reads_the_groups_of_another_one_when_they_have_changed(store: Store) -> None:
    first = await joined(store, "a")
    assert await node_groups.changes(store, ["a", "b"]) == [0, 0]
    assert await first.do(node_groups.note(store.keys, "a", [QUEUE, OTHER])) == 1
    assert await first.do(node_groups.forget(store.keys, "a", [OTHER])) == 1
    assert await node_groups.changes(store, ["a", "b"]) == [1, 0]
    assert await node_groups.of(store, "a") == [QUEUE]


async def test_a_repeated_note_is_a_change(store: Store) -> None:
    """Another node may have forgotten the group meanwhile."""
    first = await joined(store, "a")
    assert [await first.do(node_groups.note(store.keys, "a", [QUEUE])) for _ in range(2)] == [1, 2]


async def test_the_groups_of_a_dead_node_are_known_until_its_sessions_are_at_another_one(store: Store) -> None:
    """A node that starts meanwhile must not publish past them."""
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.do(node_groups.note(store.keys, "a", [QUEUE]))
    await die(first)
    found = await inherit(second)
    with pytest.raises(Fenced):
        await first.do(node_groups.note(store.keys, "a", [QUEUE]))
    assert await node_groups.changes(store, ["a"]) == [1]
    assert await node_groups.of(store, "a") == [QUEUE]
    await second.do(nodes.release(store.keys, "b", found.finished))
    assert await node_groups.changes(store, ["a"]) == [0]
    assert not await store.reader.exists(store.keys.groups("a"))
