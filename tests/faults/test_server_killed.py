"""The server is killed at random moments under load, also while it starts, and another takes its place: what was answered
reaches everybody, and nobody has to shake hands or subscribe again."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import Load
from tests.server_process import Server

SETS = ("bayeux.timeout_ms=1000",)
GOES_ON_S = 5.0
KILLS = 10 if IS_FULL else 3
SEEDS = range(1, 21) if IS_FULL else range(1, 2)


def store_of(seed: int, directory: Path) -> tuple[str, ...]:
    """Every second run has a store that the server starts itself, which ends with it, or outlives it for a moment."""
    return ("storage.url=", f"storage.data_dir={directory / 'own'}") if seed % 2 else ()


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_answered_survives_kills_of_the_server(
    seed: int, start_server: StartServer, load: Load, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(seed)
    server = await asyncio.to_thread(start_server, *SETS, *store_of(seed, tmp_path))
    assert server.port is not None
    await load.begin(server.port, subscribers=2 if IS_FULL else 1)
    slowest = 0.0
    started = 0
    for number in range(KILLS):
        await load.answers(20, 15)
        if number == KILLS // 2:
            await load.join(server.port)
        await asyncio.sleep(rng.uniform(0, 1.0))
        with load.history.fault():
            server.kill()
            if rng.random() < 0.25:
                await kill_while_it_starts(server, tmp_path, rng.uniform(0.1, 1.2))
                started += 1
            server = await asyncio.to_thread(start_server, *SETS, *server.store_sets, port=server.port)
            slowest = max(slowest, await load.goes_on(monotonic(), GOES_ON_S))
    await load.settle()
    verdict = await asyncio.to_thread(load.judge, tmp_path)
    ledger = load.ledger
    tell(
        f"seed {seed}: {KILLS} kills and {started} while it started, store {'its own' if seed % 2 else 'separate'};"
        f" {ledger.answered_count} publishes answered, {len(ledger.received)} subscribers,"
        f" {ledger.duplicates} duplicates; all clients went on after {slowest:.1f} s at most{verdict}"
    )


async def kill_while_it_starts(server: Server, directory: Path, after_s: float) -> None:
    """Start a server in the place of this one, and kill it before or just after it is ready."""
    sets = [f"--set={text}" for text in (*SETS, *server.store_sets)]
    command = [sys.executable, "-m", "crewel", "serve", f"--port={server.port}", *sets]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await asyncio.sleep(after_s)
    process.kill()
    process.wait(10)
