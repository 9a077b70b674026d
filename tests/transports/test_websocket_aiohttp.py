"""Upgrades that aiohttp reads: it answers them, and lets go of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf

import orjson
import pytest
from aiohttp import web
from websockets.frames import Frame, Opcode

from crewel import server
from crewel.settings import Settings, load
from crewel.transports.endpoint import Endpoint
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_connection import Connection, mark_requests
from crewel.transports.http_fast import FastConnection
from crewel.transports.websocket import Socket
from tests.transports.wires import Wire, receive

UPGRADE = (
    b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n"
)
PING = Frame(Opcode.PING, b"hello").serialize(mask=True)
PONG = Frame(Opcode.PONG, b"hello").serialize(mask=False)
HANDSHAKE = Frame(
    Opcode.TEXT,
    b'[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"],"id":"1"}]',
).serialize(mask=True)


class Served:
    """An endpoint whose connections aiohttp has."""

    def __init__(self, endpoint: Endpoint, runner: web.AppRunner) -> None:
        self.endpoint = endpoint
        assert runner.server is not None
        self.http = runner.server
        self.wires: list[Wire] = []
        endpoint.arrivals.slice_s = inf  # tests make many in one turn
        self.lane = FastLane(endpoint, lambda: Connection(self.http, loop=asyncio.get_running_loop()))

    def connection(self) -> tuple[FastConnection, Wire]:
        wire = Wire()
        self.wires.append(wire)
        connection = FastConnection(self.lane)
        wire.set_protocol(connection)
        connection.connection_made(wire)
        return connection, wire

    async def socket(self, behind: bytes = b"", *lines: bytes) -> Wire:
        """A connection that has upgraded."""
        connection, wire = self.connection()
        connection.data_received(UPGRADE % b"".join(line + b"\r\n" for line in lines) + behind)
        await let_go(self, wire)
        return wire


async def let_go(served: Served, wire: Wire) -> None:
    """Wait until aiohttp has nothing more to do with the connection."""
    while not isinstance(wire.protocol, Socket) or served.http.connections:
        await asyncio.sleep(0)


@pytest.fixture
def settings() -> Settings:
    return load(None, ["bayeux.extensions=", "storage.enabled=false", "http.fast_lane=false"])


@pytest.fixture
async def served(settings: Settings) -> AsyncIterator[Served]:
    app = web.Application(middlewares=[mark_requests])
    broker = server.attach(app, settings)
    runner = web.AppRunner(app)
    await runner.setup()
    served = Served(app[server.ENDPOINT], runner)
    yield served
    for wire in served.wires:
        wire.protocol.connection_lost(None)
    await served.lane.close(0)
    await runner.cleanup()
    await broker.close()


def send(wire: Wire, data: bytes) -> None:
    assert isinstance(wire.protocol, Socket)
    receive(wire.protocol, data)


async def test_no_task_and_no_request_is_left_of_an_upgrade(served: Served) -> None:
    before = len(asyncio.all_tasks())
    wires = [await served.socket() for _ in range(3)]
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    assert len(served.endpoint.caps) == 3
    for wire in wires:
        assert not wire.is_closed
        send(wire, PING)
        assert wire.written.pop() == PONG
        wire.protocol.connection_lost(None)
    assert len(served.endpoint.caps) == 0
    assert not served.endpoint.sockets.watch.sockets


@pytest.mark.parametrize("pieces", [1, 2])
async def test_what_came_behind_the_head_is_read(served: Served, pieces: int) -> None:
    connection, wire = served.connection()
    connection.data_received(UPGRADE % b"" + HANDSHAKE[:9])
    if pieces == 2:
        connection.data_received(HANDSHAKE[9:])
    await let_go(served, wire)
    if pieces == 1:
        send(wire, HANDSHAKE[9:])
    head, frame = wire.written
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert orjson.loads(frame[frame.index(b"[{") :])[0]["successful"] is True


async def test_headers_that_stand_twice_are_kept(served: Served) -> None:
    wire = await served.socket(b"", b"X-Two: 1", b"X-Two: 2", b"Cookie: BAYEUX_BROWSER=b1")
    socket = wire.protocol
    assert isinstance(socket, Socket)
    assert socket.headers.getall("X-Two") == ["1", "2"]  # type: ignore[attr-defined]
    assert socket.browser == "b1"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"Content-Length: 5", 400),
        (b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", 400),
        (b"Sec-WebSocket-Version: 8", 400),
        (b"Sec-WebSocket-Protocol: \xff", 400),
        (b"Upgrade: \xff", 400),
        (b"Upgrade: other", 426),
    ],
)
async def test_an_upgrade_that_is_wrong_is_refused(served: Served, line: bytes, status: int) -> None:
    connection, wire = served.connection()
    connection.data_received(UPGRADE % (line + b"\r\n"))
    while not wire.written:
        await asyncio.sleep(0)
    assert wire.written[0].startswith(b"HTTP/1.1 %d " % status)
    assert not served.endpoint.sockets.watch.sockets
