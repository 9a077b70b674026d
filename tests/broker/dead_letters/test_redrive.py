"""Dead letters that are sent again at a rate: what is left for later costs nothing of it."""

from __future__ import annotations

from crewel.broker.dead_letters.redrive import Chosen, Limits, Report
from crewel.broker.dead_letters.room import Room
from tests.broker.stored_world import Receiver, StoredWorld, failed, store


def redriven(world: StoredWorld, room: Room | None = None, *, waiting: int = 0) -> Report:
    """What a call does that has no time to wait, at one dead letter a second, for two of a receiver with room for two."""
    joe = Receiver(world).started("/a", name="joe/1", settle="message", queue={"maxEntries": 2})
    store(world, "/a", 1, 2)
    joe.take(*(failed(each, "user.no") for each in joe.take()))
    assert len(world.letters()) == 2
    store(world, "/a", *range(waiting))
    limits = Limits(seconds=0.0, rate=1.0, room=room)
    return world.wait(world.broker.dead_letters.redrive.redrive(Chosen(), limits))


def test_a_rate_is_waited_for_after_each_that_is_sent(stored: StoredWorld) -> None:
    report = redriven(stored)
    assert (report.done, report.wait_s) == (1, 1.0)


def test_what_a_walk_passes_over_is_not_waited_for(stored: StoredWorld) -> None:
    report = redriven(stored, Room(60, only={}))
    assert (report.done, report.wait_s, report.next) == (0, 0.0, "")


def test_what_has_no_room_is_not_waited_for(stored: StoredWorld) -> None:
    report = redriven(stored, waiting=2)
    assert (report.done, report.wait_s, len(report.undone)) == (0, 0.0, 2)
