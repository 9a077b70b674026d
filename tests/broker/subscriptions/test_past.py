"""What a history tells to who asks without subscribing: the remote call, and operators."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.broker.services import Service
from crewel.errors import StoreUnavailable
from crewel.security.policy import Deny
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, origin
from tests.broker.subscriptions.asking import RULES
from tests.broker.world import Client, World, data_of


def publish(world: StoredWorld, *values: Any, channel: str = "/h/a") -> None:
    for value in values:
        world.broker.publish(channel, value)
        world.settle()


def get(client: Client, data: Any) -> Fields:
    """The answer to the remote call."""
    request = client.send(client.message("/service/get", data=data))
    client.world.settle()
    if isinstance(client, Receiver):
        (answer,) = client.take()
    else:
        came = [*request.received, *client.connect(advice={"timeout": 0}).answer]
        (answer,) = [each for each in came if "data" in each]
    assert answer["channel"] == "/service/get"
    return answer


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [3]),
        ({"numEntries": 2}, [3, 2]),
        ({"numEntries": -1, "newestFirst": False}, [1, 2, 3]),
        ({"numEntries": 0}, []),
    ],
)
def test_as_many_of_the_newest_messages_as_are_asked_for(
    world: StoredWorld, asked: Fields, expected: list[int]
) -> None:
    publish(world, 1, 2, 3)
    answer = get(Client(world).joined(), {"channel": "/h/a", **asked})
    assert answer["successful"]
    messages = answer["data"]["messages"]
    assert data_of(messages) == expected
    assert all(each.keys() == {"channel", "data", "id"} for each in messages)


def test_a_session_that_is_told_the_origin_of_messages_is_told_it_here_too(world: StoredWorld) -> None:
    publish(world, 1)
    (message,) = get(Receiver(world).started(), {"channel": "/h/a"})["data"]["messages"]
    assert origin(message)["id"] == message["id"]
    assert "initial" not in origin(message)


@pytest.mark.parametrize("channel", ["/unknown", "/h/never"])
def test_a_topic_without_messages_has_none(world: StoredWorld, channel: str) -> None:
    assert get(Client(world).joined(), {"channel": channel})["data"] == {"messages": []}


@pytest.mark.parametrize(
    "data", [None, {}, {"channel": "/h/*"}, {"channel": 5}, {"channel": "/service/get"}, {"channel": "/a", "x": 1}]
)
def test_a_call_that_makes_no_sense_says_why(world: StoredWorld, data: Any) -> None:
    answer = get(Client(world).joined(), data)
    assert answer["successful"] is False
    assert answer["data"]["errorCode"] == "user.illegalArgument"
    assert answer["data"]["message"]


def test_who_may_not_subscribe_may_not_read(world: StoredWorld) -> None:
    service = Service("secrets")
    service.authorizer("/h/secret")(lambda *question: Deny("no"))
    world.broker.install([service])
    publish(world, 1, channel="/h/secret")
    for channel in ("/h/secret", "/__sys__deadMessage", "/ret/0123456789abcdef/3000001"):
        answer = get(Client(world).joined(), {"channel": channel})
        assert answer["successful"] is False
        assert answer["data"]["errorCode"] == "user.security.authorization.notAuthorized"


def test_a_store_that_is_away_is_told(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(world, 1)

    async def fail(step: Any, **_: Any) -> None:
        raise StoreUnavailable("away")

    client = Client(world).joined()
    monkeypatch.setattr(world.access.writing, "ask", fail)
    answer = get(client, {"channel": "/h/a"})
    assert (answer["successful"], answer["data"]["errorCode"]) == (False, "resource.unavailable")


def test_no_more_than_one_response_holds(make_stored: MakeStored) -> None:
    world = make_stored(RULES, "bayeux.max_response_bytes=4096")
    publish(world, *("x" * 1500 for _ in range(5)))
    answer = get(Client(world).joined(), {"channel": "/h/a", "numEntries": -1})
    assert len(answer["data"]["messages"]) == 2


def test_what_was_published_before_is_there(world: StoredWorld) -> None:
    client = Client(world).joined()
    publisher = Client(world).joined()
    message = client.message("/service/get", data={"channel": "/h/a"})
    request = publisher.send(
        publisher.message("/h/a", data=1, ext={"publish": {"persistent": True}}),
    )
    answer = client.send(message)
    world.settle()
    assert request.received[0]["successful"]
    came = [*answer.received, *client.connect(advice={"timeout": 0}).answer]
    assert data_of(next(each for each in came if "data" in each)["data"]["messages"]) == [1]


def test_operators_see_it_in_either_order(world: StoredWorld) -> None:
    publish(world, 1, 2, 3)
    channel = parse("/h/a")
    assert channel is not None
    past = world.broker.subscriptions.histories.shown
    assert data_of(world.wait(past(channel, 2, True))) == [3, 2]
    assert data_of(world.wait(past(channel, None, False))) == [1, 2, 3]


def test_without_a_store_there_is_no_past() -> None:
    world = World()
    client = Client(world).joined()
    request = client.send(client.message("/service/get", data={"channel": "/a"}))
    world.settle()
    came = [*request.received, *client.connect(advice={"timeout": 0}).answer]
    assert data_of(came) == [{"messages": []}]
    world.close()
