"""Processes that hang and go on: a store that does not answer in time, and a server that wakes up after its successor."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from time import monotonic

import pytest

from tests.conftest import StartServer
from tests.cutting_proxy import CuttingProxy
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.health import Health
from tests.faults.load import Load, wait_for
from tests.store_process import StoreProcess

SETS = ("bayeux.timeout_ms=1000",)
SEEDS = range(1, 11) if IS_FULL else range(1, 2)
GOES_ON_S = 10.0
WRITE_LIMIT_S = 2.0
ENDED_WITHOUT_STORE = 3


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_store_that_hangs_and_goes_on(
    seed: int, store: StoreProcess, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """What was under way is in doubt: it is answered as refused, and sent again. Nothing of it may happen twice later."""
    rng = random.Random(3000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, f"storage.url={store.url}")
    assert server.port is not None
    await load.begin(server.port)
    longest = 0.0
    async with Health(server) as health:
        for _ in range(3 if IS_FULL else 1):
            await load.answers(20, 15)
            await asyncio.sleep(rng.uniform(0, 0.5))
            stopped = monotonic()
            store.stop()
            await health.becomes(503, stopped, WRITE_LIMIT_S + 2)
            await asyncio.sleep(rng.uniform(0, 2))
            store.go_on()
            longest = max(longest, monotonic() - stopped)
            await health.is_well(GOES_ON_S)
            await load.answers(20, GOES_ON_S)
    await load.settle()
    assert load.ledger.refusals, "nothing was under way"
    assert all("resource." in error for error in load.ledger.refusals), load.ledger.refusals
    tell(
        f"seed {seed}: the store stopped for up to {longest:.1f} s; {load.ledger.answered_count} publishes answered,"
        f" {load.ledger.refusals.total()} refused, {load.ledger.duplicates} duplicates"
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_server_that_hangs_finds_its_successor(
    seed: int, store: StoreProcess, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """Its clients continue at the successor, as behind any load balancer; the old one says so and ends."""
    rng = random.Random(4000 + seed)
    old = await asyncio.to_thread(start_server, *SETS, f"storage.url={store.url}")
    async with CuttingProxy(old.port) as proxy:
        await load.begin(proxy.port)
        await load.answers(20, 15)
        await asyncio.sleep(rng.uniform(0, 1))
        os.kill(old.pid, signal.SIGSTOP)
        try:
            new = await asyncio.to_thread(start_server, *SETS, *old.store_sets)
            proxy.server_port = new.port
            proxy.hang_up()
            await load.goes_on(monotonic(), 5)
            await load.answers(rng.randint(1, 50), GOES_ON_S)
        finally:
            os.kill(old.pid, signal.SIGCONT)
        await wait_for(lambda: "another server has taken over the store" in old.stderr, GOES_ON_S, lambda: old.stderr)
        assert await asyncio.to_thread(old.wait) == ENDED_WITHOUT_STORE
        old.ended_by_test = True
        await load.answers(50, GOES_ON_S)
        await load.settle()
    assert "taken over" not in new.stderr
    tell(
        f"seed {seed}: a server stopped, its successor started, the old one woken;"
        f" {load.ledger.answered_count} publishes answered, {load.ledger.duplicates} duplicates"
    )
