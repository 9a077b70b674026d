"""Connections that aiohttp reads, without a network: a peer that goes while its body is not read is no error of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from crewel.errors import PayloadError
from crewel.fair_turns import FairTurns
from crewel.metrics import Metrics
from crewel.settings import Settings
from crewel.transports.bodies import read_body
from crewel.transports.connection_caps import ConnectionCaps
from crewel.transports.http_connection import Connection, mark_requests
from tests.transports.wires import Wire

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def refuse(_: web.Request) -> web.Response:
    """As a body is that comes too slowly, or is too large: answered before its end."""
    response = web.Response(status=408)
    response.force_close()
    return response


async def opened(
    settings: Settings, handler: Handler = refuse, *, slice_s: float = inf, **options: Any
) -> tuple[Connection, Wire]:
    app, wire = web.Application(middlewares=[mark_requests]), Wire()
    app.router.add_route("*", "/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    assert runner.server is not None
    loop = asyncio.get_running_loop()
    arrivals = FairTurns(loop)
    arrivals.slice_s = slice_s
    caps = ConnectionCaps(settings, Metrics(), loop)
    connection = Connection(runner.server, header_timeout=10, caps=caps, arrivals=arrivals, loop=loop, **options)
    connection.connection_made(wire)
    return connection, wire


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def lose(connection: Connection) -> None:
    connection.connection_lost(None)


def cut_off(connection: Connection) -> None:
    connection._cut_off()  # it has not sent the head of another request in time
    assert connection.transport is None


@pytest.mark.parametrize("end", [lose, cut_off])
@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"Content-Length: 300\r\n\r\n[{", b" "),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\n[{\r\n", b"1\r\n \r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n20\r\n[{", b"  "),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\n[{\r\n", b""),
    ],
)
async def test_a_peer_that_goes_after_its_answer_with_its_body_half_sent_is_no_error(
    settings: Settings, caplog: pytest.LogCaptureFixture, head: bytes, more: bytes, end: Callable[[Connection], None]
) -> None:
    caplog.set_level(logging.WARNING)
    connection, wire = await opened(settings)
    connection.data_received(HEAD + head)
    await turns()
    task = connection._task_handler
    assert b" 408 " in wire.written[0]
    if more:
        connection.data_received(more)
    end(connection)
    await turns()
    assert caplog.records == []
    assert task is not None
    assert task.done()  # it does not wait for the rest of the body any more


async def test_a_body_that_is_cut_off_is_not_taken_for_a_whole_one(settings: Settings) -> None:
    read: list[bytes | str] = []

    async def take(request: web.Request) -> web.Response:
        try:
            read.append(await read_body(request, settings))
        except PayloadError as error:
            read.append(str(error))
        return web.Response()

    connection, _ = await opened(settings, take)
    connection.data_received(HEAD + b"Content-Length: 300\r\n\r\n[]")
    await turns()
    connection.data_received(b" ")
    connection.connection_lost(None)
    await turns()
    assert read == ["not a JSON object or array of objects in UTF-8"]


async def test_in_a_storm_of_connections_the_first_request_waits_for_a_turn(settings: Settings) -> None:
    connection, wire = await opened(settings, slice_s=0.0)
    connection.data_received(HEAD + b"Content-Length: 2\r\n\r\n[]")
    assert not connection._request_count
    await turns()
    assert b" 408 " in wire.written[0]


async def test_a_peer_that_goes_before_its_turn_is_forgotten(settings: Settings) -> None:
    connection, wire = await opened(settings, slice_s=0.0)
    connection.data_received(HEAD + b"Content-Length: 2\r\n\r\n[]")
    connection.connection_lost(None)
    await turns()
    assert not connection._request_count
    assert not wire.written


class Fast:
    """A connection of the fast lane that takes back what begins with POST."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.taken: list[bytes] = []

    def wants(self, data: bytes) -> bool:
        return data.startswith(b"POST ")

    def take_back(self, transport: asyncio.Transport, data: bytes) -> None:
        self.taken.append(data)

    def gone(self) -> None:
        pass


PAGE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def answer(_: web.Request) -> web.Response:
    await asyncio.sleep(0)  # so that aiohttp's timer starts a turn after the response, also in Python 3.12 and later
    return web.Response()


async def returned(settings: Settings, *, unread: int = 0) -> tuple[Connection, Wire]:
    """A connection that the fast lane has taken back as soon as aiohttp had written its response."""
    connection, wire = await opened(settings, answer)
    wire.unread = unread
    connection.comes_from(fast := Fast())
    connection.data_received(PAGE)
    while not wire.written:
        await asyncio.sleep(0)
    connection.data_received(HEAD)
    assert fast.taken == [HEAD]
    await turns()
    return connection, wire


def be_idle(connection: Connection) -> None:
    """Let aiohttp's timer fire."""
    assert connection._keepalive_handle is not None
    connection._next_keepalive_close_time = 0.0
    connection._process_keepalive()


async def test_a_connection_that_the_fast_lane_has_taken_back_is_not_closed_as_idle(settings: Settings) -> None:
    connection, wire = await returned(settings)
    be_idle(connection)
    assert not wire.is_closed
    connection.keep_bytes()  # handed over again
    assert connection._keepalive_handle is None
    connection.serve(PAGE)
    await turns()
    assert len(wire.written) == 2
    be_idle(connection)
    assert wire.is_closed


async def test_the_fast_lane_alone_watches_whether_the_peer_reads_what_aiohttp_wrote(settings: Settings) -> None:
    connection, _ = await returned(settings, unread=10)
    assert connection._reader_timer is None
