"""The extensions that the official client ships, against their server halves."""

from __future__ import annotations

import time

import pytest

from tests.conftest import StartServer
from tests.interop.conftest import OpenPeer
from tests.interop.peers import Kind, kinds_that_can
from tests.server_process import Server

every_kind = pytest.mark.parametrize("kind", kinds_that_can("extensions"), ids=str)
EVERY_BYTE = [*range(256), 1, 2, 3]  # a length that Z85 has to pad


async def publish_every_byte(kind: Kind, port: int | None, root: str, open_peer: OpenPeer) -> None:
    subscriber = await open_peer(kind, port, extensions=["binary"])
    publisher = await open_peer(kind, port, extensions=["binary"])
    await subscriber.subscribe(root)
    answer = await publisher.do("publishBinary", channel=root, bytes=EVERY_BYTE)
    assert answer["successful"]
    await subscriber.hears({"data": EVERY_BYTE, "last": True, "meta": {"name": "bytes"}})


@every_kind
async def test_bytes_arrive_as_they_were_published(kind: Kind, start_server: StartServer, open_peer: OpenPeer) -> None:
    server = start_server(kind.lane, "bayeux.extensions=ack,timesync,binary")
    await publish_every_byte(kind, server.port, "/bytes", open_peer)


@every_kind
async def test_bytes_are_relayed_by_a_server_without_the_extension(
    kind: Kind, server: Server, root: str, open_peer: OpenPeer
) -> None:
    await publish_every_byte(kind, server.port, root, open_peer)


@every_kind
async def test_time_is_told_with_the_handshake(kind: Kind, server: Server, open_peer: OpenPeer) -> None:
    before_ms = time.time() * 1000
    peer = await open_peer(kind, server.port, extensions=["timesync"])
    told = peer.told("handshaken")[0]["ext"]["timesync"]
    assert before_ms - 1 <= told["tc"] <= told["ts"] + 1 <= time.time() * 1000 + 2
    assert isinstance(told["ts"], int)
    assert isinstance(told["p"], int)
