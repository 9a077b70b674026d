"""A redrive that waits for room: what each walk is about, where the next one begins, and when the patience ends."""

from __future__ import annotations

from crewel.broker.dead_letters import room as module
from crewel.broker.dead_letters.room import Room, room_of
from crewel.storage.dead_letter_store import RedriveOutcome

JOE, ANN = "client/joe/1", "client/ann/1"


def test_the_first_walk_goes_on_with_others_and_the_next_begins_at_the_first_that_was_left() -> None:
    room = Room(60)
    assert not room.passes_over(JOE)
    room.leave(JOE, "7-0")
    assert room.passes_over(JOE)  # what is older arrives first
    assert not room.passes_over(ANN)
    room.leave(ANN, "9-0")
    assert room.next_walk(3, 100.0, is_at_end=False) is None
    assert room.next_walk(0, 101.0, is_at_end=True) == "7-0"
    assert room.waits_for == [JOE, ANN]
    assert room.passes_over("client/sue/1")
    assert not room.passes_over(JOE)


def test_a_walk_in_vain_ends_as_soon_as_none_has_room() -> None:
    room = Room(60)
    room.leave(JOE, "7-0")
    assert room.next_walk(0, 100.0, is_at_end=True) == "7-0"
    assert room.next_walk(5, 101.0, is_at_end=False) is None
    room.leave(JOE, "12-0")
    assert room.next_walk(1, 102.0, is_at_end=False) == "12-0"


def test_all_is_done_when_a_walk_leaves_nothing() -> None:
    room = Room(60)
    assert room.next_walk(5, 100.0, is_at_end=True) is None
    room.leave(JOE, "")
    assert room.next_walk(0, 100.0, is_at_end=True) == ""
    assert room.next_walk(2, 101.0, is_at_end=True) is None


def test_its_patience_begins_again_with_each_message_that_is_moved() -> None:
    room = Room(10)
    room.leave(JOE, "7-0")
    assert room.next_walk(0, 100.0, is_at_end=True) == "7-0"
    room.leave(JOE, "7-0")
    assert room.next_walk(0, 109.9, is_at_end=False) == "7-0"
    assert not room.is_last
    room.leave(JOE, "8-0")
    assert room.next_walk(1, 115.0, is_at_end=False) == "8-0"
    room.leave(JOE, "8-0")
    assert room.next_walk(0, 125.0, is_at_end=False) == "8-0"
    assert room.is_last
    assert not room.may_leave  # it stays for good
    assert room.next_walk(0, 126.0, is_at_end=False) is None  # this walk goes to the end, to name each that stays
    assert room.next_walk(0, 127.0, is_at_end=True) is None


def test_of_very_many_receivers_some_are_waited_for() -> None:
    room = Room(60)
    for number in range(module.MOST):
        assert room.may_leave
        room.leave(f"client/joe/{number}", str(number))
    assert not room.may_leave
    room.leave("client/joe/0", "later")
    assert room.full["client/joe/0"] == "0"


def test_a_receiver_that_is_waited_for_may_come_back() -> None:
    room = Room(60)
    assert room.is_about(RedriveOutcome.FULL)
    assert not room.is_about(RedriveOutcome.NO_RECEIVER)
    room.leave(JOE, "7-0")
    room.next_walk(0, 1.0, is_at_end=True)
    assert room.is_about(RedriveOutcome.NO_RECEIVER)
    assert not room.is_about(RedriveOutcome.EMPTY)


def test_another_server_continues() -> None:
    room = Room(60)
    room.leave(JOE, "7-0")
    told = room.as_json()
    assert told == {"only": None, "full": {JOE: "7-0"}}
    again = room_of(60, told)
    assert again.next_walk(0, 5.0, is_at_end=True) == "7-0"
    third = room_of(60, again.as_json())
    assert (third.waits_for, third.full) == ([JOE], {})
    assert room_of(1, {}) == Room(1)
