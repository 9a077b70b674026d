"""WebSockets that aiohttp serves receive into the buffer of all sockets: little of a flood in a turn that has taken long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

import pytest
from aiohttp import web
from websockets.frames import Frame, Opcode

from crewel import server
from crewel.settings import Settings
from crewel.transports.endpoint import Endpoint
from crewel.transports.http_connection import Connection, mark_requests
from crewel.transports.shared_buffer import LEAST
from tests.transports.wires import Wire, receive

UPGRADE = (
    b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PING = Frame(Opcode.PING, bytes(122)).serialize(mask=True)
PONG = Frame(Opcode.PONG, bytes(122)).serialize(mask=False)
FLOOD = PING * (8 * LEAST // len(PING))


class Served:
    """An endpoint whose connections aiohttp has."""

    def __init__(self, endpoint: Endpoint, runner: web.AppRunner) -> None:
        self.endpoint = endpoint
        self.turns = endpoint.broker.runtime.turns
        self.connections: list[Connection] = []
        self._runner = runner

    async def socket(self) -> Wire:
        """Another one that has upgraded, and sent nothing yet."""
        assert self._runner.server is not None
        endpoint, wire = self.endpoint, Wire()
        more = {"caps": endpoint.caps, "arrivals": endpoint.arrivals, "loop": asyncio.get_running_loop()}
        connection = Connection(self._runner.server, header_timeout=10, **more)
        self.connections.append(connection)
        wire.set_protocol(connection)
        connection.connection_made(wire)
        connection.data_received(UPGRADE)
        while wire.protocol is connection:
            await asyncio.sleep(0)
        return wire


@pytest.fixture
async def served(settings: Settings) -> AsyncIterator[Served]:
    app = web.Application(middlewares=[mark_requests])
    broker = server.attach(app, settings)
    runner = web.AppRunner(app)
    await runner.setup()
    yield Served(app[server.ENDPOINT], runner)
    await runner.cleanup()
    await broker.close()


def send(wire: Wire, data: bytes) -> None:
    assert isinstance(wire.protocol, asyncio.BufferedProtocol)
    receive(wire.protocol, data)


def room(wire: Wire) -> int:
    """How much the socket takes at once."""
    assert isinstance(wire.protocol, asyncio.BufferedProtocol)
    return len(memoryview(wire.protocol.get_buffer(-1)))


async def answered(wire: Wire) -> bytes:
    wire.written.clear()
    while not wire.written:
        await asyncio.sleep(0)
    return b"".join(wire.written)


async def test_what_a_socket_of_aiohttp_receives_is_its_own(served: Served) -> None:
    first, second = await served.socket(), await served.socket()
    send(first, PING[:20])
    send(second, PING)
    assert await answered(second) == PONG
    send(first, PING[20:])
    assert await answered(first) == PONG


async def test_in_a_turn_that_has_taken_long_aiohttp_receives_little_of_a_flood(served: Served) -> None:
    first, second, third = [await served.socket() for _ in range(3)]
    calm = room(first)
    assert calm > len(FLOOD)
    served.turns.portion()

    served.turns.until = perf_counter() - 0.5 * served.turns.slice_s
    send(first, FLOOD)
    assert not first.is_read
    assert room(first) == calm, "the turn is over, and has not been for long"

    served.turns.until = perf_counter() - served.turns.slice_s
    send(second, FLOOD)
    assert room(second) == LEAST
    send(third, FLOOD[:LEAST])
    assert not third.is_read, "nothing more of it is received in this turn"
    assert (await answered(third)).startswith(PONG)
    assert room(third) == calm


async def test_the_connection_hears_of_its_writing_and_its_end(served: Served) -> None:
    wire = await served.socket()
    (connection,) = served.connections
    wire.protocol.pause_writing()
    assert connection.writing_paused
    wire.protocol.resume_writing()
    assert not connection.writing_paused
    assert wire.protocol.eof_received() is False, "a socket ends with either direction"
    assert len(served.endpoint.caps) == 1
    wire.protocol.connection_lost(None)
    assert len(served.endpoint.caps) == 0
