"""boot.lua: a server registers."""

import time

from crewel.storage import node_leases
from crewel.storage.store import Store
from tests.storage.owner import PROCESS, Owner, started


async def boot(owner: Owner) -> int:
    return int(await owner.do(node_leases.claim(owner.keys, owner.token, "heron", PROCESS, 0)))


async def test_a_server_starts_at_the_end_of_the_log(store: Store) -> None:
    first = await started(store)
    (newest,) = await first.publish("/a")
    before = time.time_ns() // 1000
    second = Owner(store, "b")
    assert await boot(second) == newest
    node = await second.node()
    assert before <= int(node.pop("since")) <= time.time_ns() // 1000
    assert node == {"name": "heron", "cursor": str(newest), "low": str(newest), "seq": "0", "epoch": "2"}
    assert await second.nodes() == {"a", "b"}


async def test_an_empty_log_ends_at_0(store: Store) -> None:
    assert await boot(Owner(store, "a")) == 0


async def test_a_repeated_boot_answers_the_same(store: Store) -> None:
    first = await started(store)
    node = await first.node()
    await first.publish("/a")
    assert await boot(first) == 0
    assert await first.node() == node


async def test_each_boot_raises_the_epoch_once(store: Store) -> None:
    for token in ("a", "b", "b", "c"):
        await boot(Owner(store, token))
    assert await node_leases.epoch(store) == 3
    assert [await node_leases.epoch(store, token) for token in "abcd"] == [1, 2, 3, 0]
