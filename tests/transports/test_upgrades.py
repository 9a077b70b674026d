"""Upgrades of the fast lane: what is agreed on with one client holds for all of its kind, and for no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf

import pytest
from aiohttp import web
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.utils import accept_key

from crewel import server
from crewel.settings import Settings
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_fast import FastConnection
from crewel.transports.websocket import Socket
from tests.transports.wires import Wire

DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
KEYS = [letter * 21 + "A==" for letter in "ABCD"]


class ToAiohttp(Exception):
    """The fast lane does not answer this."""


def refuse() -> None:
    raise ToAiohttp


@pytest.fixture
async def lane(settings: Settings) -> AsyncIterator[FastLane]:
    app = web.Application()
    broker = server.attach(app, settings)
    lane = FastLane(app[server.ENDPOINT], refuse)  # type: ignore[arg-type]
    lane.turns.slice_s = lane.sockets.arrivals.slice_s = inf  # a test makes many in one turn
    yield lane
    await lane.close(0)
    await broker.close()


def upgraded(lane: FastLane, *lines: str, key: str = KEYS[0]) -> tuple[dict[str, str], Socket]:
    """The headers of the answer, and the socket."""
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    head = ["GET /cometd HTTP/1.1", "Host: 127.0.0.1", "Connection: Upgrade", "Upgrade: websocket"]
    head += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *lines]
    try:
        connection.data_received("\r\n".join([*head, "", ""]).encode())
    except ToAiohttp:
        connection.connection_lost(None)
        raise
    status, *answer = b"".join(wire.written).decode().removesuffix("\r\n\r\n").split("\r\n")
    assert status == "HTTP/1.1 101 Switching Protocols"
    socket = wire.protocol
    assert isinstance(socket, Socket)
    socket.connection_lost(None)
    return dict(line.split(": ", 1) for line in answer), socket


def deflate(socket: Socket) -> PerMessageDeflate | None:
    """How the socket reads compressed frames in any form."""
    return next((each for each in socket._reader().extensions if isinstance(each, PerMessageDeflate)), None)


async def test_each_key_has_its_own_answer(lane: FastLane) -> None:
    for key in KEYS:
        headers, _ = upgraded(lane, key=key)
        assert headers["Sec-WebSocket-Accept"] == accept_key(key)
        assert headers.keys() == {"Upgrade", "Connection", "Date", "Sec-WebSocket-Accept"}


async def test_what_is_agreed_on_holds_for_clients_that_offer_the_same(lane: FastLane) -> None:
    for _ in range(2):
        headers, socket = upgraded(lane, DEFLATE)
        assert headers["Sec-WebSocket-Extensions"].startswith("permessage-deflate; ")
        assert deflate(socket) is not None
        headers, socket = upgraded(lane)
        assert "Sec-WebSocket-Extensions" not in headers
        assert deflate(socket) is None


async def test_no_two_sockets_share_what_they_keep_of_their_fragments(lane: FastLane) -> None:
    first, second = (deflate(upgraded(lane, DEFLATE)[1]) for _ in range(2))
    assert first is not second
    assert vars(first) == vars(second)


async def test_cookies_make_no_other_kind_of_client(lane: FastLane) -> None:
    for number, key in enumerate(KEYS):
        _, socket = upgraded(lane, f"Cookie: BAYEUX_BROWSER=b{number}", key=key)
        assert socket.browser == f"b{number}"
    assert len(lane.sockets.upgrades.known) == 1


@pytest.mark.parametrize("key", ["", "short", "A" * 24, "A" * 21 + "=A==", "A" * 22 + "== x"])
async def test_a_key_that_is_none_is_refused_by_aiohttp(lane: FastLane, key: str) -> None:
    upgraded(lane)
    with pytest.raises(ToAiohttp):
        upgraded(lane, key=key)


@pytest.mark.parametrize(
    "line",
    [
        f"Sec-WebSocket-Key: {KEYS[1]}",
        f"sec-websocket-key: {KEYS[1]}",
        " folded",
        "Cookie: a=b\r\n folded",
        "Content-Length: 5",
        "Origin: http://evil.example",
        "Host: evil.example",
    ],
)
async def test_what_is_refused_is_refused_behind_the_same_head_as_well(lane: FastLane, line: str) -> None:
    for _ in range(2):
        upgraded(lane)
        with pytest.raises(ToAiohttp):
            upgraded(lane, line)


async def test_the_head_of_a_kind_is_parsed_once(lane: FastLane, monkeypatch: pytest.MonkeyPatch) -> None:
    upgraded(lane, "Cookie: BAYEUX_BROWSER=b0")
    monkeypatch.setattr(lane.heads, "_parse_upgrade", lambda *_: pytest.fail("parsed again"))
    for number, key in enumerate(KEYS):
        headers, socket = upgraded(lane, f"Cookie: x=y; BAYEUX_BROWSER=b{number}", key=key)
        assert headers["Sec-WebSocket-Accept"] == accept_key(key)
        assert (socket.browser, socket.remote) == (f"b{number}", None)
        assert socket.headers["Sec-WebSocket-Key"] == key


async def test_a_window_too_small_for_what_all_share_is_declined(lane: FastLane) -> None:
    small, other = "permessage-deflate; server_max_window_bits=9", "permessage-deflate; server_max_window_bits=12"
    for _ in range(2):
        headers, socket = upgraded(lane, f"Sec-WebSocket-Extensions: {small}")
        assert "Sec-WebSocket-Extensions" not in headers
        assert deflate(socket) is None
        headers, socket = upgraded(lane, f"Sec-WebSocket-Extensions: {small}, {other}")
        assert headers["Sec-WebSocket-Extensions"].startswith("permessage-deflate; ")
        assert deflate(socket) is not None


async def test_the_server_remembers_no_more_than_some_kinds(lane: FastLane) -> None:
    for number in range(600):
        upgraded(lane, f"X-Other: {number}")
        assert len(lane.sockets.upgrades.known) <= 256
    before = len(lane.sockets.upgrades.known)
    upgraded(lane, f"X-Other: {'x' * 3000}")
    assert len(lane.sockets.upgrades.known) == before
