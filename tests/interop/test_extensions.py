"""The extensions that the official client ships, against their server halves."""

from __future__ import annotations

import time

import pytest

from tests.conftest import StartServer
from tests.interop.conftest import OpenPeer
from tests.interop.peers import Kind, kinds_that_can

every_kind = pytest.mark.parametrize("kind", kinds_that_can("extensions"), ids=str)
EVERY_BYTE = [*range(256), 1, 2, 3]  # a length that Z85 has to pad


@every_kind
@pytest.mark.parametrize("server_half", ["ack,timesync,binary", "ack,timesync"])
async def test_bytes_arrive_as_they_were_published(
    kind: Kind, server_half: str, start_server: StartServer, open_peer: OpenPeer
) -> None:
    """A server without the extension relays the text, so that the clients understand each other all the same."""
    server = start_server(f"bayeux.extensions={server_half}")
    subscriber = await open_peer(kind, server.port, extensions=["binary"])
    publisher = await open_peer(kind, server.port, extensions=["binary"])
    await subscriber.subscribe("/bytes")
    answer = await publisher.do("publishBinary", channel="/bytes", bytes=EVERY_BYTE)
    assert answer["successful"]
    await subscriber.hears({"data": EVERY_BYTE, "last": True, "meta": {"name": "bytes"}})


@every_kind
async def test_time_is_told_and_the_messages_carry_it(
    kind: Kind, start_server: StartServer, open_peer: OpenPeer
) -> None:
    server = start_server()
    before_ms = time.time() * 1000
    peer = await open_peer(kind, server.port, extensions=["timesync"])
    told = peer.told("handshaken")[0]["ext"]["timesync"]
    assert before_ms - 1 <= told["tc"] <= told["ts"] + 1 <= time.time() * 1000 + 2
    assert isinstance(told["ts"], int)
    assert isinstance(told["p"], int)
