"""Connections of the fast lane, without a network."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from crewel import server
from crewel.settings import load
from crewel.transports.http_fast import FastConnection, FastLane


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


async def test_a_flood_of_pipelined_requests_is_not_read_faster_than_it_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crewel.transports.http_fast._PIPELINED_S", 0.0)  # one request in a turn
    body = b'[{"channel":"/meta/handshake","version":"1.0"}]'
    head = b"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    settings = await asyncio.to_thread(load, None, ["storage.enabled=false"])
    broker = server.attach(app := web.Application(), settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    count = 2000  # 300 KB
    kept_at_most = 0
    try:
        sent = 0
        while wire.answers < count:
            if wire.is_read and sent < count:
                connection.data_received(request * 100)
                sent += 100
            await asyncio.sleep(0)
            kept_at_most = max(kept_at_most, sent - wire.answers)
    finally:
        await lane.close(0)
        await broker.close()
    limit = settings.bayeux.max_message_bytes // len(request)
    assert kept_at_most <= limit + 200
    assert wire.is_read
