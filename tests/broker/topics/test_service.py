"""The remote call `/service/erase`: which clients may call it, and its answers."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Fields, Message
from crewel.broker.session import Session
from crewel.broker.topics.erase_service import ERASE_SERVICE
from crewel.security.grants import OPERATOR, Grants, Role
from crewel.security.policy import GRANTED, Answer, OpenPolicy, Refusal
from tests.broker.stored_world import Receiver, StoredWorld, store
from tests.broker.topics.test_endings import publish, state
from tests.broker.world import Client

NOT_AUTHORIZED = "user.security.authorization.notAuthorized"


class ByGrants(OpenPolicy):
    """Every session with a grant may configure."""

    def can_configure(self, session: Session, channel: Channel, message: Message) -> Answer:
        grants = session.grants
        return GRANTED if grants is not None and grants.may_configure(channel) else Refusal()

    def can_publish(self, session: Session, channel: Channel, message: Message) -> Answer:
        return Refusal() if channel.name == "/a/closed" else GRANTED


def call(client: Client, data: Any) -> tuple[bool, Any]:
    """Whether the call was successful, and its result. The publish of it always is."""
    message = client.message(ERASE_SERVICE, data=data)
    peer = client.send(message)
    world = client.world
    assert isinstance(world, StoredWorld)
    world.settle()
    replies = [each for each in peer.received if "data" not in each]
    assert [each["successful"] for each in replies] == [True]
    (result,) = [
        each for each in (*peer.received, *received(client)) if each.get("channel") == ERASE_SERVICE and "data" in each
    ]
    return result["successful"], result["data"]


def received(client: Client) -> list[Fields]:
    return client.connect(advice={"timeout": 0}).answer


def operator(world: StoredWorld) -> Client:
    client = Client(world).joined()
    client.session.authenticate(OPERATOR)
    return client


@pytest.mark.parametrize(("force", "then"), [(None, "SOFTERASED"), (False, "SOFTERASED"), (True, "DEAD")])
def test_an_operator_erases_a_topic(stored: StoredWorld, force: bool | None, then: str) -> None:
    Receiver(stored).started("/a/*")
    store(stored, "/a/b", 1)
    asked = {"channel": "/a/b"} | ({} if force is None else {"force": force})
    assert call(operator(stored), asked) == (True, {"channel": "/a/b", "state": then})
    assert state(stored, "/a/b").value == then


def test_others_erase_nothing_under_an_open_policy(stored: StoredWorld) -> None:
    publish(Client(stored).joined(), "/a/b", 1)
    successful, told = call(Client(stored).joined(), {"channel": "/a/b"})
    assert (successful, told["errorCode"]) == (False, NOT_AUTHORIZED)
    assert "/a/b" in told["message"]
    assert stored.broker.topics.table.find("/a/b") is not None


@pytest.mark.parametrize(
    ("channel", "may"), [("/a/b", True), ("/b/c", False), ("/a/closed", False)], ids=["granted", "not", "no publish"]
)
def test_a_grant_to_configure_is_one_to_erase(stored: StoredWorld, channel: str, may: bool) -> None:
    publish(Client(stored).joined(), channel, 1)
    stored.broker.set_policy(ByGrants())
    client = Client(stored).joined()
    client.session.grants = Grants("joe", configure=frozenset(["/a/*"]))
    assert call(client, {"channel": channel})[0] is may
    assert (stored.broker.topics.table.find(channel) is None) is may


@pytest.mark.parametrize("role", list(Role))
def test_operator_erases_if_the_role_is_to_destroy(stored: StoredWorld, role: Role) -> None:
    publish(Client(stored).joined(), "/a/b", 1)
    stored.broker.set_policy(ByGrants())
    client = Client(stored).joined()
    client.session.authenticate(Grants("joe", role=role))
    assert call(client, {"channel": "/a/b"})[0] is (role is Role.DESTROY)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "channel"),
        ("/a/b", "data"),
        ({"channel": "/a/*"}, "the name of a channel"),
        ({"channel": "/service/x"}, "the name of a channel"),
        ({"channel": "/a/b", "force": 1}, "force"),
        ({"channel": "/a/unknown"}, "there is no topic /a/unknown"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(stored: StoredWorld, asked: Any, words: str) -> None:
    successful, told = call(operator(stored), asked)
    assert (successful, told["errorCode"]) == (False, "user.illegalArgument")
    assert words in told["message"]


def test_a_service_channel_without_a_handler_is_acknowledged_and_told_to_who_asks(stored: StoredWorld) -> None:
    client = Client(stored).joined()
    assert client.publish("/service/nothing", 1) == {"channel": "/service/nothing", "successful": True, "id": "3"}
    assert client.publish("/service/nothing", 1, ext={"service": {}})["ext"] == {"service": {"handled": False}}
    assert "ext" not in client.publish("/service/get", {"channel": "/a"}, ext={"service": {}})
    assert stored.broker.metrics.unhandled == 2
