"""Which transport is chosen, and which reply belongs to which request."""

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, Event
from crewel.client.awaited import Exchanges
from crewel.client.connection import common_transports
from crewel.client.errors import NegotiationError, TransportError

OURS = ["websocket", "long-polling"]


@pytest.mark.parametrize(
    ("offered", "common"),
    [
        (["long-polling", "websocket", "callback-polling"], ["websocket", "long-polling"]),
        (["long-polling"], ["long-polling"]),
        (None, OURS),
        ("long-polling", OURS),
    ],
)
def test_our_order_decides_among_what_the_server_lists(offered: object, common: list[str]) -> None:
    assert common_transports(OURS, offered) == common


@pytest.mark.parametrize("offered", [[], ["eventsource"], [7, None]])
def test_nothing_in_common_is_an_error(offered: object) -> None:
    with pytest.raises(NegotiationError, match="offers"):
        common_transports(OURS, offered)


async def test_a_reply_reaches_the_request_with_its_id() -> None:
    exchanges = Exchanges()
    with exchanges.replies.wait_for(["1", "2"]) as (first, second):
        assert exchanges.settle({"channel": "/a", "id": "2", "successful": True})
        assert not first.done()
        assert (await second)["id"] == "2"


async def test_a_delivery_that_kept_its_publishers_id_is_no_reply() -> None:
    """Faye's server leaves the id in: the message must not be taken for the answer to a request of ours."""
    exchanges = Exchanges()
    with exchanges.replies.wait_for(["1"]) as (reply,):
        assert not exchanges.settle({"channel": "/a", "id": "1", "data": 5})
        assert not reply.done()


async def test_a_result_is_told_from_the_answer_to_its_call() -> None:
    exchanges = Exchanges()
    with exchanges.results.wait_for(["1"]) as (result,), exchanges.replies.wait_for(["1"]) as (reply,):
        assert exchanges.settle({"channel": "/service/echo", "id": "1", "data": 5})
        assert not reply.done()
        assert exchanges.settle({"channel": "/service/echo", "id": "1", "successful": True})
        assert (await result)["data"] == 5


async def test_a_result_counts_that_came_before_the_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("http://127.0.0.1:1/cometd")
    session = client._session
    session.life.begin()
    session.life.move(Event.HANDSHAKEN)

    async def request(messages: list[Fields]) -> list[Fields]:
        [call] = messages
        assert session.connection.exchanges.settle({"channel": "/service/echo", "id": call["id"], "data": 5})
        raise TransportError("cut")

    monkeypatch.setattr(session, "request", request)
    assert await client.remote_call("echo", 5) == 5


async def test_repeats_and_strangers_find_nobody() -> None:
    exchanges = Exchanges()
    with exchanges.replies.wait_for(["1"]) as (reply,):
        assert exchanges.settle({"channel": "/a", "id": "1", "successful": True})
        assert not exchanges.settle({"channel": "/a", "id": "1", "successful": False})
        assert (await reply)["successful"]
    assert not exchanges.settle({"channel": "/a", "id": "1", "successful": True})
    assert not exchanges.settle({"channel": "/a"})


async def test_a_lost_connection_fails_replies_but_not_results() -> None:
    exchanges = Exchanges()
    with exchanges.results.wait_for(["1"]) as (result,), exchanges.replies.wait_for(["2"]) as (reply,):
        exchanges.replies.fail(TransportError("gone"))
        with pytest.raises(TransportError):
            await reply
        assert not result.done()
        exchanges.fail(TransportError("the session too"))
        with pytest.raises(TransportError, match="too"):
            await result
