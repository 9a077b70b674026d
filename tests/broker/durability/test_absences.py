"""How long sessions live whose clients do not come back to any server: what passed before a restart counts, and the grace is
added once."""

from __future__ import annotations

import time

import pytest

from crewel.broker.session import Session
from crewel.delivery.records import SessionName
from crewel.errors import Behind
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, store

GRACE_S = 60.0
TIMEOUT_S = 100.0


def lives_for(world: StoredWorld, name: str = "client/joe/1") -> float:
    """Seconds until the session ends, if its client does not come."""
    session: Session = world.access.node.sessions[SessionName(name)].connected
    return session.expires_at - world.loop.time()


def later(world: StoredWorld, seconds: float, name: str = "client/joe/1") -> None:
    """Let the record be as if the server had died so long ago, and nothing had happened since."""
    key = world.store.keys.session(name)
    token, *times = world.wait(world.store.reader.hget(key, "away")).decode().split()
    moved = [int(each) and int(each) - int(seconds * 1000) for each in times]
    world.wait(world.store.reader.hset(key, "away", f"{token} {moved[0]} {moved[1]}"))


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    return Receiver(stored).started("/a", name="joe/1", timeout=int(TIMEOUT_S * 1000))


def test_restarts_do_not_begin_its_time_again(stored: StoredWorld, joe: Receiver, make_stored: MakeStored) -> None:
    store(stored, "/a", "waits")
    world = stored
    for passed in (0, 40, 80, 120):
        world.crash()
        world = make_stored(prefix=stored.prefix)
        assert lives_for(world) == pytest.approx(TIMEOUT_S + GRACE_S - passed, abs=5)
        later(world, 40)
    world.crash()
    world = make_stored(prefix=stored.prefix)
    world.sweep_after(5)
    assert [each.code for each in world.letters()] == ["communication.noConnection.dead"]


@pytest.mark.parametrize("gone", [30, 95])
def test_what_passed_before_the_first_restart_counts(
    stored: StoredWorld, joe: Receiver, make_stored: MakeStored, gone: int
) -> None:
    stored.sweep_after(15)
    stored.commit()
    later(stored, gone - 15)
    stored.crash()
    first = make_stored(prefix=stored.prefix)
    left = max(TIMEOUT_S - gone, GRACE_S)
    assert lives_for(first) == pytest.approx(left, abs=8)
    later(first, 20)
    first.crash()
    assert lives_for(make_stored(prefix=stored.prefix)) == pytest.approx(left - 20, abs=8)


def test_a_client_that_was_there_has_all_its_time_again(
    stored: StoredWorld, joe: Receiver, make_stored: MakeStored
) -> None:
    stored.crash()
    world = make_stored(prefix=stored.prefix)
    later(world, 150)
    again = Receiver(world, browser=joe.browser)
    again.id, again.ack = joe.id, joe.ack
    store(world, "/a", 1)
    assert data(again.take()) == [1]
    assert "away" not in world.record(again.session)
    world.crash()
    assert lives_for(make_stored(prefix=stored.prefix)) == pytest.approx(TIMEOUT_S + GRACE_S, abs=5)


def test_a_login_counts_as_the_client(stored: StoredWorld, joe: Receiver, make_stored: MakeStored) -> None:
    stored.crash()
    world = make_stored(prefix=stored.prefix)
    later(world, 150)
    Receiver(world).taking_over(joe, name="joe/1")
    assert not world.wait(world.store.reader.hexists(world.store.keys.session("client/joe/1"), "away"))


def test_what_was_written_before_a_server_of_an_earlier_version_does_not_count(
    stored: StoredWorld, joe: Receiver, make_stored: MakeStored
) -> None:
    """It does not note that a client has come."""
    stored.crash()
    world = make_stored(prefix=stored.prefix)
    key, reader = world.store.keys.session("client/joe/1"), world.store.reader
    world.wait(reader.hset(key, "away", f"earlier {int(time.time() * 1000) - 3_600_000} 0"))
    world.crash()
    assert lives_for(make_stored(prefix=stored.prefix)) == pytest.approx(TIMEOUT_S + GRACE_S, abs=5)


def test_reading_all_sessions_again_does_not_begin_their_time_again(stored: StoredWorld, joe: Receiver) -> None:
    stored.sweep_after(15)
    stored.commit()
    later(stored, 70)
    stored.wait(stored.durability._lost(Behind("it is not what it was")))
    assert lives_for(stored) == pytest.approx(GRACE_S, abs=5)
    later(stored, 30)
    stored.wait(stored.durability._lost(Behind("it is not what it was")))
    assert lives_for(stored) == pytest.approx(GRACE_S - 30, abs=5)
