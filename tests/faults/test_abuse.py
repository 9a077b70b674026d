"""One abuser, and a well-behaved pair beside it: how long the pair's messages take, and how much memory the server has."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import pytest

from tests.conftest import StartServer
from tests.faults.abuser import KINDS
from tests.faults.conftest import IS_FULL, Tell
from tests.patience import slowness
from tests.server_process import ROOT, Server

SECONDS = 10.0 if IS_FULL else 0.8
P99_S = 0.05 if IS_FULL else 1.0
"""On the machine of the reference. A machine that runs other tests too is not measured, only told from one that stands."""
MEMORY = 400 * 10**6
PACE_S = 0.01
STRANGER = "203.0.113.7"


class Pair:
    """A publisher and a subscriber over WebSocket, a hundred messages a second."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self._url = f"ws://127.0.0.1:{port}/cometd"
        self._http = http
        self.delays: list[float] = []
        self.sent = 0

    async def _begin(self) -> tuple[aiohttp.ClientWebSocketResponse, str]:
        socket = await self._http.ws_connect(self._url, headers={"X-Forwarded-For": "198.51.100.1"})
        await socket.send_json([{"channel": "/meta/handshake", "id": "1", "version": "1.0"}])
        (reply,) = await socket.receive_json()
        connect = {"channel": "/meta/connect", "clientId": reply["clientId"], "connectionType": "websocket", "id": "2"}
        await socket.send_json([connect])
        await socket.receive_json()
        return socket, reply["clientId"]

    async def start(self) -> None:
        self._hearer, hearer = await self._begin()
        self._talker, self._talker_id = await self._begin()
        await self._hearer.send_json(
            [{"channel": "/meta/subscribe", "clientId": hearer, "id": "3", "subscription": "/pair"}]
        )
        await self._hearer.receive_json()
        self._connect = {"channel": "/meta/connect", "clientId": hearer, "connectionType": "websocket", "id": "4"}
        await self._hearer.send_json([self._connect])

    async def talk(self, seconds: float) -> list[float]:
        """The delays in seconds of the messages of so many seconds. All of them must come."""
        self.delays, self.sent = [], 0
        hearing = asyncio.create_task(self._hear())
        end = perf_counter() + seconds
        while perf_counter() < end:
            sent = {"channel": "/pair", "clientId": self._talker_id, "id": "9", "data": perf_counter()}
            await self._talker.send_str(json.dumps([sent]))
            self.sent += 1
            await asyncio.sleep(PACE_S)
        async with asyncio.timeout(10):
            while len(self.delays) < self.sent:
                await asyncio.sleep(0.01)
        hearing.cancel()
        return sorted(self.delays)

    async def _hear(self) -> None:
        while True:
            received: list[dict[str, Any]] = await self._hearer.receive_json()
            for each in received:
                if each["channel"] == "/pair":
                    self.delays.append(perf_counter() - each["data"])
                elif each["channel"] == "/meta/connect":
                    await self._hearer.send_json([self._connect])


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def peak(pid: int, most: list[int]) -> None:
    while True:
        most[0] = max(most[0], resident(pid))
        await asyncio.sleep(0.05)


async def abuse(server: Server, pair: Pair, kind: str, address: str) -> tuple[list[float], int]:
    """The pair's delays beside this abuse, and the server's largest memory in bytes."""
    arguments = (str(server.port), kind, str(SECONDS), address)
    command = (sys.executable, "-m", "tests.faults.abuser", *arguments)
    abuser = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert abuser.stdout is not None
    assert await abuser.stdout.readline() == b"begins\n"
    most = [0]
    watching = asyncio.create_task(peak(server.pid, most))
    try:
        delays = await pair.talk(SECONDS)
    finally:
        watching.cancel()
        assert await asyncio.wait_for(abuser.wait(), 30) == 0
    return delays, most[0]


@pytest.mark.parametrize("address", [STRANGER, ""], ids=["a stranger", "loopback"])
async def test_one_abuser_costs_a_well_behaved_pair_little(address: str, start_server: StartServer, tell: Tell) -> None:
    server = await asyncio.to_thread(start_server, "http.trusted_proxies=127.0.0.1")
    assert server.port is not None
    found: dict[str, tuple[float, int]] = {}
    slow = await asyncio.to_thread(slowness)
    async with aiohttp.ClientSession() as http:
        pair = Pair(server.port, http)
        await pair.start()
        quiet = await pair.talk(SECONDS)
        for kind in KINDS if IS_FULL or address else ():
            delays, memory = await abuse(server, pair, kind, address)
            found[kind] = delays[len(delays) * 99 // 100], memory
    slow = max(slow, await asyncio.to_thread(slowness))
    figures = ", ".join(f"{kind} {p99 * 1000:.0f} ms {memory // 10**6} MB" for kind, (p99, memory) in found.items())
    tell(
        f"{SECONDS:.0f} s each; p99 of the pair and memory of the server: alone"
        f" {quiet[len(quiet) * 99 // 100] * 1000:.0f} ms, {figures}; load {os.getloadavg()[0]:.1f}, a machine"
        f" {slow:.1f} times as slow as that of the limits"
    )
    assert not {kind: p99 for kind, (p99, _) in found.items() if p99 > P99_S * slow}
    assert not {kind: memory for kind, (_, memory) in found.items() if memory > MEMORY}
    assert "Traceback" not in server.stderr
