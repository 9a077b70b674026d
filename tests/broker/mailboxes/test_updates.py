"""Sessions that ask for updates and acknowledge nothing: they receive the origin of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from tests.broker.addressing.post import Clerk
from tests.broker.mailboxes.test_unsendable import store_malformed
from tests.broker.stored_world import StoredWorld, data, origin, store
from tests.broker.world import Client, Socket


@pytest.fixture(params=[True, False], ids=["websocket", "long-polling"])
def joined(request: pytest.FixtureRequest, stored: StoredWorld) -> Callable[..., Client]:
    """A session of either transport that asks for updates without `ext.ack`."""

    def join(*channels: str, **session: Any) -> Client:
        client = Client(stored, Socket() if request.param else None)
        reply = client.handshake(ext={"session": {"update": True, **session}})
        assert reply["ext"]["session"]["update"] is False
        client.send(client.message("/meta/connect"))
        client.subscribe(*channels)
        if client.socket is not None:
            client.socket.take()
        return client

    return join


def come(client: Client) -> list[Fields]:
    """What has come for the client."""
    client.world.settle()
    if client.socket is not None:
        return [each for each in client.socket.take() if "data" in each]
    return [each for each in client.connect(advice={"timeout": 0}).answer if "data" in each]


def test_deliveries_tell_the_origin(stored: StoredWorld, joined: Callable[..., Client]) -> None:
    client, clerk = joined("/a", "/b/*"), Clerk(stored)
    qos = {"persistent": True, "priority": 7, "clientProperties": {"n": 1}}
    stored_id = clerk.publish("/a", 1, ext={"publish": qos})["ext"]["publish"]["id"]
    clerk.publish("/b/c", 2)
    first, second = come(client)
    assert data([first, second]) == [1, 2]
    told = origin(first)
    assert (told["id"], told["persistent"], told["priority"], told["clientProperties"]) == (
        stored_id,
        True,
        7,
        {"n": 1},
    )
    assert told["sender"].startswith("client/clerk/")
    assert origin(second)["subscription"] == "/b/*"
    assert "redeliver" not in told


def test_the_one_encoding_serves_all(stored: StoredWorld, joined: Callable[..., Client]) -> None:
    clients = [joined("/a") for _ in range(3)]
    store(stored, "/a", 1)
    first, second, third = ([message] for client in clients for message in come(client))
    assert first == second == third


def test_messages_to_somebody_and_of_a_history_tell_it_too(stored: StoredWorld, joined: Callable[..., Client]) -> None:
    stored.wait(stored.broker.publish_stored("/h", 1, qos={"history": {"maxEntries": 5}}))
    client = joined(name="joe/1")
    peer = client.send(client.message("/meta/subscribe", subscription="/h", ext={"subscribe": {}}))
    with_the_reply = [] if client.socket is not None else [each for each in peer.received if "data" in each]
    Clerk(stored).ask("hi", "client/joe/1")
    old, addressed = [*with_the_reply, *come(client)]
    assert origin(old)["initial"] is True
    assert (addressed["data"], origin(addressed)["subscription"]) == ("hi", "__subId:PtP")


def test_its_statuses_are_rejected(stored: StoredWorld, joined: Callable[..., Client]) -> None:
    client = joined("/a")
    store(stored, "/a", 1)
    (message,) = come(client)
    status = {"id": origin(message)["id"], "state": "OK"}
    (told,) = client.say("/service/update", data=[status])["ext"]["update"]["rejected"]
    assert told == status | {"reason": told["reason"]}
    assert "with ext.ack" in told["reason"]


def test_a_message_that_cannot_be_told_holds_up_nothing(stored: StoredWorld, joined: Callable[..., Client]) -> None:
    client = joined("/a")
    store(stored, "/a", 1)
    store_malformed(stored, "/a", 2)
    store(stored, "/a", 3)
    assert data(come(client)) == [1, 3]
    assert stored.letters() == []


def test_a_message_that_cannot_be_sent_leaves_nothing_behind(
    stored: StoredWorld, joined: Callable[..., Client]
) -> None:
    client = joined("/a")
    assert client.session in stored.broker.mailboxes.dispatchers.updated
    client.send(client.message("/meta/disconnect"))
    assert not stored.broker.mailboxes.dispatchers.updated


def test_a_session_that_does_not_ask_gets_none(stored: StoredWorld) -> None:
    client = Client(stored, Socket())
    client.handshake(ext={"session": {"name": "joe/1"}})
    client.send(client.message("/meta/connect"))
    client.subscribe("/a")
    client.socket.take()  # type: ignore[union-attr]
    store(stored, "/a", 1)
    (message,) = come(client)
    assert "ext" not in message
