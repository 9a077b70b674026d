"""A TCP proxy that sends each request to the server twice, on two connections, and passes on the answers to one of them."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_BYTES = 65536


class DuplicatingProxy:
    """Whatever a client writes goes to the server twice; `duplicated` counts the bytes. It knows nothing of HTTP: each of the
    two connections carries the same requests in the same order. Which of two copies the server reads first is left to the
    machine, unless they go `in_turn`."""

    def __init__(self, server_port: int, *, passes_on: str = "first", in_turn: bool = False) -> None:
        """`passes_on`: whether the answers to the `first` or to the `second` copy reach the client. `in_turn`: the server has
        read each first copy before the second one leaves."""
        self._server_port = server_port
        self._passes_on = passes_on
        self._in_turn = in_turn
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.duplicated = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first_reader, first = await asyncio.open_connection("127.0.0.1", self._server_port)
        second_reader, second = await asyncio.open_connection("127.0.0.1", self._server_port)
        shown, hidden = first_reader, second_reader
        if self._passes_on == "second":
            shown, hidden = hidden, shown
        answers = [asyncio.create_task(_carry(shown, writer)), asyncio.create_task(_carry(hidden, None))]
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(_BYTES):
                    self.duplicated += len(data)
                    first.write(data)
                    await first.drain()
                    if self._in_turn:
                        await self._read_by_server()
                    second.write(data)
                    await second.drain()
        finally:
            for task in answers:
                task.cancel()
            for each in (first, second, writer):
                each.close()

    async def _read_by_server(self) -> None:
        """Wait until the server has read all that was sent before: it answers a connection that it accepted after that."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        with contextlib.closing(writer):
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_BYTES):
            if writer is not None:
                writer.write(data)
                await writer.drain()
