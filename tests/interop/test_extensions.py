"""The extensions that the official client ships, against their server halves."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.interop.conftest import OpenPeer
from tests.interop.peers import Kind, Peer, kinds_that_can
from tests.server_process import Server

every_kind = pytest.mark.parametrize("kind", kinds_that_can("extensions"), ids=str)
EVERY_BYTE = [*range(256), 1, 2, 3]  # a length that Z85 has to pad


async def publish_every_byte(kind: Kind, port: int | None, root: str, open_peer: OpenPeer, *others: str) -> Peer:
    """Publish and hear them; return the publisher, which has these other extensions too."""
    subscriber = await open_peer(kind, port, extensions=["binary"])
    publisher = await open_peer(kind, port, extensions=["binary", *others])
    await subscriber.subscribe(root)
    answer = await publisher.do("publishBinary", channel=root, bytes=EVERY_BYTE)
    assert answer["successful"]
    await subscriber.hears({"data": EVERY_BYTE, "last": True, "meta": {"name": "bytes"}})
    return publisher


@every_kind
async def test_bytes_arrive_as_they_were_published(
    kind: Kind, servers: Callable[..., Server], root: str, open_peer: OpenPeer
) -> None:
    server = servers(kind.lane, "bayeux.extensions=ack,timesync,binary")
    await publish_every_byte(kind, server.port, root, open_peer)


@every_kind
async def test_a_server_without_the_binary_extension_relays_bytes_and_tells_its_time_with_the_handshake(
    kind: Kind, server: Server, root: str, open_peer: OpenPeer
) -> None:
    before_ms = time.time() * 1000
    publisher = await publish_every_byte(kind, server.port, root, open_peer, "timesync")
    told = publisher.told("handshaken")[0]["ext"]["timesync"]
    assert before_ms - 1 <= told["tc"] <= told["ts"] + 1 <= time.time() * 1000 + 2
    assert isinstance(told["ts"], int)
    assert isinstance(told["p"], int)
