"""How a worker gives a client's connection to another one: the descriptor, and what was read of it, over a UNIX socket.

Each worker listens on a socket of its own, and each hand-over is one connection to it. It takes one byte for the kind, four for
the length of the data, the data, and the descriptor beside the first byte (SCM_RIGHTS). One byte comes back when the connection
is taken; without it, the connection stays where it came first. The request is processed by the one that has the connection in
the end, so once. Figures are asked for in the same way, and answered until the end of the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from crewel.broker.exchange import Peer
from crewel.broker.runtime import Runtime
from crewel.storage.nodes import Node

_BACKLOG: Final = 1024
_LIMIT_S: Final = 5.0
_AT_ONCE: Final = 65536
_HEAD: Final = struct.Struct("!BI")
_TAKEN: Final = b"!"

Adopt = Callable[[socket.socket, bytes, bool], Awaitable[None]]
"""Serves a connection of which this data was read; True: it is a WebSocket, and the data begins with its upgrade."""


class _Kind(IntEnum):
    REQUEST = 1
    SOCKET = 2
    FIGURES = 3


def socket_path(directory: Path, pid: int) -> Path:
    """Where the worker with this process listens."""
    return directory / f"{pid}.sock"


class Handover:
    """One worker's end: it gives and takes."""

    def __init__(
        self, runtime: Runtime, directory: Path, adopt: Adopt, figures: Callable[[], Awaitable[bytes]]
    ) -> None:
        self._runtime = runtime
        self._loop = runtime.loop
        self._directory = directory
        self._adopt = adopt
        self._figures = figures
        self._listening: socket.socket | None = None
        self.siblings: dict[str, int] = {}
        """Number of another worker -> its process."""

    def open(self) -> None:
        """Take connections from now on. Raises OSError."""
        self._listening = made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        made.bind(os.fspath(socket_path(self._directory, os.getpid())))
        made.listen(_BACKLOG)
        self._loop.add_reader(made, self._accept)

    def close(self) -> None:
        """Take no more. The others notice when they try."""
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    # To another worker

    def move(self, peer: Peer, node: Node) -> bool | None:
        """Give the connection of this peer to a node. None: it is a worker of the same parent, and takes none now."""
        process = node.process
        if process is None or process.pid == os.getpid() or not process.is_here:
            return False
        try:
            wire = self._reach(process.pid)
        except FileNotFoundError:
            return False
        except OSError:  # it ends, or too many wait for it
            return None
        if peer.part_with(partial(self._give, wire)):
            self._runtime.metrics.connections_moved += 1
            return True
        wire.close()
        return False

    def _reach(self, pid: int) -> socket.socket:
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire.setblocking(False)
        try:
            wire.connect(os.fspath(socket_path(self._directory, pid)))
        except OSError:
            wire.close()
            raise
        return wire

    def _give(self, wire: socket.socket, transport: Any, data: bytes, is_upgraded: bool) -> None:
        own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._runtime.spawn(self._send(wire, own, data, is_upgraded))

    async def _send(self, wire: socket.socket, own: socket.socket, data: bytes, is_upgraded: bool) -> None:
        """Send the connection; if the other worker dies before it has taken it, serve it here as if it had just come."""
        head = _HEAD.pack(_Kind.SOCKET if is_upgraded else _Kind.REQUEST, len(data))
        answer = b""
        with own:
            with wire, suppress(OSError):
                sent = socket.send_fds(wire, [head, data[:_AT_ONCE]], [own.fileno()])
                await self._loop.sock_sendall(wire, data[sent - len(head) :])
                answer = await self._loop.sock_recv(wire, len(_TAKEN))
            if not answer:
                await self._adopt(own.dup(), data, is_upgraded)

    # From another worker

    def _accept(self) -> None:
        while self._listening is not None:
            try:
                wire, _ = self._listening.accept()
            except OSError:  # no more, or no descriptors: then they wait
                return
            wire.setblocking(False)
            self._runtime.spawn(self._take(wire))

    async def _take(self, wire: socket.socket) -> None:
        with wire, suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LIMIT_S):
                await _readable(self._loop, wire)
                data, descriptors, _, _ = socket.recv_fds(wire, _AT_ONCE, 1)
                connections = [socket.socket(fileno=each) for each in descriptors]
                try:
                    await self._do(wire, data, connections)
                finally:
                    for each in connections:  # those that nothing has taken
                        each.close()

    async def _do(self, wire: socket.socket, data: bytes, connections: list[socket.socket]) -> None:
        if data[:1] == bytes([_Kind.FIGURES]):
            await self._loop.sock_sendall(wire, await self._figures())
            return
        if len(data) < _HEAD.size or not connections:
            return  # the other worker has died
        kind, length = _HEAD.unpack_from(data)
        parts = [data[_HEAD.size :]]
        missing = length - len(parts[0])
        while missing > 0:
            part = await self._loop.sock_recv(wire, _AT_ONCE)
            if not part:
                return
            parts.append(part)
            missing -= len(part)
        await self._loop.sock_sendall(wire, _TAKEN)
        connection = connections.pop()
        connection.setblocking(False)
        await self._adopt(connection, b"".join(parts), kind == _Kind.SOCKET)

    # Figures

    async def figures_of(self, pid: int) -> bytes:
        """What another worker counts, as `/metrics` has it; empty if it does not answer."""
        parts = []
        with suppress(OSError, TimeoutError), self._reach(pid) as wire:
            async with asyncio.timeout(_LIMIT_S):
                await self._loop.sock_sendall(wire, bytes([_Kind.FIGURES]))
                while part := await self._loop.sock_recv(wire, _AT_ONCE):
                    parts.append(part)
            return b"".join(parts)
        return b""


async def _readable(loop: asyncio.AbstractEventLoop, wire: socket.socket) -> None:
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(wire, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        loop.remove_reader(wire)
