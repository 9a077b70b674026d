"""Dead letters of full queues are charged to the accounts of their receivers: others do not wait, and there is a limit."""

from __future__ import annotations

import logging

import pytest

from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST
from crewel.delivery.records import EndReason
from tests.broker.durability.test_back_pressure import ask
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, store
from tests.broker.world import Client, Request

MOST = 4


class Elsewhere(Request):
    @property
    def remote(self) -> str | None:
        return "198.51.100.1"


class Other(Client):
    """A client at another address."""

    def send(self, *messages: dict[str, object]) -> Elsewhere:
        peer = Elsewhere(self.browser)
        self.world.receive(peer, *messages)
        if peer.mints_cookie:
            self.browser = peer.browser
        return peer


def full(world: StoredWorld, name: str = "joe/1") -> Receiver:
    """A receiver of everything, whose queue is full after one message."""
    return Receiver(world).started("/**", name=name, queue={"maxEntries": 1})


@pytest.fixture
def flooded(make_stored: MakeStored) -> StoredWorld:
    world = make_stored()
    world.broker.mailboxes.pressure.max_dead_letters, world.access.node.max_dead_letters = MOST, 2
    full(world)
    store(world, "/a", "fills the queue", *range(MOST + 1))
    assert world.broker.mailboxes.pressure.is_on
    return world


def test_publishers_of_other_accounts_do_not_wait(flooded: StoredWorld) -> None:
    assert ask(Other(flooded).joined(), "/a").answer[0]["successful"]
    assert flooded.broker.metrics.publishes_delayed == 0


def test_publishers_of_the_account_wait(flooded: StoredWorld) -> None:
    request = ask(Client(flooded).joined(), "/a")
    assert request.is_held
    flooded.commit()
    assert request.answer[0]["successful"]


def test_publishers_of_other_accounts_do_not_wait_while_messages_wait_for_full_queues(flooded: StoredWorld) -> None:
    """One request waited for 1.8 s of the processor, because 1,000 receivers with full queues had its channel too."""
    fan_outs, pressure = flooded.broker.mailboxes.outbound.fan_outs, flooded.broker.mailboxes.pressure
    fan_outs.many = 2
    for _ in range(3):
        fan_outs.add("/b", iter([None]))
    assert fan_outs.keeps_busy("/b")
    assert pressure.delays("/b", ("address 192.0.2.1",))
    assert not pressure.delays("/b", ("address 198.51.100.1",))
    flooded.commit()
    for _ in range(3):
        fan_outs.add("/b", iter([None]))
    pressure.update()
    assert pressure.delays("/b", ("address 198.51.100.1",))


def test_publishers_of_others_do_not_wait_while_messages_of_a_flood_do(flooded: StoredWorld) -> None:
    fan_outs, pressure = flooded.broker.mailboxes.outbound.fan_outs, flooded.broker.mailboxes.pressure
    fan_outs.many, fan_outs.are_many = 2, True
    flooded.commit()
    for _ in range(3):
        fan_outs.add("/b", iter([None]))
    pressure.update()
    assert pressure.delays("/b", ("address 192.0.2.1",))
    assert not pressure.delays("/b", ("address 198.51.100.1",))
    fan_outs.are_many = False
    pressure.update()
    fan_outs.are_many = True
    pressure.update()
    assert pressure.delays("/b", ("address 198.51.100.1",))


def test_the_account_of_a_flood_is_found_before_the_next_commit(make_stored: MakeStored) -> None:
    """Many messages waited first, and nothing was looked at again before 27,000 of them were dead letters: publishers of others
    waited for 1.2 to 2.5 s."""
    world = make_stored()
    fan_outs, pressure = world.broker.mailboxes.outbound.fan_outs, world.broker.mailboxes.pressure
    pressure.max_dead_letters, world.access.node.max_dead_letters = MOST, 2
    full(world)
    fan_outs.many, fan_outs.slice_s = 2, 0  # one step a turn: enough for a store that answers late
    for _ in range(3):
        fan_outs.add("/b", iter([None] * 30_000))
    assert pressure.delays("/b", ("address 198.51.100.1",))
    store(world, "/a", "fills the queue", *range(MOST + 1))
    assert fan_outs.keeps_busy("/b")
    assert pressure.delays("/b", ("address 192.0.2.1",))
    assert not pressure.delays("/b", ("address 198.51.100.1",))


def test_the_limit_of_an_account_is_lower_while_many_messages_wait_for_receivers(make_stored: MakeStored) -> None:
    world = make_stored()
    world.broker.mailboxes.pressure.max_dead_letters = 1
    receiver, fan_outs = full(world), world.broker.mailboxes.outbound.fan_outs
    store(world, "/a", *range(20))
    assert receiver.id in world.broker.sessions.by_id
    fan_outs.are_many = True
    store(world, "/a", 20, 21)
    assert receiver.id not in world.broker.sessions.by_id


def test_receivers_of_an_account_beyond_its_limit_end_and_nothing_is_lost(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_stored("limits.max_pending_dead_letters=10")
    receivers = [full(world, f"joe{number}/1") for number in range(3)]
    with caplog.at_level(logging.WARNING):
        ids = store(world, "/a", *range(12))
        world.commit()
        world.commit()
        world.broker.sweep()
    assert not any(each.id in world.broker.sessions.by_id for each in receivers)
    found = {(each.id, each.receiver) for each in world.letters()}
    assert "resource.exhaust" in {each.code for each in world.letters()}
    for name in ("client/joe0/1", "client/joe1/1", "client/joe2/1"):
        got = [each for each in ids if (each, name) in found]
        assert got == ids[: len(got)], name  # all up to the end of the session
        assert got
    assert sum("max_pending_dead_letters, the last of address 192.0.2.1" in each for each in caplog.messages) == 1
    assert world.broker.metrics.limited["max_pending_dead_letters"]


def test_a_receiver_that_is_away_during_a_load_keeps_its_session(make_stored: MakeStored) -> None:
    world = make_stored()
    receiver = full(world)
    store(world, "/a", *range(300))
    world.commit()
    assert receiver.id in world.broker.sessions.by_id
    assert len(world.letters()) == 299


def test_a_session_that_ends_with_many_messages_leaves_a_dead_letter_of_each(make_stored: MakeStored) -> None:
    world = make_stored()
    count = 2 * MAX_DEAD_LETTER_COST + 50
    receiver = Receiver(world).started("/a", name="joe/1")
    store(world, "/a", *range(count))
    world.commit()
    receiver.say("/meta/disconnect")
    for _ in range(5):
        world.commit()
    assert len(world.letters()) == count
    assert "client/joe/1" not in world.access.node.sessions


def test_a_server_that_takes_over_in_the_middle_of_an_end_makes_the_other_dead_letters(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_stored()
    count = 2 * MAX_DEAD_LETTER_COST + 50
    receiver = Receiver(world).started("/a", name="joe/1")
    store(world, "/a", *range(count))
    world.commit()
    commit, ended = world.access.node.commit, world.broker.metrics.ended
    monkeypatch.setattr(world.access.node, "commit", lambda: None if ended[EndReason.DEAD] else commit())
    receiver.say("/meta/disconnect")
    world.commit()
    assert 0 < len(world.letters()) < count
    world.crash()
    successor = make_stored(prefix=world.prefix)
    for _ in range(5):
        successor.commit()
    assert len(successor.letters()) == count
