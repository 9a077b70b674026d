"""A worker: a server with an inherited listener that obeys its parent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crewel.broker.exchange import Peer
from crewel.broker.runtime import Runtime
from crewel.broker.writing.store_access import StoreAccess
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.siblings import Siblings
from crewel.storage.nodes import Node
from crewel.transports.http_fast import FastConnection
from crewel.transports.listener import Listener
from crewel.workers import control_channel
from crewel.workers.control_channel import Inheritance, Situation, Streams
from crewel.workers.handover import Handover
from crewel.workers.joined_metrics import joined


class Serving(NamedTuple):
    """The parts of a server that a worker has to do with."""

    runtime: Runtime
    access: StoreAccess
    listener: Listener
    connect: Callable[[], FastConnection]
    """Makes the protocol of a connection that is a WebSocket already."""
    registry: NodeRegistry
    figures: Callable[[], Awaitable[bytes]]
    """What this process counts, for Prometheus."""


@dataclass(eq=False)
class Worker(Siblings):
    """This process, as its parent sees it. Made from what the process has inherited, before the event loop runs."""

    inherited: Inheritance
    stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the server is to end: by a signal, or because the parent has ended."""
    _handover: Handover | None = field(default=None, init=False)
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
        """Take and give connections, and obey the parent."""

        async def adopt(connection: socket.socket, data: bytes, is_socket: bool) -> None:
            await server.listener.adopt(connection, data, partial(_upgraded, server.connect) if is_socket else None)

        runtime = server.runtime
        self._handover = handover = Handover(runtime, Path(self.inherited.directory), adopt, server.figures)
        handover.open()
        self._streams = await control_channel.streams(socket.socket(fileno=self.inherited.channel))
        obeying = runtime.spawn(self._obey(self._streams, server, handover))
        try:
            await self._is_informed.wait()
            yield
        finally:
            # First of all: from now on, the others wait for the take-over of what they cannot hand over.
            handover.close()
            obeying.cancel()

    async def _obey(self, streams: Streams, server: Serving, handover: Handover) -> None:
        reader, writer = streams
        own = os.getpid()
        async for fields in control_channel.lines(reader):
            told = Situation(**fields)
            handover.siblings = {number: pid for number, pid in told.serving.items() if pid != own}
            server.registry.leaving = frozenset(told.leaving)
            server.registry.gives_way = told.heir not in (None, own)
            server.registry.hurry()
            server.access.store.learn_of_owner(told.full, told.home, told.store_trouble)
            server.runtime.failing_workers, server.runtime.workers = told.failing, told.workers
            control_channel.send(writer, {"noted": told.number})
            self._is_informed.set()
        self._is_informed.set()
        self.stop.set()

    def move(self, peer: Peer, node: Node) -> bool | None:
        """Give the connection to another worker, if the node is one."""
        return self._handover is not None and self._handover.move(peer, node)

    async def join(self, figures: bytes) -> bytes:
        """Ask the other workers for theirs."""
        texts = {str(self.inherited.number): figures}
        if self._handover is not None:
            for number, pid in self._handover.siblings.items():
                texts[number] = await self._handover.figures_of(pid)
        return joined(texts)


def _upgraded(connect: Callable[[], FastConnection]) -> FastConnection:
    made = connect()
    made.has_upgraded()
    return made
