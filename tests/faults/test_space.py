"""No more space, on the disk or in the store's memory: publishes are refused, nothing answered is lost, what is settled is
settled, and all heals by itself when there is space again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.disks import DISKS, Quota, SmallDisk
from tests.faults.health import Health, open_ids
from tests.faults.load import Load, wait_for
from tests.functional.bayeux import Client
from tests.functional.wire import Connection
from tests.server_process import Server
from tests.store_process import StoreProcess

SETS = ("bayeux.timeout_ms=1000",)
SEEDS = range(1, 4) if IS_FULL else range(1, 2)
HEALS_S = 15.0  # the store that ends for want of space is started again after up to 5 s
MIB = 1 << 20


@pytest.fixture(params=DISKS if IS_FULL else DISKS[:1], ids=lambda kind: kind.__name__)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Quota | SmallDisk]:
    """A disk that can be filled."""
    disk = request.param(tmp_path)
    yield disk
    disk.close()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_full_disk(
    seed: int, fsync: str, disk: Quota | SmallDisk, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """With `always` the store ends when it cannot write, and is started again and again; else it refuses to write."""
    rng = random.Random(5000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *disk.sets, f"storage.fsync={fsync}")
    assert server.port is not None
    load.log = lambda: f"\n{server.stderr}"
    await load.begin(server.port)
    async with Health(server) as health:
        await load.answers(50, 15)
        before = load.ledger.refusals.total()
        filled = monotonic()
        await asyncio.to_thread(disk.fill, server)
        await wait_for(lambda: load.ledger.refusals.total() > before, 15, lambda: load.report() + server.stderr)
        await health.becomes(503, filled, 15)
        await asyncio.sleep(rng.uniform(0.5, 3))
        await asyncio.to_thread(disk.free, server)
        freed = monotonic()
        await load.answers(50, HEALS_S)
        healed = monotonic() - freed
        await health.is_well(HEALS_S)
    await load.settle()
    assert all("resource." in error for error in load.ledger.refusals), load.ledger.refusals
    tell(
        f"seed {seed}, {type(disk).__name__}, fsync {fsync}: {load.ledger.answered_count} publishes answered,"
        f" {load.ledger.refusals.total()} refused, {load.ledger.duplicates} duplicates; healed after {healed:.1f} s"
    )


@pytest.mark.parametrize("percent", [92, 130] if IS_FULL else [130])
@pytest.mark.parametrize("seed", SEEDS)
async def test_full_memory(
    seed: int, percent: int, store: StoreProcess, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """From 90 % on the server refuses; above 100 % the store does, also before the server has looked."""
    assert seed
    server = await asyncio.to_thread(start_server, *SETS, f"storage.url={store.url}")
    assert server.port is not None
    await load.begin(server.port)
    await load.answers(50, 15)
    with store.client() as client:
        for _ in range(32):  # the clients' buffers are little beside this
            client.rpush("ballast", bytes(MIB))
        client.config_set("maxmemory", client.info("memory")["used_memory"] * 100 // percent)
        full = load.ledger.refusals["503::resource.noMoreSpace"]
        await wait_for(lambda: load.ledger.refusals["503::resource.noMoreSpace"] > full + 5, 10, load.report)
        assert await asyncio.to_thread(_readiness, server) == 503
        # Nothing comes any more, and what is acknowledged is written: nothing is open in the end.
        await wait_for(lambda: open_ids(client) == 0, 10, lambda: f"{open_ids(client)} are open")
        refused = await asyncio.to_thread(_handshake, Client(server), percent)
        client.config_set("maxmemory", 256 * MIB)
        freed = monotonic()
        await load.answers(50, HEALS_S)
        healed = monotonic() - freed
    await load.settle()
    # The account that has most in the store is refused first: decision 0461.
    refusals = {"503::resource.noMoreSpace", "429:limits.max_stored_ratio:resource.exhaust"}
    assert set(load.ledger.refusals) <= refusals, load.ledger.refusals
    tell(
        f"seed {seed}, store at {percent} % of its memory: {load.ledger.answered_count} publishes answered,"
        f" {load.ledger.refusals.total()} refused, nothing left open, {refused}; healed after {healed:.1f} s"
    )


def _readiness(server: Server) -> int:
    connection = Connection(server)
    connection.request("GET", "/health/ready")
    return connection.response().status


def _handshake(client: Client, percent: int) -> str:
    """Above 100 % no reliable session can begin, and its client is told to try again."""
    if percent < 100:
        return "logins go on"
    message = client.message(
        "/meta/handshake", version="1.0", supportedConnectionTypes=["long-polling"], ext={"ack": True}
    )
    (answer,) = client.send(message)
    assert answer["successful"] is False, answer
    assert "resource.noMoreSpace" in answer["error"], answer
    assert answer["advice"]["reconnect"] == "handshake"
    return "logins refused"
