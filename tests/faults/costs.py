"""What a stranger's requests cost others: the processor time that a server spends between another client's request and the
moment when it handles that. Other work on the machine makes none longer.

    costs = await attacked(server, "batches", sessions=100, seconds=5, seed=1)
    assert costs.trouble() == ""

The server has to run `SERVICE`, and to trust `X-Forwarded-For`: `start_server(*SETS, service=SERVICE)`. The attacks are those
of `tests.faults.attacks`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

from tests.faults.abuser import Abuser
from tests.server_process import ROOT, Server

SERVICE: Final = "tests.faults.clock"
SETS: Final = ("http.trusted_proxies=127.0.0.1", "bayeux.max_interval_ms=600000")
STRANGER: Final = "203.0.113.7"
WITNESS: Final = "198.51.100.1"
TURN_S: Final = 0.02
"""What others wait at most, on the machine of the reference (`tests.patience`)."""
MEMORY: Final = 400 * 10**6
ANSWER_S: Final = 5.0
"""When a persistent publish has its answer, at the latest: the rest of what it takes is the store's, and the machine's."""
_PACE_S: Final = 0.005
_STORED: Final = 20  # one of so many requests is a persistent publish
_READY_S: Final = 120.0


@dataclass
class Costs:
    """What was seen of a server."""

    turns: list[float] = field(default_factory=list)
    """Processor seconds of the server until each request was handled."""
    answers: list[float] = field(default_factory=list)
    """The same until its answer was read, which on a busy machine is later."""
    stored: list[float] = field(default_factory=list)
    """Seconds by the clock until each persistent publish was answered."""
    worked: list[float] = field(default_factory=list)
    """Processor seconds of the server meanwhile."""
    refused: int = 0
    """Publishes of the witness that were refused, or not answered."""
    memory: int = 0
    """The largest that the server was, in bytes."""

    def turn(self, share: float) -> float:
        """The processor seconds that this share of the requests did not exceed."""
        ordered = sorted(self.turns)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]

    def trouble(self, *, share: float = 0.99, work_s: float = 1.0, slow: float = 1.0) -> str:
        """What is beyond the bounds, or empty. `work_s`: `Attack.work_s`. Bounds of time are `slow` times as long."""
        found = []
        if self.turn(share) > TURN_S * slow:
            found.append(f"others wait {self.turn(share) * 1000:.0f} ms of processor")
        if self.refused:
            found.append(f"{self.refused} publishes of another client refused")
        if max(self.stored, default=0.0) > ANSWER_S * slow:
            found.append(f"a persistent publish of another client waits {max(self.stored):.1f} s")
        if max(self.worked, default=0.0) > work_s * slow:
            found.append(f"a persistent publish of another client waits {max(self.worked):.1f} s of processor")
        if self.memory > MEMORY:
            found.append(f"{self.memory // 10**6} MB")
        return "; ".join(found)

    def __str__(self) -> str:
        median, most, worst = (self.turn(share) * 1000 for share in (0.5, 0.99, 1.0))
        stored = max(self.stored, default=0.0)
        return (
            f"{median:.1f}/{most:.1f}/{worst:.1f} ms of {len(self.turns)}, stored within {stored:.1f} s"
            f" ({max(self.worked, default=0.0):.2f} s of processor),"
            f" {self.refused} refused, {self.memory // 10**6} MB"
        )


class Witness:
    """A well-behaved client that asks one thing after the other."""

    def __init__(self, server: Server, seed: int, address: str = WITNESS) -> None:
        assert server.port is not None
        self._client = Abuser(server.port, address)
        self._clock = (~server.pid << 3) | 2  # of its process: clock_getcpuclockid(3)
        self._random = random.Random(seed)

    async def start(self) -> None:
        self._socket = await self._client.socket(reads=False)
        self._storing = await self._client.socket(reads=False)

    def close(self) -> None:
        for socket in (self._socket, self._storing):
            socket.writer.close()

    async def watch(self, costs: Costs) -> None:
        """Ask until this is cancelled."""
        storing: asyncio.Task[None] | None = None
        try:
            while True:
                await self._ask(costs)
                if (storing is None or storing.done()) and self._random.randrange(_STORED) == 0:
                    storing = asyncio.create_task(self._store(costs))
                await asyncio.sleep(self._random.uniform(0, 2 * _PACE_S))
        finally:
            if storing is not None:
                await storing

    async def _ask(self, costs: Costs) -> None:
        socket = self._socket
        asked = [socket.message("/service/clock", data=0), socket.message("/witness", data=1)]
        before = time.clock_gettime(self._clock)
        await socket.send(*asked)
        handled = 0.0
        answered: set[str] = set()
        while len(answered) < len(asked):
            for each in await socket.receive():
                if each["channel"] == "/service/clock" and "data" in each:
                    handled = each["data"]
                elif each.get("id") in {one["id"] for one in asked}:
                    answered.add(each["id"])
                    costs.refused += not each["successful"]
        costs.answers.append(time.clock_gettime(self._clock) - before)
        costs.turns.append(handled - before)

    async def _store(self, costs: Costs) -> None:
        began, before = perf_counter(), time.clock_gettime(self._clock)
        ext = {"publish": {"persistent": True}}
        await self._storing.send(self._storing.message("/witness/stored", data=1, ext=ext))
        try:
            async with asyncio.timeout(30):
                (reply,) = await self._storing.receive()
        except TimeoutError:
            costs.refused += 1
            raise
        costs.stored.append(perf_counter() - began)
        costs.worked.append(time.clock_gettime(self._clock) - before)
        costs.refused += not reply["successful"]


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def peak(pid: int, costs: Costs) -> None:
    """Watch the memory of a process."""
    while True:
        costs.memory = max(costs.memory, resident(pid))
        await asyncio.sleep(0.05)


async def attacked(
    server: Server, attack: str, *, sessions: int, seconds: float, seed: int, address: str = STRANGER
) -> Costs:
    """What another client sees of the server while a stranger does this to it, with so many sessions."""
    costs = Costs()
    witness = Witness(server, seed)
    await witness.start()
    arguments = (str(server.port), attack, str(seconds), address, str(sessions), str(seed))
    command = (sys.executable, "-m", "tests.faults.attacks", *arguments)
    stranger = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert stranger.stdout is not None
    watching = asyncio.create_task(peak(server.pid, costs))
    asking: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(_READY_S):
            assert await stranger.stdout.readline() == b"ready\n"
        asking = asyncio.create_task(witness.watch(costs))
        async with asyncio.timeout(seconds + 60):
            assert await stranger.wait() == 0
    finally:
        if stranger.returncode is None:
            stranger.kill()
            await stranger.wait()
        for task in (watching, asking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        witness.close()
    return costs
