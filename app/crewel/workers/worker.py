"""A worker: a server with an inherited listener that obeys its parent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from crewel.broker.runtime import Runtime
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import NodeFailed, StoreUnavailable
from crewel.nodes.calls import Calls
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.node_requests import FIGURES, Exposition, Nothing
from crewel.workers import control_channel
from crewel.workers.control_channel import Inheritance, Situation, Streams
from crewel.workers.joined_metrics import joined


class Serving(NamedTuple):
    """The parts of a server that a worker has to do with."""

    runtime: Runtime
    access: StoreAccess
    registry: NodeRegistry
    calls: Calls
    figures: Callable[[], Awaitable[bytes]]
    """What this process counts, for Prometheus."""


@dataclass(eq=False)
class Worker:
    """This process, as its parent sees it. Made from what the process has inherited, before the event loop runs."""

    inherited: Inheritance
    stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the server is to end: by a signal, or because the parent has ended."""
    _others: dict[str, int] = field(default_factory=dict, init=False)
    """Number of another worker -> its process."""
    _server: Serving | None = field(default=None, init=False)
    _is_informed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _streams: Streams | None = field(default=None, init=False)

    def listeners(self) -> list[socket.socket]:
        """The sockets that all workers listen on."""
        found = [socket.socket(fileno=each) for each in self.inherited.listeners]
        for each in found:
            each.setblocking(False)
        return found

    def is_ready(self, url: str) -> None:
        """The server serves at this URL."""
        assert self._streams is not None
        control_channel.send(self._streams[1], {"ready": url})

    @asynccontextmanager
    async def serving(self, server: Serving) -> AsyncIterator[None]:
        """Obey the parent, and say what this process counts."""

        async def counted(_: Nothing) -> Exposition:
            return Exposition((await server.figures()).decode())

        self._server = server
        server.calls.serve(FIGURES, counted)
        self._streams = await control_channel.streams(socket.socket(fileno=self.inherited.channel))
        obeying = server.runtime.spawn(self._obey(self._streams, server))
        try:
            await self._is_informed.wait()
            yield
        finally:
            obeying.cancel()

    async def _obey(self, streams: Streams, server: Serving) -> None:
        reader, writer = streams
        own = os.getpid()
        try:
            async for fields in control_channel.lines(reader):
                told = Situation.read(fields)
                self._others = {number: pid for number, pid in told.serving.items() if pid != own}
                server.registry.leaving = frozenset(told.leaving)
                server.registry.gives_way = told.heir not in (None, own)
                server.registry.hurry()
                server.access.store.learn_of_owner(told.full, told.home, told.store_trouble)
                server.runtime.failing_workers, server.runtime.workers = told.failing, told.workers
                control_channel.send(writer, {"noted": told.number})
                self._is_informed.set()
        finally:
            self.stop.set()  # also if it cannot read what its parent says: then the parent sees it end

    async def join(self, figures: bytes) -> bytes:
        """Make of the figures of this process those of all workers that answer, for Prometheus."""
        server = self._server
        assert server is not None  # whatever asks has come by its listener, which opens later
        processes = ((each.process, each.token) for each in server.registry.others())
        tokens = {process.pid: token for process, token in processes if process is not None and process.is_here}
        others = {number: tokens[pid] for number, pid in self._others.items() if pid in tokens}
        texts = await asyncio.gather(*(_figures_of(token, server.calls) for token in others.values()))
        by_worker = {str(self.inherited.number): figures, **dict(zip(others, texts, strict=True))}
        return await asyncio.to_thread(joined, by_worker)  # it takes 30 microseconds for each sample


async def _figures_of(token: str, calls: Calls) -> bytes:
    """What the worker with this token counts; empty if it does not answer."""
    with suppress(NodeFailed, StoreUnavailable):
        return (await calls.ask(token, FIGURES, Nothing())).text.encode()
    return b""
