"""Workers of one server are killed and replaced at random moments under load: what was answered reaches all subscribers, and no
client has to shake hands or subscribe again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from time import monotonic

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import Load, wait_for
from tests.server_process import Server

SETS = ("cluster.workers=2", "bayeux.timeout_ms=1000")
GOES_ON_S = 10.0
KILLS = 100 if IS_FULL else 3
REPLACEMENTS = 10 if IS_FULL else 2


def processes(server: Server) -> list[int]:
    """The workers of a server, the oldest first."""
    found = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [pid for pid in map(int, found) if "--inherited" in Path(f"/proc/{pid}/cmdline").read_text()]


async def serving(server: Server, load: Load, but: set[int]) -> list[int]:
    """The workers, once there are two that have none of these processes and that clients reach."""
    pids: list[int] = []

    def are_two() -> bool:
        pids[:] = [pid for pid in processes(server) if pid not in but]
        return len(pids) == 2 and len(processes(server)) == 2

    await wait_for(are_two, 30, load.report)
    return pids


@pytest.mark.parametrize("with_own_store", [True, False])
async def test_what_was_answered_survives_kills_of_workers(
    with_own_store: bool, start_server: StartServer, load: Load, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(7)
    store = ("storage.url=", f"storage.data_dir={tmp_path / 'own'}") if with_own_store else ()
    server = await asyncio.to_thread(start_server, *SETS, *store)
    load.log = lambda: server.stderr
    assert server.port is not None
    await load.begin(server.port, subscribers=2 if IS_FULL else 1)
    slowest = 0.0
    for _ in range(KILLS if with_own_store else 1):
        await load.answers(20, 20)
        before = await serving(server, load, set())
        await asyncio.sleep(rng.uniform(0, 0.5))
        victim = rng.choice(before)
        os.kill(victim, signal.SIGKILL)
        slowest = max(slowest, await load.goes_on(monotonic(), GOES_ON_S))
        await serving(server, load, {victim})
    await load.settle()
    ledger = load.ledger
    tell(
        f"{KILLS} kills of one of two workers; {ledger.answered_count} publishes answered, {len(ledger.received)} subscribers,"
        f" {ledger.duplicates} duplicates; all clients went on after {slowest:.1f} s at most"
    )


async def test_replacing_all_workers_loses_nothing(start_server: StartServer, load: Load, tell: Tell) -> None:
    server = await asyncio.to_thread(start_server, *SETS)
    load.log = lambda: server.stderr
    assert server.port is not None
    await load.begin(server.port, subscribers=2 if IS_FULL else 1)
    slowest = 0.0
    for _ in range(REPLACEMENTS):
        await load.answers(20, 20)
        before = set(await serving(server, load, set()))
        os.kill(server.pid, signal.SIGHUP)
        await serving(server, load, before)
        slowest = max(slowest, await load.goes_on(monotonic(), GOES_ON_S))
    longest = max(each.longest_wait for each in load.publishers)
    await load.settle()
    server.end_well()
    tell(
        f"{REPLACEMENTS} times all workers replaced; {load.ledger.answered_count} publishes answered; all clients went on after"
        f" {slowest:.1f} s at most, and no publisher waited longer than {longest:.1f} s"
    )
