"""Servers that restart, transports that the server does not offer, and pages that are reloaded."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.interop.conftest import OpenPeer
from tests.interop.peers import KINDS, Kind, Peer, kinds_that_can

NEWEST = [
    kind
    for kind in KINDS
    if (kind.library, kind.version) in (("cometd", "9"), ("faye", "1.4"))
    and kind.transport == "long-polling"
    and kind.lane == KINDS[0].lane
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_client_makes_a_new_session_after_the_server_restarted(
    kind: Kind, start_server: StartServer, open_peer: OpenPeer
) -> None:
    server = start_server(kind.lane, "bayeux.timeout_ms=1000")
    peer = await open_peer(kind, server.port, extensions=["ack"] if "extensions" in kind.can else [])
    await peer.subscribe("/a/**")
    await peer.publish("/a/b", {"n": 1})
    await peer.hears({"n": 1})

    server.kill()
    start_server(kind.lane, "bayeux.timeout_ms=1000", port=server.port)

    await peer.tells("handshaken", 2)
    await peer.tells("subscribed", 2, channel="/a/**")
    await peer.publish("/a/b", {"n": 2})
    await peer.hears({"n": 2})
    assert [data["n"] for data in peer.heard()] == [1, 2]
    first, second = (event["clientId"] for event in peer.told("handshaken"))
    assert first != second


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.transport == "websocket"], ids=str)
async def test_client_falls_back_to_long_polling_where_the_server_has_no_websocket(
    kind: Kind, start_server: StartServer, open_peer: OpenPeer
) -> None:
    server = start_server(kind.lane, "bayeux.transports=long-polling")
    peer = await open_peer(kind, server.port, transports=("websocket", "long-polling"))
    assert peer.transport == "long-polling"
    await peer.subscribe("/a")
    await peer.publish("/a", {"n": 1})
    await peer.hears({"n": 1})


async def all_acknowledged(peer: Peer) -> None:
    """Wait until the server has had the acknowledgement of all that was heard.

    The next reply may be the one that brought it; the one after it answers the connect that acknowledged it.
    """
    await peer.tells("connected", len(peer.told("connected")) + 2)


@pytest.mark.parametrize("kind", kinds_that_can("extensions"), ids=str)
async def test_reloaded_page_goes_on_with_its_session_and_misses_nothing(
    kind: Kind, start_server: StartServer, open_peer: OpenPeer
) -> None:
    server = start_server(kind.lane, "bayeux.timeout_ms=500")
    page = await open_peer(kind, server.port, extensions=["ack", "reload"])
    other = await open_peer(kind, server.port)
    await page.subscribe("/a")
    await other.publish("/a", {"n": 1})
    await page.hears({"n": 1})
    await all_acknowledged(page)

    await page.do("reload")
    await other.publish("/a", {"n": 2})
    answer = await page.do("loaded")
    await page.hears({"n": 2})
    await other.publish("/a", {"n": 3})
    await page.hears({"n": 3})

    assert answer["clientId"] == page.client_id
    assert answer["transport"] == kind.transport
    assert page.told("handshaken")[-1]["reload"]
    assert [data["n"] for data in page.heard()] == [1, 2, 3]


@pytest.mark.parametrize("kind", kinds_that_can("extensions"), ids=str)
async def test_message_on_its_way_to_a_reloaded_page_comes_to_the_next_one(
    kind: Kind, start_server: StartServer, open_peer: OpenPeer
) -> None:
    """The server answers the connect of a page whose goodbye it has not read. The answer reaches no listener, so the message is
    sent once more, and once only."""
    server = start_server(kind.lane, "bayeux.timeout_ms=500")
    page = await open_peer(kind, server.port, extensions=["ack", "reload"])
    other = await open_peer(kind, server.port)
    await page.subscribe("/a")
    await other.publish("/a", {"n": 1})
    await page.hears({"n": 1})
    await all_acknowledged(page)

    os.kill(server.pid, signal.SIGSTOP)
    publishing = asyncio.create_task(other.publish("/a", {"n": 2}))
    await other.tells("publishing", 2)
    await page.do("reload")
    os.kill(server.pid, signal.SIGCONT)
    await publishing
    await page.do("loaded")
    await page.hears({"n": 2})
    await other.publish("/a", {"n": 3})
    await page.hears({"n": 3})

    assert [data["n"] for data in page.heard()] == [1, 2, 3]


@pytest.mark.parametrize("kind", NEWEST, ids=str)
async def test_client_beyond_a_limit_comes_back_by_itself(
    kind: Kind, start_server: StartServer, open_peer: OpenPeer
) -> None:
    server = start_server(kind.lane, "limits.max_sessions=1")
    first = await open_peer(kind, server.port)
    opening = asyncio.ensure_future(open_peer(kind, server.port))
    await asyncio.to_thread(until, lambda: figures(server).get('crewel_limited_total{limit="max_sessions"}', 0) > 0)
    await first.do("disconnect")
    second = await opening
    refused = [event["error"] for event in second.told("unsuccessful")]
    assert any("429:limits.max_sessions:" in error for error in refused), refused
    await second.subscribe("/a")
    await second.publish("/a", {"n": 1})
    await second.hears({"n": 1})
