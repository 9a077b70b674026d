"""Watches from outside what a server says of itself, up to a hundred times a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

import redis

from tests.faults.load import wait_for
from tests.server_process import Server


class Health:
    """What `/health/ready` answered, whenever that changed: (time, status)."""

    def __init__(self, server: Server) -> None:
        self.changes: list[tuple[float, int]] = []
        self._port = server.port

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()

    @property
    def status(self) -> int:
        """The last answer."""
        return self.changes[-1][1] if self.changes else 0

    async def becomes(self, status: int, since: float, limit_s: float) -> None:
        """Wait until it has said so, at any time after `since`."""
        await wait_for(
            lambda: any(at > since and told == status for at, told in self.changes), limit_s, lambda: str(self.changes)
        )

    async def is_well(self, limit_s: float) -> None:
        """Wait until the server says that it is ready."""
        await wait_for(lambda: self.status == 200, limit_s, lambda: str(self.changes))

    async def _watch(self) -> None:
        while True:
            status = await self._ask()
            if status != self.status:
                self.changes.append((monotonic(), status))
            await asyncio.sleep(0.01)

    async def _ask(self) -> int:
        async with _connection(self._port) as (reader, writer):
            writer.write(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return int((await reader.readline()).split()[1])


@asynccontextmanager
async def _connection(port: int | None) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


def store_pid(server: Server) -> int:
    """The process of the store that the server has started."""
    (pid,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return int(pid)


def open_ids(client: redis.Redis) -> int:
    """How many messages are open in the store for all sessions together."""
    names = list(client.scan_iter("*{crewel}:s:*", count=1000))
    return sum(
        field.startswith((b"o:", b"i:"))
        for name in names
        for field in client.hkeys(name)  # type: ignore[union-attr]
    )
