"""The batches of a session that the store has. Their numbers begin after those that were used, also after a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crewel.broker.session import Session, SessionPart
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import BATCH_BLOCK
from tests.broker.stored_world import Receiver, StoredWorld, store

SPARE = 500


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    return Receiver(stored).started("/a", name="joe/1", update=False)


def durable_of(client: Receiver) -> DurableSession:
    durable = client.session.durable
    assert durable is not None
    return durable


def take_by_a_connect(joe: Receiver) -> None:
    joe.take()


def take_by_a_held_connect(joe: Receiver) -> None:
    request = joe.reconnect()
    assert request.is_held
    store(joe.world, "/a", 1)
    joe.heard(request)


@pytest.mark.parametrize("take", [take_by_a_connect, take_by_a_held_connect])
def test_more_numbers_are_reserved_before_those_that_are_run_out(
    joe: Receiver, take: Callable[[Receiver], None]
) -> None:
    durable = durable_of(joe)
    reserved = durable.batch
    joe.session.mailbox._batches.number = reserved - SPARE
    joe.ack = reserved - SPARE - 1
    take(joe)
    assert joe.ack == reserved - SPARE
    assert durable.batch == reserved
    for _ in range(3):
        take(joe)
        assert durable.batch == reserved + BATCH_BLOCK
    joe.session.mailbox._batches.number = reserved + BATCH_BLOCK - SPARE + 1
    joe.ack = reserved + BATCH_BLOCK - SPARE
    take(joe)
    assert durable.batch == reserved + 2 * BATCH_BLOCK


def test_the_next_commit_has_the_store_reserve_them(stored: StoredWorld, joe: Receiver) -> None:
    joe.session.mailbox._batches.number = durable_of(joe).batch
    joe.ack = durable_of(joe).batch - 1
    joe.take()
    stored.commit()
    assert durable_of(joe).take_change(stored.access.node.cursor, stored.access.node.cursor) is None


class Withholds(SessionPart):
    """Lets no message through."""

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        return []


@pytest.mark.parametrize("is_last", [True, False])
def test_what_a_part_takes_out_of_a_response_ends_with_its_acknowledgement(joe: Receiver, is_last: bool) -> None:
    part = Withholds()
    joe.session.add_part(part)
    if not is_last:
        own = joe.session.parts[0]
        joe.session.remove_part(own)
        joe.session.add_part(own)
    store(joe.world, "/a", 1)
    assert joe.take() == []
    joe.take()
    assert not durable_of(joe).pending
