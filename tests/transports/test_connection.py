"""Connections that aiohttp reads, without a network: a peer that goes while its body is not read is no error of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from crewel import server
from crewel.errors import PayloadError
from crewel.settings import Settings
from crewel.transports.bodies import read_body
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_connection import Connection, mark_requests
from crewel.transports.http_fast import FastConnection
from tests.transports.wires import Wire

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def refuse(_: web.Request) -> web.Response:
    """As a body is that comes too slowly, or is too large: answered before its end."""
    response = web.Response(status=408)
    response.force_close()
    return response


async def opened(
    settings: Settings, handler: Handler = refuse, *, slice_s: float = inf, is_fast: bool = False
) -> tuple[FastConnection, Wire]:
    settings.http.fast_lane = is_fast
    app, wire = web.Application(middlewares=[mark_requests]), Wire()
    server.attach(app, settings)
    app.router.add_route("*", "/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    loop = asyncio.get_running_loop()
    app[server.ENDPOINT].arrivals.slice_s = slice_s
    connection = FastConnection(FastLane(app[server.ENDPOINT], lambda: Connection(runner.server, loop=loop)))
    connection.connection_made(wire)
    return connection, wire


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def lose(connection: FastConnection, _: Wire) -> None:
    connection.connection_lost(None)


def cut_off(connection: FastConnection, wire: Wire) -> None:
    connection.too_late()  # it has not sent the head of another request in time
    assert wire.is_closed
    connection.connection_lost(None)


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
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    head: bytes,
    more: bytes,
    end: Callable[[FastConnection, Wire], None],
) -> None:
    caplog.set_level(logging.WARNING)
    connection, wire = await opened(settings)
    connection.data_received(HEAD + head)
    await turns()
    assert connection._child is not None
    task = connection._child._task_handler
    assert b" 408 " in wire.written[0]
    if more:
        connection.data_received(more)
    end(connection, wire)
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
    assert connection._child is None
    await turns()
    assert b" 408 " in wire.written[0]


async def test_a_peer_that_goes_before_its_turn_is_forgotten(settings: Settings) -> None:
    connection, wire = await opened(settings, slice_s=0.0)
    connection.data_received(HEAD + b"Content-Length: 2\r\n\r\n[]")
    connection.connection_lost(None)
    await turns()
    assert connection._child is None
    assert not wire.written


PAGE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BAYEUX = b"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n[{}]"


async def answer(_: web.Request) -> web.Response:
    await asyncio.sleep(0)
    return web.Response()


async def fail(_: web.Request) -> web.Response:
    raise ConnectionError


@pytest.mark.parametrize("parts", [[PAGE, BAYEUX, PAGE], [PAGE, BAYEUX + PAGE]])
async def test_what_comes_while_aiohttp_serves_one_request_is_answered_behind_it(
    settings: Settings, parts: list[bytes]
) -> None:
    connection, wire = await opened(settings, answer, is_fast=True)
    for part in parts:
        connection.data_received(part)
    assert connection.eof_received()
    await turns()
    assert [b"application/json" in each for each in wire.written] == [False, True, False]
    assert wire.is_closed
    assert connection._child is None


@pytest.mark.parametrize(
    ("sent", "is_closed"),
    [
        (PAGE, False),
        (PAGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), True),
        (PAGE.replace(b"1.1\r", b"1.0\r"), True),
        (PAGE.replace(b"\r\n\r\n", b"\r\nUpgrade-Insecure-Requests: 1\r\n\r\n"), False),
    ],
)
async def test_a_connection_goes_on_if_its_peer_may(settings: Settings, sent: bytes, is_closed: bool) -> None:
    connection, wire = await opened(settings, answer, is_fast=True)
    connection.data_received(sent)
    await turns()
    assert len(wire.written) == 1
    assert wire.is_closed is is_closed
    connection.data_received(BAYEUX)
    assert len(wire.written) == (1 if is_closed else 2)


@pytest.mark.parametrize("sent", [PAGE + PAGE, PAGE[:-2], HEAD + b"Content-Length: 2\r\n\r\n[]"])
async def test_behind_anything_but_one_request_without_a_body_aiohttp_reads_on(settings: Settings, sent: bytes) -> None:
    connection, _ = await opened(settings, answer, is_fast=True)
    connection.data_received(sent)
    await turns()
    child = connection._child
    assert child is not None
    connection.data_received(BAYEUX)
    await turns()
    assert connection._child is child


async def test_a_connection_under_an_answer_that_failed_is_closed(settings: Settings) -> None:
    connection, wire = await opened(settings, fail, is_fast=True)
    connection.data_received(PAGE)
    await turns()
    assert wire.is_closed


async def test_at_the_end_of_the_server_a_connection_closes_behind_the_answer_of_aiohttp(settings: Settings) -> None:
    connection, wire = await opened(settings, answer, is_fast=True)
    connection.data_received(PAGE)
    await connection._lane.close(10)  # which does not wait for it
    assert not wire.is_closed
    await turns()
    assert len(wire.written) == 1
    assert wire.is_closed


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize(("left", "is_cut_off"), [(10, True), (9, False), (0, False)])
async def test_a_peer_that_takes_nothing_of_what_aiohttp_wrote_is_cut_off(
    settings: Settings, is_fast: bool, left: int, is_cut_off: bool
) -> None:
    connection, wire = await opened(settings, answer, is_fast=is_fast)
    wire.unread = 10
    connection.data_received(PAGE)
    await turns()
    assert len(wire.written) == 1
    connection.too_late()
    assert (wire.is_closed, wire.is_aborted) == (True, False)
    wire.unread = left
    connection.check_reader(connection._lane.readers.pop(connection)[0])
    assert wire.is_aborted is is_cut_off
    assert (connection in connection._lane.readers) is (left == 9)


async def test_a_peer_with_an_answer_under_way_is_not_cut_off_for_an_earlier_one(settings: Settings) -> None:
    connection, wire = await opened(settings, answer, is_fast=True)
    wire.unread = 10
    connection.data_received(PAGE)
    await turns()
    wire.unread = 0
    connection._lane.idle_deadline += 1  # a moment later
    connection.data_received(BAYEUX)
    wire.unread = 50
    connection.check_reader(connection._lane.readers.pop(connection)[0])
    assert len(wire.written) == 2
    assert not wire.is_aborted


async def test_a_file_is_sent(settings: Settings) -> None:
    async def send(_: web.Request) -> web.FileResponse:
        return web.FileResponse(__file__)

    connection, wire = await opened(settings, send, is_fast=True)
    connection.data_received(PAGE)
    async with asyncio.timeout(5):
        while connection._child is not None:
            await asyncio.sleep(0)
    assert b"".join(wire.written).endswith(b"\r\n\r\n" + await asyncio.to_thread(Path(__file__).read_bytes))
    assert not wire.is_closed


async def test_what_aiohttp_will_not_read_yet_stays_unread(settings: Settings) -> None:
    connection, wire = await opened(settings, answer, slice_s=0.0)
    connection.data_received(PAGE * 100)
    while connection._child is None:
        await asyncio.sleep(0)
    assert not wire.is_read
    async with asyncio.timeout(5):
        while len(wire.written) < 100:
            await asyncio.sleep(0)
    assert wire.is_read


@pytest.mark.parametrize("is_fast", [False, True])
async def test_the_time_for_a_head_begins_with_it_and_that_of_an_answer_has_no_end(
    settings: Settings, is_fast: bool
) -> None:
    answers = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await answers.wait()
        return web.Response()

    connection, _ = await opened(settings, wait, is_fast=is_fast)
    lane = connection._lane
    begun = lane.loop.time()
    connection.data_received(HEAD)
    first = connection.deadline
    assert begun <= first - lane.header_timeout <= lane.loop.time()
    connection.data_received(b"Content-Length: 2\r\n")
    assert connection.deadline == first
    connection.data_received(b"\r\n[]")
    await turns()
    assert connection.deadline == inf
    answers.set()
    await turns()
    assert connection.deadline == lane.idle_deadline
