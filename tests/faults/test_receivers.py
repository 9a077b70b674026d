"""Receivers that take nothing while very many messages arrive for them: one that never acknowledges, one that never reads,
and two that are away. The store's memory stays within its bounds, whoever keeps up notices nothing, and each gets what the
policy of its queue kept."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.faults.flood import CHANNEL
from tests.functional.bayeux import Client
from tests.functional.frames import SocketClient
from tests.functional.wire import figures, resident, until
from tests.server_process import ROOT, Server
from tests.store_process import StoreProcess

MIB = 1 << 20
COUNT = volume(5_000_000, 20_000)
LIMIT_S = 3000 if IS_FULL else 100
LOG_MAX = (16 if IS_FULL else 1) * MIB
KEPT = 500
LETTERS = 2000
FACTS_BYTES = 2 * MIB
"""A fact names all messages that one commit has ended, as many as the machine is slow: so the bound is in bytes."""
ENTRY = 1024  # bytes of a message in the store, all told: 300 of its own, and what keeps it
LOGGED = 300  # bytes of a message in the log
SETS = (
    "bayeux.timeout_ms=1000",
    "bayeux.max_interval_ms=3600000",
    "bayeux.max_queue_messages=50000",
    "bayeux.max_message_bytes=1048576",
    f"storage.log_max_bytes={LOG_MAX}",
    f"storage.facts_max_bytes={FACTS_BYTES}",
    f"delivery.dead_letters_max={LETTERS}",
    f"delivery.queue_max_entries={KEPT}",
)


class Lazy(Client):
    """A reliable client over plain sockets that acknowledges when it is told to, and takes what it is owed in the end."""

    def begin(self, **session: Any) -> Lazy:
        self.handshake(ext={"ack": True, "session": session} if session else {"ack": True})
        self.subscribe(CHANNEL)
        return self

    def take_all(self) -> list[int]:
        """The numbers of all messages that wait, in order and each once."""
        numbers: dict[int, None] = {}
        batch = 0
        while True:
            *messages, reply = self.connect(ext={"ack": batch})
            assert reply["successful"] is True, reply
            batch = reply["ext"]["ack"]
            numbers.update(dict.fromkeys(message["data"]["n"] for message in messages))
            if not messages:
                return list(numbers)


@pytest.mark.parametrize("count", [COUNT])
async def test_receivers_that_take_nothing(
    count: int, store: StoreProcess, start_server: StartServer, tell: Tell
) -> None:
    server = await asyncio.to_thread(start_server, *SETS, f"storage.url={store.url}")
    absent = {"persistent": True, "queue": {"maxEntries": KEPT}}
    oldest = Lazy(server).begin(name="client/ann/1", **absent)
    newest = Lazy(server).begin(
        name="client/joe/1", persistent=True, queue={**absent["queue"], "onOverflow": "dropOldest"}
    )
    silent = Lazy(server).begin()
    deaf = SocketClient(server)
    deaf.handshake(ext={"ack": True})
    deaf.subscribe(CHANNEL)
    deaf.ask_connect(ext={"ack": 0})

    await asyncio.to_thread(Client(server).start().publish, "/elsewhere", 0, ext={"publish": {"persistent": True}})
    watch = asyncio.create_task(_watch(store, server))
    is_over = asyncio.Event()
    holding = asyncio.create_task(_never_acknowledge(silent, is_over))
    outcome = await _flood(server, count)
    is_over.set()
    watch.cancel()
    await asyncio.wait([watch, holding])
    (before, most), (before_server, most_server), (_, most_log) = _watched

    assert outcome["received"] == count, outcome
    assert (outcome["wrong"], outcome["duplicates"], outcome["refused"]) == (0, 0, 0), outcome
    # Facts and log are looked at once a second, and may have twice as much in between; the last are buffers of connections.
    bound = before + 2 * LOG_MAX + 2 * FACTS_BYTES + (4 * KEPT + LETTERS) * ENTRY + 8 * MIB
    assert most < bound, f"the store used {most / MIB:.1f} MiB, allowed were {bound / MIB:.1f}"

    # It is looked at once a second, and trimmed up to the commit before.
    meanwhile = int(1.5 * count / outcome["seconds"]) * LOGGED
    allowed = 2 * LOG_MAX + max(meanwhile, MIB)
    assert most_log < allowed, f"the log took {most_log / MIB:.1f} MiB, allowed were {allowed / MIB:.1f}"

    first = list(range(1, KEPT + 1))
    assert await asyncio.to_thread(oldest.take_all) == first
    assert await asyncio.to_thread(silent.take_all) == first
    assert await asyncio.to_thread(newest.take_all) == list(range(count - KEPT + 1, count + 1))
    with store.client() as client:
        (dead,) = client.scan_iter("*{crewel}:dead", count=1000)
        assert client.xlen(dead) <= LETTERS
    await asyncio.to_thread(until, lambda: _all_ended(server, count))
    tell(
        f"{count:,} messages in {outcome['seconds']:.0f} s past one that never acknowledged, one that never read and two"
        f" that were away; the store used {before / MIB:.1f} MiB before and {most / MIB:.1f} MiB at most (allowed"
        f" {bound / MIB:.1f}), its log"
        f" {most_log / MIB:.1f}; the server grew by {(most_server - before_server) / MIB:.0f} MiB; who kept up got all in"
        f" order, the others what their policies kept"
    )


_watched: list[tuple[int, int]] = []


async def _watch(store: StoreProcess, server: Server) -> None:
    """Look at the memory of both until cancelled."""
    with store.client() as client:
        (log,) = client.scan_iter("*{crewel}:log", count=1000)

        def used() -> tuple[int, int, int]:
            return int(client.info("memory")["used_memory"]), resident(server), int(client.memory_usage(log) or 0)

        begun = most = await asyncio.to_thread(used)
        try:
            while True:
                await asyncio.sleep(0.1)
                now = await asyncio.to_thread(used)
                most = tuple(map(max, most, now))
        finally:
            _watched[:] = zip(begun, most, strict=True)


async def _never_acknowledge(client: Lazy, is_over: asyncio.Event) -> None:
    """Connect again and again, and acknowledge nothing."""
    while not is_over.is_set():
        await asyncio.to_thread(client.connect, ext={"ack": 0})
        await asyncio.sleep(0.5)


async def _flood(server: Server, count: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.flood",
        str(server.port),
        str(count),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    outcome: dict[str, Any] = json.loads(output)
    return outcome


def _all_ended(server: Server, count: int) -> bool:
    """The ledger in figures: each of five receivers had every message, and each message ended once for each, or waits."""
    now = figures(server)
    ended = sum(value for name, value in now.items() if name.startswith("crewel_ended_total"))
    return ended + now["crewel_waiting"] == 5 * count
