"""Following the log."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from crewel.delivery.records import LogId
from crewel.errors import StoreError, StoreUnavailable
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage.log_follower import LogFollower, Unread
from crewel.storage.store import Store
from crewel.storage.store_connection import ANSWER_LIMIT_S as LIMIT
from crewel.storage.store_connection import client_name
from tests.lines import Line
from tests.ports import free_ports
from tests.storage.owner import started
from tests.store_process import StoreProcess, own_prefix

ANSWER_LIMIT_S = 30


async def test_what_is_appended_comes_in_its_order(store: Store) -> None:
    owner = await started(store)
    first = await owner.publish("/a", "/b")
    found: list[Unread] = []
    came = asyncio.Event()

    def take(entries: list[Unread]) -> LogId | None:
        found.extend(entries)
        came.set()
        return None if len(found) == 5 else found[-1].id

    follower = LogFollower(store)
    following = asyncio.create_task(follower.follow(first[0], take))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await came.wait()
        ids = [*first, *await owner.publish("/c"), *await owner.publish("/d", "/e", "/f")]
        await following
    follower.close()
    assert [each.id for each in found] == ids[1:]
    assert [each.read().channel for each in found] == ["/b", "/c", "/d", "/e", "/f"]
    assert found[0].read().body == b'{"channel":"/b"}'


def waits(client: dict[str, str], store: Store) -> bool:
    """Whether this connection is that of the follower."""
    return client["cmd"] == "xread" and client["name"] == client_name(store.keys.base.partition("{")[0])


async def test_a_lost_connection_is_told_and_made_again(store: Store) -> None:
    owner = await started(store)
    follower = LogFollower(store)
    following = asyncio.create_task(follower.follow(LogId(0), lambda entries: LogId(0)))
    await asyncio.sleep(0)
    async with asyncio.timeout(ANSWER_LIMIT_S):
        while not (waiting := [each["id"] for each in await store.reader.client_list() if waits(each, store)]):
            await asyncio.sleep(0.005)
        await store.reader.client_kill_filter(_id=waiting[0])
        with pytest.raises(StoreError):
            await following
        (log_id,) = await owner.publish("/a")
        found: list[Unread] = []
        await follower.follow(LogId(0), found.extend)  # which returns None: that is enough
    follower.close()
    assert [each.id for each in found] == [log_id]


async def test_an_answer_that_comes_late_is_taken(tmp_path: Path) -> None:
    """Another connection to a store behind a slow line would cost more time."""
    (port,) = free_ports(1)
    process = StoreProcess(tmp_path, port=str(port))
    async with Line(port, random.Random(1)) as line:
        storage = Storage(url=f"redis://127.0.0.1:{line.port}", prefix=own_prefix())
        store = Store(Settings(storage=storage))
        await store.open()
        await (await started(store)).publish("/a")
        follower, connections = LogFollower(store), line.accepted
        await follower.follow(LogId(0), lambda entries: None)
        assert line.accepted == connections + 1
        line.degrade(LIMIT / 2 + 0.2, 0)
        found: list[Unread] = []
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await follower.follow(LogId(0), found.extend)
        line.heal()
        assert [each.read().channel for each in found] == ["/a"]
        follower.close()
        await store.close()
    process.close()


async def test_a_store_that_is_away_is_not_followed(store: Store) -> None:
    store.cut()
    with pytest.raises(StoreUnavailable):
        await LogFollower(store).follow(LogId(0), lambda entries: None)
