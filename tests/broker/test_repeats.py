"""A connect that comes twice is one connect: proxies send requests twice, and browsers repeat what they got no answer to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.services import Service
from crewel.extensions.ack import AckExtension
from tests.broker.world import Client, Request, World, data_of


@pytest.fixture(params=["", "ack"])
def world(request: pytest.FixtureRequest) -> Any:
    world = World("storage.enabled=false", extensions=[AckExtension()] if request.param else [])
    world.asks = {"ext": {"ack": True}} if request.param else {}  # type: ignore[attr-defined]
    yield world
    world.close()


def joined(world: World) -> Client:
    client = Client(world).joined("/a", **world.asks)  # type: ignore[attr-defined]
    world.advance(5.0)
    return client


def connect(client: Client, batch: int | None = None) -> tuple[Request, Fields]:
    """A connect and its bytes, so that they can come again."""
    ext = {} if batch is None else {"ext": {"ack": batch}}
    message = client.message("/meta/connect", connectionType="long-polling", **ext)
    request = client.send(message)
    assert isinstance(request, Request)
    return request, message


def again(client: Client, message: Fields) -> Request:
    request = client.send(dict(message))
    assert isinstance(request, Request)
    return request


def test_both_copies_of_a_held_connect_get_the_same_answer(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    second = again(client, message)
    assert (first.is_held, second.is_held) == (True, True)
    world.broker.publish("/a", 1)
    world.settle()
    assert first.answer == second.answer
    assert data_of(first.answer[:1]) == [1]


def test_a_repeat_of_an_answered_connect_takes_no_new_message_and_acknowledges_nothing(world: World) -> None:
    client = joined(world)
    world.broker.publish("/a", 1)
    first, message = connect(client)
    assert data_of(first.answer[:1]) == [1]
    world.broker.publish("/a", 2)
    second = again(client, message)
    told = first.answer[-1].get("ext", {}).get("ack")
    if told is None:
        assert second.answer == [{"channel": "/meta/connect", "successful": True, "id": message["id"]}]
    else:  # whichever answer reaches the client: it has the batch that it acknowledges
        assert second.answer == first.answer
    third, _ = connect(client, told)
    assert data_of(third.answer[:-1]) == [2]


def test_a_repeat_of_a_connect_that_was_held_gets_what_that_was_answered(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    world.broker.publish("/a", 1)
    world.settle()
    second = again(client, message)
    told = first.answer[-1].get("ext", {}).get("ack")
    assert data_of(first.answer[:-1]) == [1]
    assert data_of(second.answer[:-1]) == ([] if told is None else [1])
    assert connect(client, told)[0].is_held


def test_a_copy_that_a_newer_connect_has_overtaken_takes_no_message_and_replaces_nothing(world: World) -> None:
    client = joined(world)
    world.broker.publish("/a", 1)
    first, message = connect(client)
    told = first.answer[-1].get("ext", {}).get("ack")
    newer, _ = connect(client, told)
    world.advance(5.0)
    late = again(client, message)
    assert late.answer == [{"channel": "/meta/connect", "successful": True, "id": message["id"]}]
    assert newer.is_held
    world.broker.publish("/a", 2)
    world.settle()
    assert data_of(newer.answer[:-1]) == [2]


def test_a_connect_that_waited_behind_a_publish_takes_no_message_from_a_newer_one() -> None:
    goes_on = asyncio.Event()
    service = Service("slow")

    @service.listener("/slow")
    async def slow(session: Any, message: Any) -> None:
        await goes_on.wait()

    world = World("storage.enabled=false", services=[service])
    client = Client(world).joined("/a")
    older = client.send(client.message("/slow", data=0), client.message("/meta/connect", connectionType="long-polling"))
    newer, _ = connect(client)
    assert newer.is_held
    world.broker.publish("/a", 1)
    goes_on.set()
    world.settle()
    assert data_of(newer.answer[:-1]) == [1]
    assert [each["channel"] for each in older.received] == ["/slow", "/meta/connect"]
    assert data_of(older.received) == []
    world.close()


def test_what_a_copy_would_get_is_let_go_when_the_client_is_there_again_or_away(world: World) -> None:
    client = joined(world)
    world.broker.publish("/a", 1)
    first, _ = connect(client)
    told = first.answer[-1].get("ext", {}).get("ack")
    assert (client.session.answered is None) is (told is None)
    connect(client, told)
    assert client.session.answered is None
    world.broker.publish("/a", 2)
    world.settle()
    client.session.go_away()
    assert client.session.answered is None


def test_connects_that_all_have_one_id_get_each_message_once(world: World) -> None:
    client = joined(world)
    message = client.message("/meta/connect", connectionType="long-polling", **world.asks)  # type: ignore[attr-defined]
    got, empty = [], 0
    for number in range(3):
        world.broker.publish("/a", number)
        while not (received := data_of((answer := again(client, message).answer)[:-1])):
            empty += 1
            assert empty <= number, "more than one answer without a message between two"
        got += received
        told = answer[-1].get("ext", {}).get("ack")
        if told is not None:
            message["ext"] = {"ack": told}
            assert not empty, "an acknowledgement of the last answer shows that this is no copy"
    assert got == [0, 1, 2]


def test_a_newer_connect_replaces_both_copies(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    second = again(client, message)
    third, _ = connect(client)
    assert (first.superseded, second.superseded, third.is_held) == (1, 1, True)


def test_a_connect_that_is_no_repeat_replaces_as_ever(world: World) -> None:
    client = joined(world)
    first, _ = connect(client)
    second, _ = connect(client)
    assert (first.superseded, second.is_held) == (1, True)


@pytest.mark.parametrize("gone", [0, 1])
def test_when_one_copy_vanishes_the_other_is_still_held(world: World, gone: int) -> None:
    client = joined(world)
    first, message = connect(client)
    copies = [first, again(client, message)]
    world.broker.mailboxes.connects.vanished(copies[gone])
    world.broker.publish("/a", 1)
    world.settle()
    assert data_of(copies[1 - gone].answer[:1]) == [1]
    assert world.broker.mailboxes.connects.held == 0


def test_when_both_vanish_the_connect_is_held_no_more(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    second = again(client, message)
    for each in (first, second):
        world.broker.mailboxes.connects.vanished(each)
    assert client.session.held is None
    world.sweep_after(11)
    assert not client.is_known


def test_a_connect_without_an_answer_that_comes_once_more_is_held(world: World) -> None:
    client = joined(world)
    first, message = connect(client, 0)
    assert first.is_held
    world.broker.mailboxes.connects.vanished(first)
    second = again(client, message)
    assert second.is_held
    world.broker.publish("/a", 1)
    world.settle()
    assert data_of(second.answer[:1]) == [1]


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_copy_that_gets_no_message_names_the_batch_that_its_client_has(world: World, is_overtaken: bool) -> None:
    client = joined(world)
    _, message = connect(client, 0)
    if is_overtaken:
        connect(client, 0)
    else:
        world.broker.publish("/a", 1)
        world.settle()
        client.session.answered = None  # as while it waits for the store
    (reply,) = again(client, message).answer
    expected = {"ext": {"ack": 0}} if world.asks else {}  # type: ignore[attr-defined]
    assert reply == {"channel": "/meta/connect", "successful": True, "id": message["id"], **expected}


def test_a_third_copy_is_a_newer_connect(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    second, third = again(client, message), again(client, message)
    assert (first.superseded, second.superseded, third.is_held) == (1, 1, True)


def test_another_browser_does_not_get_the_answer(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    stranger = world.post(dict(message), browser="another")
    assert stranger.answer[0]["error"] == "402::session_unknown"
    assert first.is_held


def test_a_client_that_numbers_nothing_is_held_at_its_second_attempt(world: World) -> None:
    client = joined(world)
    world.broker.publish("/a", 1)
    _, message = connect(client)
    assert again(client, message).payloads
    assert again(client, message).is_held


def test_long_after_its_answer_the_same_connect_is_the_next_one(world: World) -> None:
    client = joined(world)
    first, message = connect(client)
    world.broker.publish("/a", 1)
    world.settle()
    assert first.payloads
    world.advance(1.5)
    assert not again(client, message).superseded
    assert client.session.held is not None or world.broker.mailboxes.connects.held == 0


def test_the_first_connect_of_the_next_client_is_no_repeat(world: World) -> None:
    old = Client(world)
    asks = world.asks.get("ext", {})  # type: ignore[attr-defined]
    resume = old.handshake(ext={**asks, "session": {"name": "joe/1"}})["ext"]["session"]["resume"]
    _, message = connect(old)
    new = Client(world)
    new.handshake(ext={**asks, "session": {"name": "joe/1", "resume": resume}})
    world.broker.deliver(new.session, "/a", 1)
    request = again(new, {**message, "clientId": new.id})
    assert data_of(request.answer[:1]) == [1]
