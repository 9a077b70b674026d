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
from crewel.storage.log_follower import LogFollower, Pause, Unread, id_of, read
from crewel.storage.store import Store
from crewel.storage.store_connection import ANSWER_LIMIT_S as LIMIT
from crewel.storage.store_connection import client_name
from tests.lines import Line
from tests.ports import free_ports
from tests.storage.owner import started
from tests.store_process import StoreProcess, own_prefix

ANSWER_LIMIT_S = 30


class Reading:
    """What a follower brings, from this id on, until there are so many entries."""

    def __init__(self, after: LogId, most: int = 1, pause_s: float = 0.0) -> None:
        self.last, self.most, self.pause_s = after, most, pause_s
        self.found: list[Unread] = []
        self.came = asyncio.Event()

    def after(self) -> LogId | None:
        return None if len(self.found) >= self.most else self.last

    def take(self, entries: list[Unread]) -> float:
        self.found += entries
        if entries:
            self.last = id_of(entries[-1])
            self.came.set()
        return 0.0 if self.after() is None else self.pause_s

    @property
    def ids(self) -> list[LogId]:
        return [id_of(each) for each in self.found]


async def test_what_is_appended_comes_in_its_order(store: Store) -> None:
    owner = await started(store)
    first = await owner.publish("/a", "/b")
    follower, reading = LogFollower(store), Reading(first[0], 5)
    following = asyncio.create_task(follower.follow(reading.after, reading.take))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await reading.came.wait()
        ids = [*first, *await owner.publish("/c"), *await owner.publish("/d", "/e", "/f")]
        await following
    follower.close()
    assert reading.ids == ids[1:]
    assert [read(each).channel for each in reading.found] == ["/b", "/c", "/d", "/e", "/f"]
    assert read(reading.found[0]).body == b'{"channel":"/b"}'


async def test_a_pause_that_is_ended_ends_at_once(store: Store) -> None:
    """And the log is asked after what the caller knows by then."""
    owner = await started(store)
    (first,) = await owner.publish("/a")
    pause, reading = Pause(), Reading(LogId(0), 2, pause_s=3600)
    follower = LogFollower(store, pause)
    assert not pause.end(), "there is none yet"
    following = asyncio.create_task(follower.follow(reading.after, reading.take))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await reading.came.wait()
        (second, third) = await owner.publish("/b", "/c")
        reading.last = second
        assert pause.end()
        await following
    follower.close()
    assert reading.ids == [first, third]


async def test_a_pause_ends_by_itself(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a")
    reading = Reading(LogId(0), 2, pause_s=0.001)
    follower = LogFollower(store)
    following = asyncio.create_task(follower.follow(reading.after, reading.take))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await reading.came.wait()
        ids += await owner.publish("/b")
        await following
    follower.close()
    assert reading.ids == ids


async def test_a_connection_that_was_lost_in_a_pause_is_told_when_that_ends(store: Store) -> None:
    """No answer was under way that could have been missed."""
    owner = await started(store)
    await owner.publish("/a")
    pause, reading = Pause(), Reading(LogId(0), 2, pause_s=3600)
    follower = LogFollower(store, pause)
    following = asyncio.create_task(follower.follow(reading.after, reading.take))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await reading.came.wait()
        store.cut()
        follower.close()
        pause.end()
        with pytest.raises(StoreUnavailable):
            await following


async def test_a_pause_that_ends_in_the_turn_of_a_cancellation_asks_nothing(store: Store) -> None:
    """The server ends, and its timer is due before the follower can take it back."""
    owner = await started(store)
    await owner.publish("/a")
    pause, reading = Pause(), Reading(LogId(0), 2, pause_s=3600)
    follower = LogFollower(store, pause)
    following = asyncio.create_task(follower.follow(reading.after, reading.take))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await reading.came.wait()
        following.cancel()
        reading.most = 1
        assert pause.end()
        with pytest.raises(asyncio.CancelledError):
            await following
    assert len(reading.found) == 1


def waits(client: dict[str, str], store: Store) -> bool:
    """Whether this connection is that of the follower."""
    return client["cmd"] == "xread" and client["name"] == client_name(store.keys.base.partition("{")[0])


async def test_a_lost_connection_is_told_and_made_again(store: Store) -> None:
    owner = await started(store)
    follower, reading = LogFollower(store), Reading(LogId(0))
    following = asyncio.create_task(follower.follow(reading.after, reading.take))
    await asyncio.sleep(0)
    async with asyncio.timeout(ANSWER_LIMIT_S):
        while not (waiting := [each["id"] for each in await store.reader.client_list() if waits(each, store)]):
            await asyncio.sleep(0.005)
        await store.reader.client_kill_filter(_id=waiting[0])
        with pytest.raises(StoreError):
            await following
        (log_id,) = await owner.publish("/a")
        await follower.follow(reading.after, reading.take)
    follower.close()
    assert reading.ids == [log_id]


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
        first, second = Reading(LogId(0)), Reading(LogId(0))
        await follower.follow(first.after, first.take)
        assert line.accepted == connections + 1
        line.degrade(LIMIT / 2 + 0.2, 0)
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await follower.follow(second.after, second.take)
        line.heal()
        assert [read(each).channel for each in second.found] == ["/a"]
        follower.close()
        await store.close()
    process.close()


async def test_a_store_that_is_away_is_not_followed(store: Store) -> None:
    store.cut()
    reading = Reading(LogId(0))
    with pytest.raises(StoreUnavailable):
        await LogFollower(store).follow(reading.after, reading.take)
