"""A server takes the sessions of one that still lives, a slice at a time: what that one asks the store in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crewel.broker.durability import durability
from crewel.broker.durability.durability import Durability
from crewel.delivery.records import SessionName, SessionRecord, Submission
from crewel.storage import log, shared_queue_store
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.shared_queue_store import Addressed, Delivery
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld
from tests.storage.owner import FACTS_MAX, Owner

pytestmark = pytest.mark.store

NAMES = ("joe/1", "joe/2")
BODY = b'{"channel":"/news","data":"meanwhile"}'
TakeOver = Callable[[StoredWorld, Callable[[Keys, str], Step[Any]]], StoredWorld]


@pytest.fixture
def take_over(make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch) -> TakeOver:
    """Make a server that takes the sessions of this one singly. When it has the first, the old one asks for this step."""

    def make(former: StoredWorld, step: Callable[[Keys, str], Step[Any]]) -> StoredWorld:
        next_records, token, asked = Durability._next_records, former.access.token, list[object]()

        async def and_meanwhile(self: Durability) -> list[SessionRecord]:
            records = await next_records(self)
            if not asked:
                store = self._access.store
                asked.append(await Owner(store, token).do(step(store.keys, token)))
            return records

        monkeypatch.setattr(durability, "_ADOPTED_AT_ONCE", 1)
        monkeypatch.setattr(Durability, "_next_records", and_meanwhile)
        return make_stored(prefix=former.prefix)

    return make


def come(world: StoredWorld, receiver: Receiver) -> list[object]:
    """What this client gets when it comes to the new server."""
    client = Receiver(world, browser=receiver.browser)
    client.id, client.ack = receiver.id, receiver.ack
    world.settle()
    return [each["data"] for each in client.take()]


def test_what_the_old_server_sends_by_name_reaches_sessions_that_have_been_taken(
    stored: StoredWorld, take_over: TakeOver
) -> None:
    receivers = [Receiver(stored).started(name=name) for name in NAMES]

    def send(keys: Keys, token: str) -> Step[Any]:
        to_each = [Delivery("client/joe", SessionName(f"client/{name}"), source="client/joe") for name in NAMES]
        return shared_queue_store.send(keys, token, Addressed("/news", BODY), to_each, FACTS_MAX)

    heir = take_over(stored, send)
    assert [come(heir, each) for each in receivers] == [["meanwhile"], ["meanwhile"]]


def test_what_the_old_server_publishes_reaches_all_sessions_without_a_further_message(
    stored: StoredWorld, take_over: TakeOver
) -> None:
    receivers = [Receiver(stored).started("/news", name=name) for name in NAMES]

    def publish(keys: Keys, token: str) -> Step[Any]:
        return log.append(keys, token, [Submission("/news", BODY)], FACTS_MAX)

    heir = take_over(stored, publish)
    assert [come(heir, each) for each in receivers] == [["meanwhile"], ["meanwhile"]]
