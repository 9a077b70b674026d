"""The store is killed under load: the server stays, says so, refuses what it cannot keep, and goes on by itself."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.health import Health, store_pid
from tests.faults.load import PATTERN, Load, wait_for
from tests.store_process import StoreProcess

SETS = ("bayeux.timeout_ms=1000",)
KILLS = 5 if IS_FULL else 1
RUNS = 10 if IS_FULL else 1
CRASHES = range(1, 11) if IS_FULL else range(1, 2)
LOSS_S = 2.0
GOES_ON_S = 10.0


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """An empty directory for a store."""
    path = tmp_path / "disk"
    path.mkdir()
    return path


@pytest.fixture
def synced(disk: Path) -> Iterator[StoreProcess]:
    """A store of our own that syncs before it answers."""
    store = StoreProcess(disk, appendfsync="always")
    yield store
    store.close()


@pytest.fixture
def careless(disk: Path) -> Iterator[StoreProcess]:
    """A store of our own that syncs once a second."""
    store = StoreProcess(disk, appendfsync="everysec")
    yield store
    store.close()


def only_resource(load: Load) -> None:
    """Whatever was refused was refused for want of the store."""
    assert all("resource." in error for error in load.ledger.refusals), load.ledger.refusals


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
async def test_what_was_answered_survives_kills_of_the_embedded_store(
    seed: int, start_server: StartServer, load: Load, disk: Path, tell: Tell
) -> None:
    rng = random.Random(seed)
    server = await asyncio.to_thread(start_server, *SETS, "storage.url=", f"storage.data_dir={disk}")
    assert server.port is not None
    await load.begin(server.port)
    slowest = 0.0
    async with Health(server) as health:
        for _ in range(KILLS):
            await load.answers(20, 15)
            await asyncio.sleep(rng.uniform(0, 1))
            killed = monotonic()
            with load.history.fault():
                os.kill(store_pid(server), signal.SIGKILL)
                await health.becomes(503, killed, 5)
                await health.is_well(GOES_ON_S)
                ready = monotonic()
                await load.answers(20, GOES_ON_S)  # while sessions are read again, acknowledgements may still be undone
            slowest = max(slowest, ready - killed)
    await load.settle()
    verdict = await asyncio.to_thread(load.judge, disk)
    only_resource(load)
    tell(
        f"seed {seed}: {KILLS} kills of the embedded store, fsync always; {load.ledger.answered_count} publishes answered,"
        f" {sum(load.ledger.refusals.values())} refused, {load.ledger.duplicates} duplicates;"
        f" ready again after {slowest:.1f} s at most{verdict}"
    )


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
async def test_what_was_answered_survives_kills_of_a_separate_store(
    seed: int, synced: StoreProcess, start_server: StartServer, load: Load, disk: Path, tell: Tell
) -> None:
    rng = random.Random(1000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, f"storage.url={synced.url}")
    assert server.port is not None
    await load.begin(server.port)
    slowest = 0.0
    async with Health(server) as health:
        for _ in range(KILLS):
            await load.answers(20, 15)
            await asyncio.sleep(rng.uniform(0, 1))
            killed = monotonic()
            with load.history.fault():
                synced.kill()
                await health.becomes(503, killed, 5)
                refused = load.ledger.refusals.total()
                await wait_for(lambda before=refused: load.ledger.refusals.total() > before, 10, load.report)
                await asyncio.sleep(rng.uniform(0, 2))
                assert health.status == 503
                await asyncio.to_thread(synced.start)
                back = monotonic()
                await health.is_well(GOES_ON_S)
                await load.answers(20, GOES_ON_S)  # as above
            slowest = max(slowest, monotonic() - back)
    await load.settle()
    verdict = await asyncio.to_thread(load.judge, disk)
    only_resource(load)
    tell(
        f"seed {seed}: {KILLS} kills of a separate store, fsync always; {load.ledger.answered_count} publishes answered,"
        f" {load.ledger.refusals.total()} refused, {load.ledger.duplicates} duplicates;"
        f" publishing went on {slowest:.1f} s at most after the store was there{verdict}"
    )


class Tail:
    """How long the append-only file of a store was, and when: to cut it as a crash of the machine would."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "appendonlydir"
        self._sizes: deque[tuple[float, int]] = deque(maxlen=1000)
        self._task = asyncio.create_task(self._watch())

    @property
    def file(self) -> Path:
        """The file to which the store appends."""
        return max(self._directory.glob("*.incr.aof"))

    async def _watch(self) -> None:
        while True:
            self._sizes.append((monotonic(), self.file.stat().st_size))
            await asyncio.sleep(0.02)

    def cut(self, seconds: float) -> int:
        """Take away what was written in the last `seconds`, and a few bytes more, so that the last command is half there.
        Return how many bytes that were."""
        self._task.cancel()
        now = monotonic()
        size = max(length for at, length in self._sizes if at <= now - seconds)
        lost = self.file.stat().st_size - size
        os.truncate(self.file, max(size - 7, 0))
        return lost


