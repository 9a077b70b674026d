"""note_groups.lua: the groups that have members at each node, where several share the store."""

from __future__ import annotations

import pytest

from crewel.errors import Fenced
from crewel.storage import node_groups
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


async def test_the_groups_of_a_dead_node_go_with_it(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.do(node_groups.note(store.keys, "a", [QUEUE]))
    await die(first)
    await inherit(second)
    assert not await store.reader.exists(store.keys.groups("a"))
    with pytest.raises(Fenced):
        await first.do(node_groups.note(store.keys, "a", [QUEUE]))
