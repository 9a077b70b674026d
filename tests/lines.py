"""TCP lines that fail: a balancer without stickiness, and connections that fall silent, in one direction too, or are slow."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from types import TracebackType
from typing import Final, Self

from tests.cutting_proxy import CuttingProxy, Way

_SENT_AGAIN_S = 0.2
"""What a lost packet costs: TCP sends it again after this time at the earliest."""


class Balancer(CuttingProxy):
    """Takes each connection to one of several servers; to another one if that does not listen."""

    def __init__(self, ports: Callable[[], Iterable[int]], rng: random.Random | None = None) -> None:
        """`ports` gives those that may be tried, which are taken at random; in turn without random numbers."""
        super().__init__(None)
        self._ports = ports
        self._rng = rng

    def targets(self) -> Sequence[int]:
        """The ports to try, in this order."""
        ports = list(self._ports())
        if self._rng is not None:
            self._rng.shuffle(ports)
            return ports
        first = self.accepted % max(len(ports), 1)
        return ports[first:] + ports[:first]


class CheckedBalancer(Balancer):
    """One that asks each server every second whether it is ready, and does as the documented HAProxy: a server that fails twice
    gets no connection, and those that it has are closed."""

    _EVERY_S: Final = 1.0
    _FALL: Final = 2

    async def __aenter__(self) -> Self:
        self._fails: Counter[int] = Counter()
        self._server_of: dict[asyncio.Task[None], int] = {}
        self._checks = asyncio.create_task(self._check_forever())
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._checks.cancel()
        await super().__aexit__(kind, error, trace)

    def targets(self) -> Sequence[int]:
        """Those that are not down, or all."""
        ports = super().targets()
        return [each for each in ports if self._fails[each] < self._FALL] or ports

    async def _open_at(self, port: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        task = asyncio.current_task()
        if task is not None and port is not None:
            self._server_of[task] = port
            task.add_done_callback(lambda done: self._server_of.pop(done, None))
        return await super()._open_at(port)

    async def _check_forever(self) -> None:
        while True:
            ports, began = list(self._ports()), asyncio.get_running_loop().time()
            checks = await asyncio.gather(*map(self._is_ready, ports))
            for port, is_ready in zip(ports, checks, strict=True):
                self._fails[port] = 0 if is_ready else self._fails[port] + 1
                if self._fails[port] == self._FALL:
                    for task in [task for task, at in self._server_of.items() if at == port]:
                        task.cancel()
            await asyncio.sleep(began + self._EVERY_S - asyncio.get_running_loop().time())

    async def _is_ready(self, port: int) -> bool:
        with suppress(OSError, TimeoutError, IndexError):
            async with asyncio.timeout(self._EVERY_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with closing(writer):
                    writer.write(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).split()[1] == b"200"
        return False


class Line(CuttingProxy):
    """A line to one server. What is silenced is kept, and arrives when the line is healed, as after a partition."""

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__(port)
        self._rng = rng
        self._silent: frozenset[Way] = frozenset()
        self._heard = asyncio.Event()
        self._delay_s = self._loss = 0.0

    def silence(self, *ways: Way) -> None:
        """Let nothing pass in these directions any more; without any, in both."""
        self._silent = frozenset(ways or Way)
        self._heard.clear()

    def degrade(self, delay_s: float, loss: float) -> None:
        """Let each burst take so long, and be lost, and sent again, with this probability."""
        self._delay_s, self._loss = delay_s, loss

    def heal(self) -> None:
        """Let all pass at once again."""
        self._silent = frozenset()
        self._delay_s = self._loss = 0.0
        self._heard.set()

    async def passes(self, way: Way) -> None:
        """Wait until a burst may pass."""
        while way in self._silent:
            await self._heard.wait()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
            while self._rng.random() < self._loss:
                await asyncio.sleep(_SENT_AGAIN_S)