@pytest.mark.parametrize("seed", CRASHES)
async def test_a_crash_of_the_machine_loses_two_seconds_at_most_and_is_noticed(
    seed: int, careless: StoreProcess, start_server: StartServer, load: Load, disk: Path, tell: Tell
) -> None:
    """With fsync everysec. The server outlives the store here, which is the harder case: it knows what the store does not."""
    rng = random.Random(2000 + seed)
    store = careless
    server = await asyncio.to_thread(start_server, *SETS, f"storage.url={store.url}")
    assert server.port is not None
    await load.begin(server.port)
    early = await load.join(server.port, subscribes=False)
    with store.client() as client:
        before = client.get(f"{_prefix(server.store_sets)}{{crewel}}:epoch")
    tail = Tail(disk)
    await load.answers(100, 20)
    await asyncio.sleep(2.5)
    loss = rng.uniform(0.3, LOSS_S - 0.2)
    # What these are told now may be lost, too, and then they have to learn that.
    late = await load.join(server.port)
    await early.subscribe(PATTERN)
    await asyncio.sleep(rng.uniform(0, loss))
    store.kill()
    lost = tail.cut(loss)
    load.ledger.excuse(monotonic() - LOSS_S)
    await asyncio.to_thread(store.start)
    back = monotonic()
    async with Health(server) as health:
        await health.is_well(GOES_ON_S)
        await load.goes_on(back, GOES_ON_S)
        await load.answers(50, GOES_ON_S)
    await load.settle(may_begin_anew=True)
    with store.client() as client:
        after = client.get(f"{_prefix(server.store_sets)}{{crewel}}:epoch")
    assert int(after or 0) > int(before or 0)
    anew = {each.name for each in load.clients if each.handshakes > 1}
    assert anew <= {early.name, late.name}, load.report()
    assert "all sessions are read again" in server.stderr
    tell(
        f"seed {seed}: the store killed, {lost} bytes or {loss:.1f} s of its file cut off, fsync everysec;"
        f" {load.ledger.answered_count} publishes answered; {len(anew)} clients, whose subscriptions were lost, shook hands"
        " again"
    )


async def test_a_store_that_comes_back_empty_is_noticed(
    careless: StoreProcess, start_server: StartServer, load: Load, disk: Path, tell: Tell
) -> None:
    """Its disk was lost. Everybody has to shake hands and subscribe again, and is told to."""
    store = careless
    server = await asyncio.to_thread(start_server, *SETS, f"storage.url={store.url}")
    assert server.port is not None
    await load.begin(server.port, publishers=1)
    await load.answers(50, 15)
    store.kill()
    load.ledger.excuse(0)
    shutil.rmtree(disk / "appendonlydir")
    await asyncio.to_thread(store.start)
    await load.goes_on(monotonic(), GOES_ON_S)
    await load.answers(50, GOES_ON_S)
    await load.settle(may_begin_anew=True)
    assert "the store has lost data that it had confirmed" in server.stderr
    tell(f"the store came back empty; {len(load.clients)} clients shook hands again and went on")


def _prefix(sets: tuple[str, ...]) -> str:
    return next(text.partition("=")[2] for text in sets if text.startswith("storage.prefix="))
