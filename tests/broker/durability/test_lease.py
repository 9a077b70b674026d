"""The lease of a server on its store, with a real store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from crewel.broker.durability.lease import StoreLease
from crewel.broker.writing.store_access import StoreAccess
from crewel.settings import Settings
from crewel.settings.storage import Cluster, Storage
from crewel.storage.store import Store
from crewel.supervision import Supervisor
from tests.cutting_proxy import Way
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
    access = StoreAccess(settings, asyncio.get_running_loop(), cast("Any", None))
    store = Store(settings)
    await store.open()
    access.open(store, lambda _: None, lambda _: None)
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


class CountingLine(Line):
    """Counts what is sent to the server."""

    sent = 0

    async def passes(self, way: Way) -> None:
        """Wait until a burst may pass."""
        self.sent += way is Way.TO
        await super().passes(way)


@dataclass
class Slow:
    """A lease of 1.5 s on a store that takes 0.6 s to answer."""

    access: StoreAccess
    lease: StoreLease
    line: CountingLine


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Slow]:
    """It, from its claim on."""
    (port,) = free_ports(1)
    process = StoreProcess(tmp_path, port=str(port))
    async with CountingLine(port, random.Random(1)) as line:
        storage = Storage(url=f"redis://127.0.0.1:{line.port}", prefix=own_prefix())
        settings = Settings(storage=storage, cluster=Cluster(lease_ms=1500))
        access = StoreAccess(settings, asyncio.get_running_loop(), cast("Any", None))
        store = Store(settings)
        await store.open()
        access.open(store, lambda _: None, lambda _: None)
        access.token = TOKEN
        lease = StoreLease(access, settings, Supervisor())
        await lease.claim()
        line.degrade(0.3, 0)
        yield Slow(access, lease, line)
        line.heal()
        await lease.end()
        await store.close()
    process.close()


async def test_a_lease_lasts_while_a_slow_store_has_always_something_under_way(slow: Slow) -> None:
    """A renewal waits for what is under way before it is sent. The lease counts from when it was asked for: twice as much
    passes until the answer, and if the next one is asked for only then, the lease ends before its answer comes."""
    store, exchanges = slow.access.store, 0

    def ask_again(_: list[object]) -> None:
        nonlocal exchanges
        exchanges += 1
        if exchanges < 10:
            store.submit([store.marks.step()], ask_again)

    store.submit([store.marks.step()], ask_again)
    async with asyncio.timeout(LIMIT_S):
        while exchanges < 10:
            assert slow.lease.lasts, exchanges
            await asyncio.sleep(0.01)


async def test_renewals_on_a_slow_store_go_with_other_writes(slow: Slow) -> None:
    """In an exchange of their own each time, they would let every other write wait twice as long."""
    before = slow.line.sent
    async with asyncio.timeout(LIMIT_S):
        for _ in range(8):
            await slow.access.writing.ask(slow.access.store.marks.step())
            assert slow.lease.lasts
    assert slow.line.sent - before <= 11  # the health of the store is looked at meanwhile


async def test_renewals_on_a_slow_store_go_alone_if_nothing_else_is_asked_for(slow: Slow) -> None:
    async with asyncio.timeout(LIMIT_S):
        end = asyncio.get_running_loop().time() + 4
        while asyncio.get_running_loop().time() < end:
            assert slow.lease.lasts
            await asyncio.sleep(0.01)


async def test_a_lease_is_steady_once_it_has_lasted_for_as_long_as_one_lasts(
    settings: Settings, access: StoreAccess
) -> None:
    lease = StoreLease(access, settings, Supervisor())
    began = asyncio.get_running_loop().time()
    await lease.claim()
    assert lease.lasts
    assert not lease.is_steady
    async with asyncio.timeout(LIMIT_S):
        while not lease.is_steady:
            await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - began >= 0.6
    await lease.end()
    assert not lease.is_steady
