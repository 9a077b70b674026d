"""The lease of a server on its store, with a real store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crewel.broker.durability.access import StoreAccess
from crewel.broker.durability.lease import StoreLease
from crewel.settings import Settings
from crewel.settings.storage import Cluster, Storage
from crewel.storage.store import Store
from crewel.supervision import Supervisor
from tests.lines import Line
from tests.ports import free_ports
from tests.store_process import StoreProcess, own_prefix, shared_store

pytestmark = pytest.mark.store
TOKEN = "0123456789abcdef"
LIMIT_S = 30


@pytest.fixture
def settings() -> Settings:
    """Those of a server with a short lease."""
    return Settings(storage=Storage(url=shared_store().url, prefix=own_prefix()), cluster=Cluster(lease_ms=600))


@pytest.fixture
async def access(settings: Settings) -> AsyncIterator[StoreAccess]:
    """What its parts share of the store."""
    access = StoreAccess(settings, asyncio.get_running_loop())
    store = Store(settings)
    await store.open()
    access.open(store)
    access.token = TOKEN
    yield access
    await store.close()


async def test_a_lease_is_renewed_while_the_queue_of_writes_waits_for_the_store(
    settings: Settings, access: StoreAccess
) -> None:
    """Else a healthy node that has to read the log from a slow store would be taken for dead."""
    lease = StoreLease(access, settings, Supervisor())
    await lease.claim()
    goes_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    access.writing.in_turn(lambda: None, lambda _: goes_on)
    key = access.keys.lease(TOKEN)
    await access.store.reader.delete(key)
    async with asyncio.timeout(LIMIT_S):
        while not await access.store.reader.exists(key):
            await asyncio.sleep(0.01)
    assert not goes_on.done()
    goes_on.set_result(None)
    await lease.end()
    assert not await access.store.reader.exists(key)


async def test_a_lease_lasts_while_a_slow_store_has_always_something_under_way(tmp_path: Path) -> None:
    """A renewal waits for what is under way before it is sent. The lease counts from when it was asked for: twice as much
    passes until the answer, and if the next one is asked for only then, the lease ends before its answer comes."""
    (port,) = free_ports(1)
    process = StoreProcess(tmp_path, port=str(port))
    async with Line(port, random.Random(1)) as line:
        storage = Storage(url=f"redis://127.0.0.1:{line.port}", prefix=own_prefix())
        settings = Settings(storage=storage, cluster=Cluster(lease_ms=1500))
        access = StoreAccess(settings, asyncio.get_running_loop())
        store = Store(settings)
        await store.open()
        access.open(store)
        access.token = TOKEN
        lease = StoreLease(access, settings, Supervisor())
        await lease.claim()
        line.degrade(0.3, 0)
        exchanges = 0

        def ask_again(_: list[object]) -> None:
            nonlocal exchanges
            exchanges += 1
            if exchanges < 10:
                store.submit([store._mark], ask_again)

        store.submit([store._mark], ask_again)
        async with asyncio.timeout(LIMIT_S):
            while exchanges < 10:
                assert lease.lasts, exchanges
                await asyncio.sleep(0.01)
        line.heal()
        await lease.end()
        await store.close()
    process.close()
