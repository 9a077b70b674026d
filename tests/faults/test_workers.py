"""Workers of one server are killed and replaced at random moments under load: what was answered reaches all subscribers, and no
client has to shake hands or subscribe again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic

from crewel.client import Client
from crewel.client.states import State, Transition
from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import PATTERN, Load, wait_for
from tests.functional.wire import figures
from tests.server_process import Server, processes

SETS = ("cluster.workers=2", "bayeux.timeout_ms=1000")
GOES_ON_S = 20.0
STARTS_S = 60.0
KILLS = 100 if IS_FULL else 2
HERD = 195 if IS_FULL else 20
REPLACEMENTS = 10 if IS_FULL else 1


async def serving(server: Server, but: set[int]) -> list[int]:
    """The workers, once there are two without any of these processes, and both serve and know each other."""
    pids: list[int] = []

    def are_two() -> bool:
        pids[:] = processes(server)
        if len(pids) != 2 or but & set(pids):
            return False
        with suppress(OSError, EOFError):  # the worker that accepted it has gone
            found = figures(server)
            return all(found.get(f'crewel_nodes{{worker="{number}"}}') == 2 for number in (1, 2))
        return False

    async with asyncio.timeout(STARTS_S):
        while not await asyncio.to_thread(are_two):
            await asyncio.sleep(0.05)
    return pids


async def test_what_was_answered_survives_kills_of_workers(
    start_server: StartServer, load: Load, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(7)
    server = await asyncio.to_thread(start_server, *SETS, "storage.url=", f"storage.data_dir={tmp_path / 'own'}")
    load.log = lambda: server.stderr
    assert server.port is not None
    await load.begin(server.port, subscribers=2 if IS_FULL else 1)
    slowest = 0.0
    for _ in range(KILLS):
        await load.answers(20, GOES_ON_S)
        workers = await serving(server, set())
        await asyncio.sleep(rng.uniform(0, 0.5))
        victim = rng.choice(workers)
        os.kill(victim, signal.SIGKILL)
        slowest = max(slowest, await load.goes_on(monotonic(), GOES_ON_S))
        await serving(server, {victim})
    await load.settle()
    ledger = load.ledger
    tell(
        f"{KILLS} kills of one of two workers; {ledger.answered_count} publishes answered, {len(ledger.received)} subscribers,"
        f" {ledger.duplicates} duplicates; all clients went on after {slowest:.1f} s at most"
    )


async def test_replacing_all_workers_loses_nothing(start_server: StartServer, load: Load, tell: Tell) -> None:
    # The herd shares the processors with the server, and falls behind while workers start: its queues are not to overflow.
    room = "delivery.queue_max_entries=1000000"
    server = await asyncio.to_thread(start_server, *SETS, "bayeux.max_interval_ms=60000", room)
    load.log = lambda: server.stderr
    assert server.port is not None
    ids: list[set[str]] = [set() for _ in range(HERD)]
    steps: list[list[Transition]] = [[] for _ in range(HERD)]
    slowest = 0.0
    async with AsyncExitStack() as stack:

        async def join(number: int) -> None:
            transport = ("long-polling", "websocket")[number % 2]
            client = Client(server.url, transports=[transport], open_timeout=60, on_state=steps[number].append)
            await stack.enter_async_context(client)
            await client.subscribe(PATTERN, lambda message: ids[number].add(str(message.id)))

        await asyncio.gather(*map(join, range(HERD)))
        await load.begin(server.port)
        for _ in range(REPLACEMENTS):
            await load.answers(20, GOES_ON_S)
            before = set(await serving(server, set()))
            os.kill(server.pid, signal.SIGHUP)
            await serving(server, before)
            slowest = max(slowest, await load.goes_on(monotonic(), GOES_ON_S))
        longest = max(each.longest_wait for each in load.publishers)
        await load.settle(30)
        wanted = {each.id for each in load.ledger.published.values() if each.id is not None and not each.to}
        await wait_for(lambda: all(wanted <= each for each in ids), 60, load.report)
    assert not any(step.new is State.HANDSHAKING for each in steps for step in each[1:])
    tell(
        f"{REPLACEMENTS} times all workers replaced; {HERD} Python clients and 5 others, {len(wanted)} publishes answered; all"
        f" clients went on after {slowest:.1f} s at most, and no publisher waited longer than {longest:.1f} s"
    )
