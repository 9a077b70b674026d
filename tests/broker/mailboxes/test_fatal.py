"""Statuses that end a session or let it reject everything: what the same request settles is settled before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, failed, ok, origin, store
from tests.broker.world import Socket

SINK = "delivery.on_user_error=dead"
FATAL = {
    "communication.timeout": (),
    "user.security.authentication.accessDenied": (),
    "user.update.error": (SINK,),
}
Letters = list[tuple[str, str]]


@pytest.fixture(params=FATAL)
def code(request: pytest.FixtureRequest) -> str:
    """Each code that ends more than its message."""
    return str(request.param)


@pytest.fixture
def world(make_stored: MakeStored, code: str) -> StoredWorld:
    """A server on which the code does so."""
    return make_stored(*FATAL[code])


def letters(world: StoredWorld) -> Letters:
    """Message id and code of each dead letter."""
    return [(each.id, each.code) for each in world.letters()]


def settled(world: StoredWorld) -> list[str]:
    """The ids of what ended as settled."""
    return sorted(str(place) for _, reason, place in world.ended() if reason == "settled")


def received(world: StoredWorld, joe: Receiver, count: int = 5) -> list[dict[str, Any]]:
    """Publish so many persistent messages and have them delivered."""
    store(world, "/a", *range(count))
    messages = joe.take()
    assert len(messages) == count
    return messages


def ids(*messages: dict[str, Any]) -> list[str]:
    return sorted(str(origin(each)["id"]) for each in messages)


def test_a_connect_settles_what_it_acknowledges_before_a_fatal_status(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1")
    messages = received(world, joe)
    joe.reconnect(failed(messages[2], code))
    assert letters(world) == [(origin(messages[2])["id"], code)]
    assert settled(world) == ids(*messages[:2], *messages[3:])


def test_a_connect_over_websocket_does_so_too(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1")
    messages = received(world, joe)
    joe.socket = Socket(joe.browser)
    joe.send(joe.message("/meta/connect", ext={"ack": joe.ack, "update": [failed(messages[0], code)]}))
    assert letters(world) == [(origin(messages[0])["id"], code)]
    assert settled(world) == ids(*messages[1:])


def test_messages_that_the_request_does_not_acknowledge_become_dead_letters(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1", burst={"maxEntries": 3})
    store(world, "/a", *range(5))
    messages = joe.take()
    late = store(world, "/a", 5)
    joe.reconnect(failed(messages[0], code))
    assert {each for _, each in letters(world)} == {code}
    assert settled(world) == ids(*messages[1:])
    assert late[0] in [each for each, _ in letters(world)]
    assert len(letters(world)) == 4


def test_successes_of_one_list_count_before_its_fatal_status(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1", settle="message")
    messages = received(world, joe)
    joe.tell(failed(messages[0], code), *map(ok, messages[1:]))
    assert letters(world) == [(origin(messages[0])["id"], code)]
    assert settled(world) == ids(*messages[1:])


def test_a_later_message_of_the_same_request_acknowledges_first(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1")
    messages = received(world, joe)
    joe.send(
        joe.message("/service/update", data=[failed(messages[4], code)]),
        joe.message("/meta/connect", connectionType="long-polling", ext={"ack": joe.ack}),
    )
    assert letters(world) == [(origin(messages[4])["id"], code)]
    assert settled(world) == ids(*messages[:4])


def test_later_statuses_of_the_same_request_count_first(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1", settle="message")
    messages = received(world, joe)
    joe.send(
        joe.message(
            "/meta/connect", connectionType="long-polling", ext={"ack": joe.ack, "update": [failed(messages[0], code)]}
        ),
        joe.message("/service/update", data=[ok(each) for each in messages[1:]]),
    )
    assert letters(world) == [(origin(messages[0])["id"], code)]
    assert settled(world) == ids(*messages[1:])


def test_a_request_that_waits_for_the_store_concludes_when_it_is_answered(world: StoredWorld, code: str) -> None:
    joe = Receiver(world).started("/a", name="joe/1", settle="message")
    messages = received(world, joe, 3)
    joe.send(
        joe.message("/service/update", data=[failed(messages[0], code)]),
        joe.message("/meta/subscribe", subscription="/b"),
        joe.message("/service/update", data=[ok(each) for each in messages[1:]]),
    )
    assert letters(world) == [(origin(messages[0])["id"], code)]
    assert settled(world) == ids(*messages[1:])


def test_the_client_has_to_shake_hands_after_a_fatal_status(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    messages = received(stored, joe)
    joe.reconnect(failed(messages[0], "communication.timeout"))
    assert not joe.is_known
    reply = joe.connect().answer[-1]
    assert reply["error"].startswith("402")
    assert reply["advice"]["reconnect"] == "handshake"
