"""Connections of the fast lane, without a network."""

import asyncio
from time import perf_counter
from typing import Any

import pytest
from aiohttp import web

from crewel import server
from crewel.bayeux.replies import Reply
from crewel.broker.broker import Broker
from crewel.broker.exchange import Peer
from crewel.broker.handler_steps import Promise, Steps
from crewel.settings import Settings, load
from crewel.settings.sources import change
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_connection import Connection
from crewel.transports.http_fast import FastConnection
from tests.broker.clock import ControlledLoop
from tests.transports import wires


class Wire(asyncio.Transport):
    """A transport that knows whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self.is_read = True

    def write(self, data: Any) -> None:
        self.answers += 1

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        pass


_BODY = b'[{"channel":"/meta/handshake","version":"1.0"}]'
_HEAD = b"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
REQUEST = _HEAD + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY


def started(settings: Settings) -> tuple[Broker, FastLane, Wire, FastConnection]:
    """A connection whose requests the fast lane can answer."""
    broker = server.attach(app := web.Application(), settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    return broker, lane, wire, connection


def test_of_several_wishes_to_slow_down_the_longest_counts() -> None:
    loop, settings = ControlledLoop(), load(None, ["storage.enabled=false"])

    async def serve() -> tuple[Broker, FastLane, Wire, FastConnection]:
        return started(settings)

    broker, lane, wire, connection = loop.run_until_complete(serve())
    connection.data_received(REQUEST)
    for seconds in (0.2, 3.0, 1.0):
        connection.slow_down(seconds)
    connection.data_received(REQUEST)
    try:
        loop.advance(2.9)
        assert wire.answers == 1
        loop.advance(0.2)
        assert wire.answers == 2
        connection.data_received(REQUEST)
        assert wire.answers == 3, "it rested once"
    finally:
        loop.run_until_complete(lane.close(0))
        loop.run_until_complete(broker.close())
        loop.close()


async def test_a_flood_of_pipelined_requests_is_not_read_faster_than_it_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crewel.fair_turns.PORTION_S", 0.0)  # one request in a turn
    settings = await asyncio.to_thread(load, None, ["storage.enabled=false"])
    broker, lane, wire, connection = started(settings)
    count = 2000  # 300 KB
    kept_at_most = 0
    try:
        sent = 0
        while wire.answers < count:
            if wire.is_read and sent < count:
                connection.data_received(REQUEST * 100)
                sent += 100
            await asyncio.sleep(0)
            kept_at_most = max(kept_at_most, sent - wire.answers)
    finally:
        await lane.close(0)
        await broker.close()
    limit = settings.bayeux.max_message_bytes // len(REQUEST)
    assert kept_at_most <= limit + 200
    assert wire.is_read


def test_a_limit_that_changes_while_the_server_runs_holds_for_connections_that_are_there() -> None:
    loop, settings = ControlledLoop(), load(None, ["storage.enabled=false"])

    async def serve() -> tuple[Broker, FastLane, Wire, FastConnection]:
        return started(settings)

    broker, lane, wire, connection = loop.run_until_complete(serve())
    body = b'[{"channel":"/a","data":1},{"channel":"/a","data":2}]'
    request = _HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    try:
        connection.data_received(request)
        assert wire.answers == 1
        change(settings, {"bayeux.max_batch_messages": 1})
        loop.advance(1.1)
        with pytest.raises(AssertionError, match="handed to aiohttp"):  # which refuses it
            connection.data_received(request)
    finally:
        loop.run_until_complete(lane.close(0))
        loop.run_until_complete(broker.close())
        loop.close()


def end_turn(lane: FastLane) -> None:
    """Let this turn of the loop have served clients for long enough: what comes waits for the next."""
    lane.turns.is_over()  # it begins
    lane.turns.unseen, lane.turns.until = 0, perf_counter() - 1


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def connected(lane: FastLane) -> wires.Client:
    client = wires.Client(lane, acknowledges=False)
    client.ask({"channel": "/meta/connect"})
    return client


async def test_a_half_closed_request_that_waits_for_its_turn_is_answered(lane: FastLane) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    end_turn(lane)
    connection.data_received(REQUEST)
    assert connection.eof_received()
    assert not wire.written
    await turns()
    assert len(wire.written) == 1
    assert wire.is_closed


async def test_a_half_closed_connect_that_waits_for_its_turn_is_not_held(lane: FastLane) -> None:
    client = connected(lane)
    end_turn(lane)
    client.receive(client.connect())
    assert client.connection.eof_received()
    await turns()
    assert client.reply()["channel"] == "/meta/connect"
    assert lane.broker.mailboxes.connects.held == 0
    assert client.wire.is_closed


async def test_a_held_connect_that_half_closes_is_answered_before_what_comes_behind_it(lane: FastLane) -> None:
    client = connected(lane)
    client.receive(client.connect())
    client.receive(client.request({"channel": "/room", "data": 1}))
    assert client.connection.eof_received()
    await turns()
    assert [b"/meta/connect" in each for each in client.wire.written] == [True, False]
    assert client.wire.is_closed


async def test_half_a_request_and_a_half_close_end_the_connection(lane: FastLane) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.data_received(REQUEST[:-1])
    assert not connection.eof_received()
    end_turn(lane)
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.data_received(REQUEST + REQUEST[:-1])
    assert connection.eof_received()
    await turns()
    assert len(wire.written) == 1
    assert wire.is_closed


async def test_what_is_pipelined_behind_an_open_request_is_answered_after_a_half_close(
    lane: FastLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    open_requests = list[Peer]()
    monkeypatch.setattr(lane.receiver, "receive", lambda peer, _: open_requests.append(peer))
    connection.data_received(REQUEST * 2)
    assert connection.eof_received()
    for count in (1, 2):
        assert len(open_requests) == count
        assert not wire.is_closed
        open_requests[-1].send([b"{}"])
        await turns()
        assert len(wire.written) == count
    assert wire.is_closed


@pytest.mark.parametrize("is_held", [False, True])
async def test_what_is_pipelined_behind_a_request_that_was_just_answered_is_answered_after_a_half_close(
    lane: FastLane, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    open_requests = list[Peer]()
    monkeypatch.setattr(lane.receiver, "receive", lambda peer, _: open_requests.append(peer))
    connection.data_received(REQUEST * 2)
    if not is_held:
        monkeypatch.setattr(lane.receiver, "receive", lambda peer, _: peer.send([b"{}"]))
    open_requests[0].send([b"{}"])
    assert connection.eof_received() is is_held
    if is_held:
        assert not wire.is_closed
        open_requests[1].send([b"{}"])
        await turns()
    assert len(wire.written) == 2
    assert wire.is_closed


async def test_a_half_closed_request_that_is_slowed_down_is_answered(lane: FastLane) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.slow_down(0.001)
    connection.data_received(REQUEST)
    assert connection.eof_received()
    async with asyncio.timeout(5):
        while not wire.is_closed:
            await asyncio.sleep(0)
    assert len(wire.written) == 1


async def test_a_half_closed_request_behind_answers_that_are_not_read_is_answered(lane: FastLane) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.pause_writing()
    connection.data_received(REQUEST)
    assert connection.eof_received()
    connection.resume_writing()
    await turns()
    assert len(wire.written) == 1
    assert wire.is_closed


async def test_at_the_end_of_the_server_a_request_that_waits_for_its_turn_is_answered(lane: FastLane) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    end_turn(lane)
    connection.data_received(REQUEST)
    connection.close_when_idle()
    assert not wire.is_closed
    await turns()
    assert b"Connection: close" in wire.written[0]
    assert wire.is_closed


async def test_a_connect_that_half_closes_while_it_waits_for_the_store_is_not_held_afterwards(
    lane: FastLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stored = connected(lane), Promise[bool]()
    handlers = lane.broker.inbound._meta.by_channel
    connect = handlers["/meta/connect"]

    def connect_later(*what: Any) -> Steps[Reply]:
        yield stored
        reply = connect(*what)
        assert isinstance(reply, dict)
        return reply

    monkeypatch.setitem(handlers, "/meta/connect", connect_later)
    client.receive(client.request({"channel": "/meta/connect", "advice": {"timeout": 60_000}}))
    assert client.connection.eof_received()
    assert not client.wire.written
    stored.resolve(True)
    assert client.reply()["channel"] == "/meta/connect"
    assert lane.broker.mailboxes.connects.held == 0
    await turns()
    assert client.wire.is_closed


@pytest.mark.parametrize("part", [b"GET /chat/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /chat/ HTTP/1.1\r\n"])
async def test_what_aiohttp_serves_is_answered_after_a_half_close_if_it_is_a_whole_request(
    settings: Settings, part: bytes
) -> None:
    runner = web.AppRunner(app := web.Application())
    broker = server.attach(app, settings)
    await runner.setup()
    lane = FastLane(
        app[server.ENDPOINT],
        lambda: Connection(runner.server, loop=broker.loop),
    )
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    end_turn(lane)
    connection.data_received(part)
    assert connection.eof_received()
    async with asyncio.timeout(5):
        while not wire.is_closed:
            await asyncio.sleep(0)
    assert [b" 404 " in each for each in wire.written[:1]] == [True] * part.endswith(b"\r\n\r\n")
    await lane.close(0)
    await runner.cleanup()
    await broker.close()


async def test_an_upgrade_that_half_closes_before_its_turn_ends_with_its_answer(lane: FastLane) -> None:
    wire, connection = wires.Wire(), FastConnection(lane)
    connection.connection_made(wire)
    end_turn(lane)
    connection.data_received(
        b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert connection.eof_received()
    await turns()
    assert wire.written[0].startswith(b"HTTP/1.1 101 ")
    assert wire.is_closed


def test_after_a_stall_a_client_has_time_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, settings, ended = ControlledLoop(), load(None, ["storage.enabled=false"]), list[str]()

    async def serve() -> tuple[Broker, FastLane, Wire, FastConnection]:
        return started(settings)

    broker, lane, _, connection = loop.run_until_complete(serve())
    monkeypatch.setattr(FastConnection, "too_late", lambda _: ended.append("too late"))
    connection.deadline, lane._due = lane.loop.time() - 1, lane.loop.time() - 5
    try:
        lane._watch()
        assert ended == [], "what it has sent may not have been read"
        lane._watch()
        assert ended == ["too late"]
    finally:
        loop.run_until_complete(lane.close(0))
        loop.run_until_complete(broker.close())
        loop.close()
