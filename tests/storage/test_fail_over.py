"""A store that fails over: who is found, what is demanded, and how a lost end of the log is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from crewel.delivery.records import LogId
from crewel.errors import SettingsError, StoreError, StoreUncertain
from crewel.settings import load
from crewel.storage.keys import Keys
from crewel.storage.log_follower import LogFollower, Unread, id_of
from crewel.storage.store import Store
from tests.ports import free_ports
from tests.storage.conftest import OpenStore, StartStore, settings_for
from tests.storage.steps import count, known
from tests.storage.test_store import Watch, until
from tests.store_group import SERVICE, ClusterStore, WatchedStore, info
from tests.store_process import own_prefix

pytestmark = pytest.mark.usefixtures("_scripts_of_the_tests")


@pytest.fixture
def _scripts_of_the_tests() -> Iterator[None]:
    with known():
        yield


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[WatchedStore]:
    """A primary with two replicas and three sentinels, to be killed."""
    store = await asyncio.to_thread(WatchedStore, tmp_path)
    yield store
    await asyncio.to_thread(store.close)


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedStore]:
    """The same for tests that leave it as it is."""
    store = WatchedStore(tmp_path_factory.mktemp("steady"))
    yield store
    store.close()


async def writes(store: Store) -> list[Any]:
    return await store.run([count(store.keys.names)])


async def test_the_sentinels_are_asked_for_the_primary(steady: WatchedStore, open_store: OpenStore) -> None:
    store = await open_store(f"storage.url={steady.url}", "storage.replicas=2")
    assert await writes(store) == [1]
    assert await store.reader.get(store.keys.names) == b"1"
    for server in steady.servers.values():
        with server.client() as client:
            assert client.get(store.keys.names) == b"1"


async def test_one_sentinel_that_answers_is_enough(watched: WatchedStore, open_store: OpenStore) -> None:
    for sentinel in watched.sentinels[:2]:
        await asyncio.to_thread(sentinel.kill)
    store = await open_store(f"storage.url={watched.url}", "storage.replicas=1")
    assert await writes(store) == [1]


async def test_a_replica_takes_the_place_of_a_primary_that_was_killed(
    watched: WatchedStore, open_store: OpenStore
) -> None:
    store = await open_store(f"storage.url={watched.url}", "storage.replicas=1")
    watch = Watch(store)
    assert await writes(store) == [1]
    generation, before = store.generation, watched.primary
    await asyncio.to_thread(before.kill)
    await until(lambda: watch.told == ["went"])
    await asyncio.to_thread(watched.promoted_after, before)
    await until(lambda: watch.told == ["went", "came"])
    assert store.generation != generation
    assert await store.reader.get(store.keys.names) == b"1"
    assert await until_written(store) == 2


async def until_written(store: Store) -> int:
    """Write until it is answered: the new primary waits for its replica to come back."""
    while True:
        (answer,) = await writes(store)
        if isinstance(answer, int):
            return answer
        await asyncio.sleep(0.05)


async def test_an_operator_lets_a_replica_take_over(watched: WatchedStore, open_store: OpenStore) -> None:
    store = await open_store(f"storage.url={watched.url}", "storage.replicas=1")
    generation = store.generation
    assert await writes(store) == [1]
    await asyncio.to_thread(watched.fail_over)
    await until(lambda: store.is_up and store.generation != generation)
    assert await until_written(store) >= 2


async def test_a_primary_without_replicas_is_not_believed(watched: WatchedStore, open_store: OpenStore) -> None:
    """As one that was cut off: it takes what is written for a while, and nothing of that counts."""
    store = await open_store(f"storage.url={watched.url}", "storage.replicas=1")
    for replica in watched.replicas:
        replica.stop()
    (answer,) = await writes(store)
    assert type(answer) is StoreUncertain
    with watched.primary.client() as client:
        client.xadd(store.keys.log, {"c": "/a", "b": "{}"}, id="5-0")
    follower, found = LogFollower(store), list[Unread]()

    def after() -> LogId | None:
        return None if found else LogId(0)

    def take(entries: list[Unread]) -> float:
        found.extend(entries)
        return 0.0

    with pytest.raises(StoreUncertain):
        await follower.follow(after, take)
    assert found == []  # a promoted replica would not have it
    for replica in watched.replicas:
        replica.go_on()
    while not found:
        with suppress(StoreError):
            await follower.follow(after, take)
    follower.close()
    assert [id_of(each) for each in found] == [5]


async def test_a_service_that_no_sentinel_knows_is_told_at_once(steady: WatchedStore, open_store: OpenStore) -> None:
    url = steady.url.replace(SERVICE, "other")
    with pytest.raises(SettingsError, match="not know the service 'other'"):
        await open_store(f"storage.url={url}", "storage.replicas=1")


async def test_a_store_that_can_fail_over_must_demand_replicas(steady: WatchedStore, open_store: OpenStore) -> None:
    with steady.primary.client() as client:
        client.config_set("min-replicas-to-write", 0)
        try:
            with pytest.raises(SettingsError, match="min-replicas-to-write 1"):
                await open_store(f"storage.url={steady.url}", "storage.replicas=1")
            assert (await open_store(f"storage.url={steady.url}", "storage.durability=managed")).is_up
        finally:
            client.config_set("min-replicas-to-write", 1)


def test_copies_are_demanded_where_a_replica_may_take_over() -> None:
    address = "storage.url=redis+sentinel://host/service"
    with pytest.raises(SettingsError, match=r"storage\.replicas must be 1 or more"):
        load(overrides=[address], environ={})
    assert load(overrides=[address, "storage.replicas=1"], environ={}).storage.replicas == 1
    assert load(overrides=[address, "storage.durability=managed"], environ={}).storage.replicas == 0


async def test_a_managed_store_needs_no_file_of_its_own(start_store: StartStore, open_store: OpenStore) -> None:
    url = start_store(appendonly="no").url
    with pytest.raises(SettingsError, match=r"storage\.durability=managed"):
        await open_store(f"storage.url={url}")
    assert (await open_store(f"storage.url={url}", "storage.durability=managed")).is_up


# One server that another one takes the place of, without a restart


async def test_a_primary_that_became_a_replica_is_left(start_store: StartStore, open_store: OpenStore) -> None:
    port, other = free_ports(2)
    process, newer = start_store(port=str(port)), start_store(port=str(other))
    store = await open_store(f"storage.url={process.url}")
    watch, generation = Watch(store), store.generation
    with process.client() as client:
        client.replicaof("127.0.0.1", other)
        await until(lambda: watch.told == ["went"])
        await until(lambda: info(process)["master_link_status"] == "up")
        client.replicaof("NO", "ONE")
    await until(lambda: watch.told == ["went", "came"])
    assert store.generation != generation
    assert info(newer)["role"] == "master"


async def test_a_primary_that_was_a_replica_for_a_moment_is_noticed(
    start_store: StartStore, open_store: OpenStore
) -> None:
    """Nothing was written meanwhile, and no connection was closed: its contents are those of the other one all the same."""
    port, other = free_ports(2)
    process, newer = start_store(port=str(port)), start_store(port=str(other))
    store = await open_store(f"storage.url={process.url}")
    watch = Watch(store)
    assert await writes(store) == [1]
    with process.client() as client:
        client.pipeline().execute_command("REPLICAOF", "127.0.0.1", other).execute()
        await until(lambda: info(process).get("master_link_status") == "up")
        client.replicaof("NO", "ONE")
    await until(lambda: "came" in watch.told)
    assert await writes(store) == [1]
    assert info(newer)["role"] == "master"


async def test_the_end_of_a_backlog_is_no_change(start_store: StartStore, open_store: OpenStore) -> None:
    """A store without replicas forgets its history some time after the last one, as after a backup."""
    port, other = free_ports(2)
    process = start_store(port=str(port), repl_backlog_ttl="1")
    replica = start_store(port=str(other), replicaof=f"127.0.0.1 {port}")
    await until(lambda: info(replica)["master_link_status"] == "up")
    store = await open_store(f"storage.url={process.url}")
    watch, history = Watch(store), info(process)["master_replid"]
    with replica.client() as client:
        client.replicaof("NO", "ONE")
    await until(lambda: info(process)["master_replid"] != history)
    looks = info(process)["master_replid"]
    await until(lambda: store.generation.endswith(looks))
    assert watch.told == []


# A cluster


@pytest.fixture
async def clustered(tmp_path: Path) -> AsyncIterator[tuple[ClusterStore, Callable[[], Any]]]:
    """A cluster, and what opens a store in it."""
    prefix = own_prefix()
    cluster = await asyncio.to_thread(ClusterStore, tmp_path, Keys(prefix).base)
    async with AsyncExitStack() as stack:

        async def opened() -> Store:
            store = Store(settings_for(f"storage.url={cluster.url}", f"storage.prefix={prefix}", "storage.replicas=1"))
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield cluster, opened
    await asyncio.to_thread(cluster.close)


async def test_the_node_of_a_cluster_that_has_the_slot_is_found(clustered: tuple[ClusterStore, Any]) -> None:
    cluster, opened = clustered
    store = await opened()
    assert await writes(store) == [1]
    with cluster.servers[cluster.first].client() as client:
        assert client.get(store.keys.names) == b"1"
        assert client.dbsize() >= 2
    for port in cluster.servers.keys() - {cluster.first, cluster.replica}:
        with cluster.servers[port].client() as client:
            assert client.dbsize() == 0


async def test_a_cluster_fails_over(clustered: tuple[ClusterStore, Any]) -> None:
    cluster, opened = clustered
    store = await opened()
    assert await writes(store) == [1]
    generation = store.generation
    await asyncio.to_thread(cluster.fail_over)
    await until(lambda: store.is_up and store.generation != generation)
    assert await store.reader.get(store.keys.names) == b"1"
    assert await until_written(store) == 2
