"""A TCP proxy that breaks the connections going through it, by plan.

It knows nothing of Bayeux. What one read from the server returns is a *burst*, on loopback nearly always one
whole HTTP response or WebSocket frame; a plan is asked about every burst and may have it cut: some of its bytes
pass, never all, and then the connection is closed, reset, or falls silent. What was cut is kept in `breaks`.

    async with CuttingProxy(server.port) as proxy:
        proxy.arm(random_cuts(seed=7, chance=0.3))
        ...                                         # a client that uses proxy.port
        await proxy.broken(10)
        proxy.calm()
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from weakref import WeakSet

BURST_BYTES = 65536


class Way(enum.Enum):
    """A direction."""

    TO = "to the server"
    BACK = "back to the client"


class How(enum.Enum):
    """What happens to a connection once the kept bytes of its burst have passed."""

    FIN = "closed"
    RESET = "reset"
    STALL = "stalled"


@dataclass(frozen=True, slots=True)
class Cut:
    """An order to break a connection: `keep` is the fraction of the burst, in (0, 1), that still passes."""

    keep: float
    how: How

    def length(self, burst: bytes) -> int:
        """Return how many bytes pass: none of a single byte, else at least one and never all."""
        return min(max(1, int(len(burst) * self.keep)), len(burst) - 1)


@dataclass(frozen=True, slots=True)
class Break:
    """A connection that was broken: `part` is "headers" or "body" of an HTTP response, or else "frame"."""

    how: How
    part: str


Plan = Callable[[], Cut | None]


def random_cuts(seed: int, chance: float, hows: Sequence[How] = (How.FIN, How.RESET), limit: int | None = None) -> Plan:
    """Return a plan that cuts a burst with this chance, each of `hows` equally often, at most `limit` times.

    Half of the cuts fall into the first tenth of the burst, where the headers are, the others anywhere.
    """
    chooser = random.Random(seed)
    left = limit

    def plan() -> Cut | None:
        nonlocal left
        if left == 0 or chooser.random() >= chance:
            return None
        left = None if left is None else left - 1
        return Cut(chooser.random() * chooser.choice((0.1, 1.0)), chooser.choice(hows))

    return plan


def listed_cuts(*cuts: Cut | None) -> Plan:
    """Return a plan that gives these answers, one a burst, and lets everything pass afterwards."""
    answers = iter(cuts)
    return lambda: next(answers, None)


def _nothing() -> Cut | None:
    return None


def _part(burst: bytes, kept: int) -> str:
    if not burst.startswith(b"HTTP/1."):
        return "frame"
    return "body" if b"\r\n\r\n" in burst[:kept] else "headers"


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: lingering for no time makes the kernel drop what is unsent and say so."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class CuttingProxy:
    """Forward from a free port of 127.0.0.1 to `server_port`, and break what its plan says."""

    def __init__(self, server_port: int | None) -> None:
        self.server_port = server_port
        self.port = 0
        self.breaks: list[Break] = []
        self.accepted = 0
        self._plan: Plan = _nothing
        self._change = asyncio.Condition()
        self._connections: set[asyncio.Task[None]] = set()
        self._transports: WeakSet[asyncio.WriteTransport] = WeakSet()
        self._is_closing = False
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        self._is_closing = True
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for _ in range(
            3
        ):  # a connection that was accepted last comes within these, and what is aborted is gone with the next
            for transport in list(self._transports):  # also those whose other end does not take the rest
                transport.abort()
            await asyncio.sleep(0)

    def targets(self) -> Sequence[int | None]:
        """The ports of servers that a new connection is for: the first one that accepts it gets it."""
        return [self.server_port]

    async def passes(self, way: Way) -> None:
        """Wait until the next burst may pass in this direction: at once, unless a subclass knows better."""

    def arm(self, plan: Plan) -> None:
        """Ask this plan from the next burst on, on connections that exist and on new ones."""
        self._plan = plan

    def calm(self) -> None:
        """Cut nothing more; connections that have stalled stay so until their client gives up."""
        self._plan = _nothing

    def hang_up(self) -> None:
        """Close all connections. New ones go to what `server_port` says by then."""
        for connection in self._connections:
            connection.cancel()

    async def broken(self, count: int, limit_s: float = 10.0) -> None:
        """Wait until at least `count` connections have been broken since the start."""
        async with asyncio.timeout(limit_s), self._change:
            await self._change.wait_for(lambda: len(self.breaks) >= count)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._transports.add(writer.transport)
        if self._is_closing:
            writer.close()
            return
        connection = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.close())  # also if it was cancelled before it began

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            server = await self._open()
            if server is None:
                return  # the server is down: the client sees its connection closed
            server_reader, server_writer = server
            with contextlib.closing(server_writer):
                await self._carry(reader, writer, server_reader, server_writer)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> None:
        """Carry in both directions until one of them ends."""
        up = asyncio.create_task(self._carry_requests(reader, upstream))
        down = asyncio.create_task(self._carry_bursts(server, writer, upstream))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for port in self.targets():
            with contextlib.suppress(OSError):
                return await self._open_at(port)
        return None

    async def _open_at(self, port: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._transports.add(writer.transport)
        return reader, writer

    async def _carry_requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(BURST_BYTES):
                await self.passes(Way.TO)
                server.write(chunk)
                await server.drain()

    async def _carry_bursts(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, upstream: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while burst := await server.read(BURST_BYTES):
                await self.passes(Way.BACK)
                cut = self._plan()
                kept = len(burst) if cut is None else cut.length(burst)
                client.write(burst[:kept])
                await client.drain()
                if cut is not None:
                    await self._break(cut.how, _part(burst, kept), client, upstream)
                    return

    async def _break(self, how: How, part: str, client: asyncio.StreamWriter, upstream: asyncio.StreamWriter) -> None:
        self.breaks.append(Break(how, part))
        async with self._change:
            self._change.notify_all()
        if how is How.RESET:
            _reset(client)
            _reset(upstream)
        elif how is How.STALL:
            await asyncio.get_running_loop().create_future()  # until the client gives the connection up
