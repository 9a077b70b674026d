"""What every client library must be able to do with the server, on each transport it has."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.interop.conftest import OpenPeer
from tests.interop.peers import KINDS, Kind, kinds_that_can
from tests.server_process import Server

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


async def knows_session(server: Server, client_id: str) -> bool:
    """Return whether the session exists: a fresh WebSocket may use any that does, and gets a 402 for the others."""
    message = {"id": "1", "channel": "/service/nothing", "clientId": client_id, "data": {}}
    async with aiohttp.ClientSession() as http, http.ws_connect(server.ws_url) as socket:
        await socket.send_json([message])
        while "id" not in (reply := (await socket.receive_json(timeout=30))[-1]):
            pass  # a message for the session
    return bool(reply["successful"])


@every_kind
async def test_wildcard_listeners_hear_what_matches_and_the_wire_carries_it_once(
    kind: Kind, server: Server, root: str, open_peer: OpenPeer
) -> None:
    subscriber = await open_peer(kind, server.port)
    publisher = await open_peer(kind, server.port)
    await subscriber.subscribe(f"{root}/*", f"{root}/**", f"{root}/a", f"{root}end")
    for number, channel in enumerate(["/a", "/b", "/b/c", "", "x/a", "/a", "end"]):
        await publisher.publish(root + channel, {"n": number})
    await subscriber.hears({"n": 6})
    assert [event["data"]["n"] for event in subscriber.told("delivered")] == [0, 1, 2, 5, 6]
    if "listeners" in kind.can:
        assert [data["n"] for data in subscriber.heard(f"{root}/*")] == [0, 1, 5]
        assert [data["n"] for data in subscriber.heard(f"{root}/**")] == [0, 1, 2, 5]
        assert [data["n"] for data in subscriber.heard(f"{root}/a")] == [0, 5]
    else:
        assert [data["n"] for data in subscriber.heard()] == [0, 1, 2, 5, 6]


@every_kind
async def test_one_session_hears_itself_exactly_unsubscribes_and_lives_on_after_a_refusal(
    kind: Kind, server: Server, root: str, open_peer: OpenPeer
) -> None:
    """One walk, because each start of a client costs as much as all of its steps."""
    peer = await open_peer(kind, server.port)
    if kind.transport == "websocket":
        # Faye and aiocometd-ng always make their handshake by long-polling, and move the session to a WebSocket.
        assert peer.transport == "websocket"
        assert {event["transport"] for event in peer.told("connecting")} == {"websocket"}

    await peer.subscribe(f"{root}/own")
    sent: list[Any] = [
        {"text": 'Bayeux, 1066: \u00fc \u2603 \U0001d11e \\ " </script> \u2028'},
        {"nested": [[], {}, [1, -2.5, 1e-7, 9007199254740991], {"null": None, "yes": True}]},
        ["a list"],
        "a text",
        0,
    ]
    for data in sent:
        await peer.publish(f"{root}/own", data)
    await peer.until(lambda: len(peer.heard()) == len(sent), "all that was sent")
    assert peer.heard() == sent

    before = len(peer.told("delivered"))
    await peer.subscribe(f"{root}/a", f"{root}/b")
    assert (await peer.do("unsubscribe", channel=f"{root}/a"))["successful"]
    await peer.publish(f"{root}/a", {"n": 1})
    await peer.publish(f"{root}/b", {"n": 2})
    await peer.hears({"n": 2})
    assert [event["data"] for event in peer.told("delivered")[before:]] == [{"n": 2}]

    answer = await peer.do("subscribe", channel="/meta/secrets")
    assert not answer["successful"]
    assert answer["error"].startswith("403:")
    await peer.subscribe(root)
    await peer.publish(root, {"n": 3})
    await peer.hears({"n": 3})
    assert len(peer.told("handshaken")) == 1


@every_kind
async def test_disconnect_is_answered_and_ends_the_session(
    kind: Kind, server: Server, root: str, open_peer: OpenPeer
) -> None:
    peer = await open_peer(kind, server.port)
    other = await open_peer(kind, server.port)
    await peer.subscribe(root)
    answer = await peer.do("disconnect")
    assert answer["successful"]
    assert not await knows_session(server, peer.client_id)
    assert await knows_session(server, other.client_id)


@pytest.mark.parametrize("kind", kinds_that_can("batch"), ids=str)
async def test_batch_is_accepted_whole_and_arrives_in_order(
    kind: Kind, server: Server, root: str, open_peer: OpenPeer
) -> None:
    subscriber = await open_peer(kind, server.port)
    publisher = await open_peer(kind, server.port)
    await subscriber.subscribe(f"{root}/**")
    # Faye divides what is longer than 2,048 bytes into requests that it sends at the same time: then they have no order.
    messages = [{"channel": f"{root}/{number % 3}", "data": {"n": number}} for number in range(18)]
    answer = await publisher.do("batch", messages=messages)
    assert [reply["successful"] for reply in answer["replies"]] == [True] * 18
    await subscriber.hears({"n": 17})
    assert [data["n"] for data in subscriber.heard()] == list(range(18))


@pytest.mark.parametrize("extensions", [[], ["ack"]], ids=["", "ack"])
@pytest.mark.parametrize("kind", kinds_that_can("call"), ids=str)
async def test_remote_call_returns_the_result_of_the_service(
    kind: Kind, extensions: list[str], server: Server, open_peer: OpenPeer
) -> None:
    """With acknowledgements the result comes with the connect, after the acknowledgement of the call."""
    peer = await open_peer(kind, server.port, extensions=extensions)
    answer = await peer.do("call", target="echo", data={"n": [1, None, "\u00fc"]})
    assert answer["successful"]
    assert answer["data"] == {"n": [1, None, "\u00fc"]}
    refusal = await peer.do("call", target="/refuse", data={})
    assert not refusal["successful"]
    assert refusal["data"] == {"reason": "not today"}


@pytest.mark.parametrize("kind", kinds_that_can("call"), ids=str)
async def test_session_that_the_server_ends_stays_ended(kind: Kind, server: Server, open_peer: OpenPeer) -> None:
    peer = await open_peer(kind, server.port)
    await peer.tells("connecting", 2)
    await peer.publish("/service/nothing", {})  # a round trip, so that the second connect is held by now
    await peer.publish("/service/leave", {})
    await peer.tells("ended")
    assert not await knows_session(server, peer.client_id)
    assert len(peer.told("handshaken")) == 1
