"""A server takes the sessions of one that still lives, a slice at a time: what that one asks the store in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crewel.broker.durability import durability
from crewel.broker.durability.durability import Durability
from crewel.broker.writing.store_phase import StorePhase
from crewel.delivery.records import SessionName, SessionRecord, Submission
from crewel.storage import log, shared_queue_store
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.shared_queue_store import Addressed, Delivery
from crewel.storage.store import Store
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, store
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


def test_sessions_are_restored_while_the_store_moves_the_next_ones(
    stored: StoredWorld, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a start takes no longer than the slower of the two, and holds the records of one slice."""
    for name in NAMES:
        Receiver(stored).started(name=name)
    next_records, restored = Durability._next_records, list[int]()

    async def note(self: Durability) -> list[SessionRecord]:
        restored.append(len(self._access.node.sessions))
        return await next_records(self)

    monkeypatch.setattr(durability, "_ADOPTED_AT_ONCE", 1)
    monkeypatch.setattr(Durability, "_next_records", note)
    heir = make_stored(prefix=stored.prefix)
    assert len(restored) == len(NAMES) + 1
    assert restored[-1] > 0
    assert len(heir.access.node.sessions) == len(NAMES)


@pytest.fixture
def lose_its_place(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> Callable[[StoredWorld, bool], StoredWorld]:
    """Make a server after this one that the store does not know any more when it has asked for its last step: it learns that
    at once, from the renewal of its lease. With true, another server has started since."""

    def make(former: StoredWorld, is_replaced: bool) -> StoredWorld:
        next_records, read_queues, starting = Durability._next_records, durability.stored_queues, list[Durability]()

        async def note(self: Durability) -> list[SessionRecord]:
            starting.append(self)
            return await next_records(self)

        async def and_lose(store: Store) -> list[str]:
            monkeypatch.setattr(durability, "stored_queues", read_queues)
            access = starting[0]._access
            await store.reader.delete(access.keys.node(access.token))
            if is_replaced:
                await store.reader.incr(access.keys.epoch)
            await starting[0].lease._renew(access.token, 1.0)
            return await read_queues(store)

        monkeypatch.setattr(Durability, "_next_records", note)
        monkeypatch.setattr(durability, "stored_queues", and_lose)
        return make_stored(prefix=former.prefix)

    return make


def test_a_server_that_loses_its_lease_while_it_starts_reads_all_again_when_it_has_started(
    stored: StoredWorld,
    lose_its_place: Callable[[StoredWorld, bool], StoredWorld],
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver = Receiver(stored).started("/news", name="joe/1")
    heir = lose_its_place(stored, False)
    while heir.access.token == heir.durability.lease.own[0] or heir.access.phase is not StorePhase.SERVING:
        heir.wait(heir.store.reader.ping())
    store(heir, "/news", "meanwhile")
    assert come(heir, receiver) == ["meanwhile"]
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_server_that_is_replaced_while_it_starts_gives_way_when_it_has_started(
    stored: StoredWorld, lose_its_place: Callable[[StoredWorld, bool], StoredWorld]
) -> None:
    Receiver(stored).started("/news", name="joe/1")
    heir = lose_its_place(stored, True)
    assert heir.access.phase in (StorePhase.SERVING, StorePhase.SUPERSEDED)
    while heir.access.phase is StorePhase.SERVING:
        heir.wait(heir.store.reader.ping())
    assert heir.access.phase is StorePhase.SUPERSEDED
