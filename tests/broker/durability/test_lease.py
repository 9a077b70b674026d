"""The lease of a server on its store, with a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from crewel.broker.durability.access import StoreAccess
from crewel.broker.durability.lease import StoreLease
from crewel.settings import Settings
from crewel.settings.storage import Cluster, Storage
from crewel.storage.store import Store
from crewel.supervision import Supervisor
from tests.store_process import own_prefix, shared_store

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
