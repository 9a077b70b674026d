"""trim.lua: what nobody needs leaves the log."""

import pytest

from crewel.errors import Fenced
from crewel.storage import log
from crewel.storage.store import Store
from tests.storage.owner import JOE, Owner, change, started
from tests.storage.reading import last_id


async def test_all_up_to_low_is_removed(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish(*["/a"] * 250)
    await owner.commit(ids[-1], low=ids[100])
    assert await owner.trim() == 101
    assert await owner.log_ids() == ids[101:]
    assert await owner.trim() == 0


async def test_a_long_log_is_trimmed_in_parts(store: Store) -> None:
    """The store does nothing else while it trims."""
    owner = await started(store)
    ids = await owner.publish(*["/a"] * 950)
    await owner.commit(ids[-1], low=ids[900])
    parts: list[int] = []
    while not parts or parts[-1] > 200:
        parts.append(await owner.do(log.trim(owner.keys, owner.token, 400)))
        assert await owner.log_ids() == ids[sum(parts) :]
    assert len(parts) > 2
    assert max(parts) <= 400
    assert await owner.log_ids() == ids[901:]


async def test_the_lowest_of_all_servers_counts(store: Store) -> None:
    servers = [await started(store, token) for token in "abc"]
    ids = await servers[0].publish(*["/a"] * 10)
    for server, place in zip(servers, (7, 3, 5), strict=True):
        await server.commit(ids[-1], low=ids[place])
    for server in servers:
        await server.trim()
    assert await servers[0].log_ids() == ids[4:]


async def test_trim_keeps_open_and_uncommitted_messages(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE)
    ids = await owner.publish("/a", "/a", "/a")
    await owner.trim()
    assert await owner.log_ids() == ids
    await owner.commit(ids[1], change(opened=[ids[1]]), low=ids[1] - 1)
    await owner.trim()
    assert await owner.log_ids() == ids[1:]


async def test_a_dead_server_holds_what_its_sessions_need(store: Store) -> None:
    dead = await started(store, "a")
    await dead.login(JOE)
    ids = await dead.publish("/a", "/a", "/a")
    await dead.commit(ids[0])
    heir = await started(store, "b")
    await heir.trim()
    assert await heir.log_ids() == ids[1:]
    await heir.adopt_all()
    await heir.trim()
    assert await heir.log_ids() == ids[1:]
    await heir.commit(ids[2], change(opened=[ids[2]], caught_up=True), low=ids[1])
    await heir.trim()
    assert await heir.log_ids() == ids[2:]


async def test_an_empty_log_goes_on_with_its_ids(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a", "/a")
    await owner.commit(ids[-1])
    assert await owner.trim() == 2
    assert await owner.log_ids() == []
    assert await last_id(store) == ids[-1]
    appended = await owner.publish("/a")
    assert appended[0] > ids[-1]


async def test_a_server_without_a_record_stops_the_trimming(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a")
    await owner.commit(ids[-1])
    await store.reader.sadd(store.keys.nodes, "unknown")
    assert await owner.trim() == 0


async def test_a_superseded_server_trims_nothing(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a")
    await owner.commit(ids[-1])
    with pytest.raises(Fenced):
        await Owner(store, "never booted").trim()
    assert await owner.log_ids() == ids
