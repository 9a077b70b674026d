"""A proxy that sends each request twice: the clients behind it hear everything, for a connect that comes twice is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.duplicating_proxy import DuplicatingProxy
from tests.interop.conftest import OpenPeer
from tests.interop.peers import KINDS, Kind, kinds_that_can
from tests.server_process import Server

STOCK = [kind for kind in kinds_that_can("extensions") if (kind.library, kind.transport) == ("cometd", "long-polling")]
MESSAGES = 10
MODES: list[tuple[list[str], str]] = [([], "first"), (["ack"], "first"), (["ack"], "second")]
"""The extensions, and whose answer the proxy passes on. A client that acknowledges nothing gets a message at most once: what
the hidden answer took is lost. It hears everything if the server reads the copy first whose answer is passed on. Then the other
copy is held beside it and answered alike, or answered without a message."""


def cases() -> Iterator[Any]:
    """The newest version with each mode on each lane, and each of the others with one of them in turn."""
    older = itertools.cycle(MODES)
    for kind in STOCK:
        for extensions, answers in MODES if kind.version == STOCK[0].version else [next(older)]:
            yield pytest.param(
                kind, extensions, answers, id=f"{kind}-{' '.join(extensions) or 'no ack'}, {answers} answers"
            )


@pytest.mark.parametrize(("kind", "extensions", "answers"), [*cases()])
async def test_behind_a_proxy_that_sends_requests_twice_each_message_is_heard_once(
    kind: Kind, server: Server, open_peer: OpenPeer, extensions: list[str], answers: str
) -> None:
    channel = f"/twice/{len(extensions)}/{answers}"
    publisher = await open_peer(KINDS[0], server.port)
    async with DuplicatingProxy(server.port, passes_on=answers, in_turn=not extensions) as proxy:
        peer = await open_peer(kind, proxy.port, extensions=extensions)
        await peer.subscribe(channel)
        connects = len(peer.told("connected"))
        for number in range(MESSAGES):
            await publisher.publish(channel, {"n": number})
            await peer.hears({"n": number})
        assert [data["n"] for data in peer.heard()] == list(range(MESSAGES))
        # Each message came with the answer to one connect: none was a 500 that had to be tried again.
        assert len(peer.told("connected")) - connects <= MESSAGES + 2
        assert proxy.duplicated
