"""Connections of the fast lane, without a network."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from crewel import server
from crewel.broker.broker import Broker
from crewel.settings import Settings, load
from crewel.settings.sources import change
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_fast import FastConnection
from tests.broker.clock import ControlledLoop


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
