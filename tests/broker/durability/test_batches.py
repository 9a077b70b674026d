"""The persistent messages of one request: stored together, answered and delivered in their order."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from crewel.bayeux.message import Fields
from crewel.broker.services import Service
from crewel.broker.writing.store_phase import StorePhase
from crewel.security.grants import OPERATOR
from tests.broker.stored_world import Receiver, StoredWorld, data
from tests.broker.world import Client, Recording, Socket

PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine a request would be divided among several turns, and so into several steps."""
    monkeypatch.setattr("crewel.fair_turns.PORTION_S", 60.0)


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    """A client that hears /a and /b."""
    return Receiver(stored).started("/a", "/b", name="joe/1")


def groups(world: StoredWorld) -> list[int]:
    """How many messages each step of the store put into the log."""
    found: Any = world.wait(world.store.reader.xrange(world.store.keys.facts))
    facts = [orjson.loads(fields[b"d"]) for _, fields in found if fields[b"t"] == b"published"]
    return [len(fact["channels"]) for fact in facts]


def replies(peer: Recording) -> list[Fields]:
    return [each for each in peer.received if "data" not in each]


@pytest.mark.parametrize("is_socket", [False, True])
def test_persistent_messages_of_one_request_are_stored_in_one_step(
    stored: StoredWorld, joe: Receiver, is_socket: bool
) -> None:
    eve = Client(stored, Socket() if is_socket else None).joined()
    messages = [eve.message("/a", data=number, **PERSISTENT) for number in range(20)]
    peer = eve.send(*messages)
    stored.settle()
    assert groups(stored) == [20]
    assert [each["id"] for each in replies(peer)] == [each["id"] for each in messages]
    ids = [int(each["ext"]["publish"]["id"]) for each in replies(peer)]
    assert ids == sorted(set(ids))
    assert data(joe.take()) == list(range(20))


def test_messages_of_one_request_arrive_in_their_order_whether_or_not_they_are_stored(
    stored: StoredWorld, joe: Receiver
) -> None:
    eve = Client(stored).joined()
    kinds: list[dict[str, Any]] = [PERSISTENT, PERSISTENT, {}, PERSISTENT, {}, {}, PERSISTENT, PERSISTENT]
    eve.send(*(eve.message("/a", data=number, **kind) for number, kind in enumerate(kinds)))
    stored.settle()
    assert data(joe.take()) == list(range(len(kinds)))
    assert groups(stored) == [2, 1, 2]


def test_a_refused_message_is_answered_in_its_place(stored: StoredWorld, joe: Receiver) -> None:
    eve = Client(stored).joined()
    bad = {"ext": {"publish": {"persistent": True, "priority": 99}}}
    peer = eve.send(
        *(eve.message("/a", data=number, **(bad if number in (1, 3) else PERSISTENT)) for number in range(5))
    )
    stored.settle()
    assert [each["successful"] for each in replies(peer)] == [True, False, True, False, True]
    assert groups(stored) == [3]
    assert data(joe.take()) == [0, 2, 4]


def test_a_subscribe_between_persistent_messages_is_owed_those_after_it(stored: StoredWorld) -> None:
    ann = Receiver(stored).started(name="ann/1")
    ann.send(
        ann.message("/a", data=0, **PERSISTENT),
        ann.message("/a", data=1, **PERSISTENT),
        ann.message("/meta/subscribe", subscription="/a"),
        ann.message("/a", data=2, **PERSISTENT),
        ann.message("/meta/unsubscribe", subscription="/a"),
        ann.message("/a", data=3, **PERSISTENT),
    )
    stored.settle()
    assert data(ann.take()) == [2]


def test_messages_after_a_disconnect_are_not_published(stored: StoredWorld, joe: Receiver) -> None:
    eve = Client(stored).joined()
    peer = eve.send(
        eve.message("/a", data=0, **PERSISTENT),
        eve.message("/meta/disconnect"),
        eve.message("/a", data=1, **PERSISTENT),
    )
    stored.settle()
    assert [each["successful"] for each in replies(peer)] == [True, True, False]
    assert data(joe.take()) == [0]


def test_a_listener_that_waits_holds_up_what_follows(stored: StoredWorld, joe: Receiver) -> None:
    service = Service("slow")

    @service.listener("/a")
    async def listen(session: object, message: object) -> None:
        return None

    stored.broker.install([service])
    eve = Client(stored).joined()
    peer = eve.send(*(eve.message("/a" if number % 2 else "/b", data=number, **PERSISTENT) for number in range(6)))
    for _ in range(10):
        stored.settle()
    assert [each["successful"] for each in replies(peer)] == [True] * 6
    assert data(joe.take()) == list(range(6))


def test_without_room_in_the_store_each_message_is_refused(stored: StoredWorld, joe: Receiver) -> None:
    stored.access.phase = StorePhase.SUPERSEDED
    eve = Client(stored).joined()
    peer = eve.send(*(eve.message("/a", data=number, **PERSISTENT) for number in range(3)))
    stored.settle()
    assert [each["error"] for each in replies(peer)] == ["503::resource.unavailable"] * 3


@pytest.mark.parametrize("is_persistent", [True, False])
@pytest.mark.parametrize("face", ["socket", "polling", "back end"])
def test_a_message_with_a_destination_is_not_overtaken(
    stored: StoredWorld, joe: Receiver, face: str, is_persistent: bool
) -> None:
    """It is stored for its destination first, and then for its subscribers."""
    to = {"to": "ann", "forceQueuing": True}
    asked = {"publish": {"destination": to, "persistent": is_persistent}}
    kinds: list[dict[str, Any]] = [{"ext": asked}, PERSISTENT, {"ext": asked}, PERSISTENT, PERSISTENT]
    messages: list[Fields] = [{"channel": "/a", "data": number, **kind} for number, kind in enumerate(kinds)]
    if face == "back end":
        answers = stored.wait(stored.broker.publishing.for_back_ends.post(OPERATOR, messages))
    else:
        eve = Client(stored, Socket() if face == "socket" else None).joined()
        peer = eve.send(*(eve.message(**each) for each in messages))
        stored.settle()
        answers = replies(peer)
    stored.settle()
    assert [each["successful"] for each in answers] == [True] * len(kinds)
    assert data(joe.take()) == list(range(len(kinds)))
    assert stored.broker.addressing.destinations.waiting("ann") == 2
