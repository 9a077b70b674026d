"""Following the log on a replica: which one, what is believed, and when it is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.exceptions import ResponseError

from crewel.delivery.records import LogId
from crewel.errors import SettingsError, StoreError
from crewel.settings import load
from crewel.settings.store_location import Place
from crewel.storage.log_follower import LogFollower, Unread, id_of
from crewel.storage.log_replica import Reason, Replicas, expected_now, in_turn, why_leave
from crewel.storage.store import Newest, Store
from crewel.storage.store_info import StoreInfo
from tests.lines import Line
from tests.ports import free_ports
from tests.storage.conftest import OpenStore, StartStore, until
from tests.storage.owner import Owner, started
from tests.store_group import ClusterStore, WatchedStore, client_at, info
from tests.store_process import StoreProcess, own_prefix

# What is believed

PLACES: list[Place] = [("one", 6379), ("two", 6379), ("three", 6379)]


def said(**rows: str) -> StoreInfo:
    """What a replica in good order says, less these rows."""
    usual = {"role": "slave", "master_link_status": "up", "master_replid": "a"}
    return StoreInfo("\r\n".join(f"{name}:{value}" for name, value in (usual | rows).items()).encode())


@pytest.mark.parametrize(
    ("rows", "last", "reason"),
    [
        ({}, 5, None),
        ({}, 6, None),
        ({}, 4, Reason.BEHIND),
        ({"master_link_status": "down"}, 5, Reason.CUT_OFF),
        ({"master_replid": "b"}, 5, Reason.OTHER_HISTORY),
        ({"role": "master"}, 5, Reason.OTHER_HISTORY),
    ],
)
def test_a_replica_is_left(rows: dict[str, str], last: int, reason: Reason | None) -> None:
    assert why_leave(said(**rows), LogId(last), "a", LogId(5)) is reason


@pytest.mark.parametrize(("at", "expected"), [(9.0, 5), (9.5, 5), (9.6, 0), (inf, 0)])
def test_a_replica_has_to_have_what_the_primary_had_for_long(at: float, expected: int) -> None:
    assert expected_now(Newest(at, LogId(5)), now=10.0) == expected


def test_nodes_spread_over_the_replicas() -> None:
    firsts = Counter(in_turn(PLACES, f"node{number}")[0] for number in range(300))
    assert min(firsts.values()) > 50
    assert in_turn(PLACES, "a") == in_turn(PLACES[::-1], "a")


def test_only_replicas_that_confirm_are_at_hand() -> None:
    rows = [
        "connected_slaves:4",
        "slave0:ip=one,port=1,state=online,offset=9,lag=0",
        "slave1:ip=two,port=2,state=wait_bgsave,offset=0,lag=0",
        "slave2:ip=::1,port=3,state=online,offset=9,lag=1,type=replica",
        "slave3:ip=four,port=4,state=online,offset=9,lag=3",
    ]
    assert StoreInfo("\r\n".join(rows).encode()).replicas_at_hand == [("one", 1), ("::1", 3)]


@pytest.mark.parametrize("sets", [["storage.url=redis://one"], ["storage.url=unix:///a", "storage.replicas=1"], []])
def test_replicas_must_confirm_what_they_bring(sets: list[str]) -> None:
    with pytest.raises(SettingsError, match=r"storage\.replicas of 1 or more"):
        load(overrides=["cluster.tails=replica", *sets], environ={})


# Real stores


class Group(NamedTuple):
    """A primary with two replicas; `line` leads from the first replica to the primary."""

    primary: StoreProcess
    replicas: dict[int, StoreProcess]
    url: str
    line: Line


@pytest.fixture
async def group(start_store: StartStore) -> AsyncIterator[Group]:
    port, *ports = free_ports(3)
    primary = await asyncio.to_thread(start_store, port=str(port))
    async with Line(port, random.Random(1)) as line:
        replicas = {}
        for each, at in zip(ports, (line.port, port), strict=True):
            options = {"port": str(each), "replicaof": f"127.0.0.1 {at}", "repl_timeout": "60"}
            replicas[each] = await asyncio.to_thread(start_store, **options)
        await until(lambda: StoreInfo(_info(primary)).replicas_at_hand[1:])
        yield Group(primary, replicas, f"redis://127.0.0.1:{port}", line)


def _info(process: StoreProcess) -> bytes:
    with process.client() as client:
        client.set_response_callback("INFO", bytes)
        return bytes(client.execute_command("INFO", "replication"))


def token_for(first: int, group: Group) -> str:
    """A token of a node that tries this replica first."""
    places = [("127.0.0.1", port) for port in group.replicas]
    return next(token for token in map(str, count()) if in_turn(places, token)[0][1] == first)


class Following:
    """Follows the log of a store, as a tail does, and keeps what comes."""

    def __init__(self, store: Store, token: str) -> None:
        self.replicas = Replicas(store, token, Counter())
        self.follower = LogFollower(store, replicas=self.replicas)
        self.ids: list[LogId] = []

    def after(self) -> LogId:
        return self.ids[-1] if self.ids else LogId(0)

    def take(self, entries: list[Unread]) -> float:
        self.ids += map(id_of, entries)
        return 0.0

    async def run_forever(self) -> None:
        while True:
            with suppress(StoreError):
                await self.follower.follow(self.after, self.take)
            await asyncio.sleep(0.01)

    @property
    def port(self) -> int | None:
        """Of the replica that is followed."""
        return None if self.replicas.current is None else self.replicas.current.place[1]

    async def has(self, ids: list[LogId]) -> None:
        """Wait until all of these have come, and see that nothing came twice or out of its turn."""
        await until(lambda: len(self.ids) >= len(ids))
        assert self.ids == ids


@asynccontextmanager
async def following(store: Store, token: str) -> AsyncIterator[Following]:
    found = Following(store, token)
    task = asyncio.create_task(found.run_forever())
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found.follower.close()


async def open_at(group: Group, open_store: OpenStore, replicas: int = 1) -> tuple[Store, Owner]:
    store = await open_store(f"storage.url={group.url}", f"storage.replicas={replicas}")
    return store, await started(store)


async def test_a_replica_brings_what_is_appended(group: Group, open_store: OpenStore) -> None:
    store, owner = await open_at(group, open_store)
    first = next(iter(group.replicas))
    ids = await owner.publish("/a", "/b")
    async with following(store, token_for(first, group)) as found:
        await until(lambda: found.port == first)
        await found.has(ids)
        ids += await owner.publish("/c")
        ids += await owner.publish("/d", "/e")
        await found.has(ids)
        with group.replicas[first].client() as client:
            assert any(each["cmd"] == "xread" for each in client.client_list())
        with group.primary.client() as client:
            assert not any(each["cmd"] == "xread" for each in client.client_list())
    assert not found.replicas.left


async def test_nothing_comes_before_the_primary_has_confirmed_it(group: Group, open_store: OpenStore) -> None:
    """Both replicas must have it, and one hangs."""
    store, owner = await open_at(group, open_store, replicas=2)
    first, other = group.replicas
    async with following(store, token_for(first, group)) as found:
        await until(lambda: found.port == first)
        group.replicas[other].stop()
        with pytest.raises(StoreError):
            await owner.publish("/a")
        with group.replicas[first].client() as client:
            assert client.xlen(store.keys.log) == 1
        assert not found.ids
        group.replicas[other].go_on()
        await until(lambda: len(found.ids) == 1)


async def test_a_replica_that_hangs_is_left_for_another(group: Group, open_store: OpenStore) -> None:
    store, owner = await open_at(group, open_store)
    first, other = group.replicas
    async with following(store, token_for(first, group)) as found:
        await until(lambda: found.port == first)
        ids = await owner.publish("/a")
        await found.has(ids)
        group.replicas[first].stop()
        ids += await owner.publish("/b", "/c")
        await found.has(ids)
        await until(lambda: found.port == other)
        ids += await owner.publish("/d")
        await found.has(ids)
        group.replicas[first].go_on()
    assert found.replicas.left == {Reason.SILENT: 1}


async def test_a_replica_that_is_behind_is_left(group: Group, open_store: OpenStore) -> None:
    """Nothing says so but the newest id: its connection to the primary stays."""
    store, owner = await open_at(group, open_store)
    first, _ = group.replicas
    async with following(store, token_for(first, group)) as found:
        await until(lambda: found.port == first)
        group.line.silence()
        ids = await owner.publish("/a", "/b")
        await found.has(ids)
        group.line.heal()
    assert found.replicas.left == {Reason.BEHIND: 1}


async def test_a_replica_that_is_cut_off_is_left(group: Group, open_store: OpenStore) -> None:
    store, owner = await open_at(group, open_store)
    first, _ = group.replicas
    (nowhere,) = free_ports(1)
    async with following(store, token_for(first, group)) as found:
        await until(lambda: found.port == first)
        with group.replicas[first].client() as client:
            client.replicaof("127.0.0.1", nowhere)
        ids = await owner.publish("/a", "/b")
        await found.has(ids)
    assert found.replicas.left.total() == 1
    assert found.replicas.left.keys() <= {Reason.CUT_OFF, Reason.SILENT}  # its blocked clients may be sent away first


async def test_what_a_promoted_replica_is_asked_for_is_not_taken(group: Group, open_store: OpenStore) -> None:
    store, owner = await open_at(group, open_store)
    first, other = group.replicas
    async with following(store, token_for(first, group)) as found:
        await until(lambda: found.port == first)
        with group.replicas[first].client() as client:
            client.replicaof("NO", "ONE")
            client.xadd(store.keys.log, {"c": "/wrong", "b": "{}"}, id="9999999999999999-0")
        ids = await owner.publish("/a", "/b")
        await found.has(ids)
        await until(lambda: found.port == other)
    assert found.replicas.left == {Reason.OTHER_HISTORY: 1}


async def test_without_replicas_the_primary_is_followed(group: Group, open_store: OpenStore) -> None:
    store, owner = await open_at(group, open_store, replicas=0)
    for each in group.replicas.values():
        await asyncio.to_thread(each.kill)
    await until(lambda: not StoreInfo(_info(group.primary)).replicas_at_hand)
    async with following(store, "a") as found:
        ids = await owner.publish("/a", "/b")
        await found.has(ids)
        assert found.port is None


# Fail-overs


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedStore]:
    """A primary with two replicas and three sentinels."""
    store = WatchedStore(tmp_path)
    yield store
    store.close()


async def test_a_fail_over_loses_nothing_of_what_is_read_on_a_replica(
    watched: WatchedStore, open_store: OpenStore
) -> None:
    """Once by the death of the primary, while the replica that is followed may be the one that is promoted."""
    store = await open_store(f"storage.url={watched.url}", "storage.replicas=2")
    owner = await started(store)
    async with following(store, "a") as found:
        await until(lambda: found.port is not None)
        ids = await owner.publish("/a", "/b")
        await found.has(ids)
        before, generation = watched.primary, store.generation
        await asyncio.to_thread(before.kill)
        await asyncio.to_thread(watched.promoted_after, before)
        await asyncio.to_thread(before.start)
        await until(lambda: store.is_up and store.generation != generation)
        assert generation in store.continues
        ids += await published(owner, ids)
        await found.has(ids)
        await until(lambda: found.port is not None and found.port != int(watched.primary.option("port")))
        ids += await owner.publish("/c", "/d")
        await found.has(ids)


async def published(owner: Owner, ids: list[LogId]) -> list[LogId]:
    """Publish until one is answered; what was not answered is in the log, too."""
    while True:
        with suppress(StoreError):
            await owner.publish("/again")
            return [each for each in await owner.log_ids() if each not in ids]
        await asyncio.sleep(0.05)


async def test_a_replica_of_a_cluster_is_followed_and_fails_over(tmp_path: Path, open_store: OpenStore) -> None:
    prefix = own_prefix()
    cluster = await asyncio.to_thread(ClusterStore, tmp_path, f"{prefix}{{crewel}}")
    try:
        store = await open_store(f"storage.url={cluster.url}", f"storage.prefix={prefix}", "storage.replicas=1")
        owner = await started(store)
        async with following(store, "a") as found:
            await until(lambda: found.port == cluster.replica)
            ids = await owner.publish("/a", "/b")
            await found.has(ids)
            generation = store.generation
            await asyncio.to_thread(cluster.fail_over)
            await until(lambda: store.is_up and store.generation != generation)
            ids += await published(owner, ids)
            await found.has(ids)
            await until(lambda: found.port == cluster.replica)
            assert info(cluster.servers[cluster.replica])["role"] == "slave"
    finally:
        await asyncio.to_thread(cluster.close)


async def test_a_slot_that_moves_takes_the_tail_with_it(tmp_path: Path, open_store: OpenStore) -> None:
    """To a primary that has no replica."""
    prefix = own_prefix()
    key = f"{prefix}{{crewel}}"
    cluster = await asyncio.to_thread(ClusterStore, tmp_path, key)
    try:
        sets = f"storage.prefix={prefix}", "storage.durability=managed"
        store = await open_store(f"storage.url={cluster.url}", *sets)
        owner = await started(store)
        async with following(store, "a") as found:
            await until(lambda: found.port == cluster.replica)
            ids = await owner.publish("/a", "/b")
            await found.has(ids)
            generation = store.generation
            await asyncio.to_thread(move_slot, cluster, key)
            await until(lambda: store.is_up and store.generation != generation)
            ids += await published(owner, ids)
            await found.has(ids)
            assert found.port is None
    finally:
        await asyncio.to_thread(cluster.close)


def move_slot(cluster: ClusterStore, key: str) -> None:
    """Move the slot of a key to another primary, as a whole."""
    other = next(port for port in cluster.servers if port not in (cluster.first, cluster.replica))
    with client_at(cluster.first) as client, client_at(other) as target:
        slot = client.execute_command("CLUSTER", "KEYSLOT", key)
        node = target.execute_command("CLUSTER", "MYID")
        try:
            client.execute_command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", node)
        except ResponseError as error:
            pytest.skip(f"this store moves slots by keys only: {error}")
