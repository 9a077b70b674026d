"""Timers: one heap and one timer for all deadlines."""

from collections.abc import Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.broker.mailboxes.timers import Timers
from crewel.event_loop import GRACE_S
from tests.broker.clock import ControlledLoop


@pytest.fixture
def loop() -> Iterator[ControlledLoop]:
    loop = ControlledLoop()
    yield loop
    loop.close()


class Sleepers:
    """Things with alarms. Each says when it wants to be woken next; what rang is noted with its time."""

    def __init__(self, loop: ControlledLoop) -> None:
        self.loop = loop
        self.start = loop.time()
        self.timers = Timers(loop, self.fire)
        self.next: dict[str, float] = {}
        self.woken: list[tuple[str, float]] = []

    def make(self, name: str) -> Any:
        return SimpleNamespace(name=name, alarm=inf)

    def fire(self, sleeper: Any, now: float) -> float:
        self.woken.append((sleeper.name, round(self.loop.time() - self.start, 6)))
        return self.start + self.next.pop(sleeper.name, inf)

    def at(self, sleeper: Any, seconds: float) -> None:
        self.timers.at(sleeper, self.start + seconds)


@pytest.fixture
def sleepers(loop: ControlledLoop) -> Sleepers:
    return Sleepers(loop)


def test_timers_fire_in_the_order_of_their_times(sleepers: Sleepers) -> None:
    one, two, three = map(sleepers.make, "123")
    sleepers.at(one, 3)
    sleepers.at(two, 1)
    sleepers.at(three, 2)
    sleepers.loop.advance(5)
    assert sleepers.woken == [("2", 1), ("3", 2), ("1", 3)]


def test_a_timer_may_ask_to_fire_again(sleepers: Sleepers) -> None:
    one = sleepers.make("1")
    sleepers.next["1"] = 4
    sleepers.at(one, 1)
    sleepers.loop.advance(5)
    assert sleepers.woken == [("1", 1), ("1", 4)]
    assert one.alarm == inf


def test_an_earlier_timer_replaces_a_later_one_and_a_later_one_waits_to_be_asked_for(sleepers: Sleepers) -> None:
    one = sleepers.make("1")
    sleepers.at(one, 5)
    sleepers.at(one, 2)
    sleepers.at(one, 9)
    sleepers.loop.advance(10)
    assert sleepers.woken == [("1", 2)]


def test_a_forgotten_session_does_not_fire(sleepers: Sleepers) -> None:
    one, two = map(sleepers.make, "12")
    sleepers.at(one, 1)
    sleepers.at(two, 2)
    sleepers.timers.forget(one)
    sleepers.timers.forget(one)
    sleepers.loop.advance(5)
    assert sleepers.woken == [("2", 2)]


def test_one_that_fails_does_not_silence_the_others(sleepers: Sleepers) -> None:
    def fail(sleeper: Any, now: float) -> float:
        if sleeper.name == "1":
            raise RuntimeError("broken")
        return Sleepers.fire(sleepers, sleeper, now)

    told: list[Any] = []
    sleepers.loop.set_exception_handler(lambda loop, context: told.append(context))
    sleepers.timers = Timers(sleepers.loop, fail)
    sleepers.at(sleepers.make("1"), 1)
    sleepers.at(sleepers.make("2"), 2)
    sleepers.loop.advance(5)
    assert sleepers.woken == [("2", 2)]
    assert len(told) == 1


def test_after_a_stall_it_waits_until_the_sockets_are_read(sleepers: Sleepers) -> None:
    one, two = map(sleepers.make, "12")
    sleepers.at(one, 1)
    sleepers.at(two, 2)
    sleepers.loop.stall(5)
    assert sleepers.woken == []
    sleepers.timers.forget(two)  # its client had sent something
    sleepers.loop.advance(GRACE_S)
    assert sleepers.woken == [("1", 5 + GRACE_S)]


def test_closed_timers_do_not_fire(sleepers: Sleepers) -> None:
    sleepers.at(sleepers.make("1"), 1)
    sleepers.timers.close()
    sleepers.loop.advance(5)
    assert sleepers.woken == []
    assert len(sleepers.timers) == 0


def test_what_no_longer_counts_does_not_pile_up(sleepers: Sleepers) -> None:
    """One client that asks for a day and then for a moment, over and over; and many that ask for a day and leave."""
    restless = sleepers.make("restless")
    for _ in range(2000):
        sleepers.at(restless, 86400)
        sleepers.at(restless, 0)
        sleepers.loop.settle()
    assert len(sleepers.woken) == 2000
    assert len(sleepers.timers) < 200
    for number in range(2000):
        gone = sleepers.make(str(number))
        sleepers.at(gone, 86400)
        sleepers.timers.forget(gone)
    assert len(sleepers.timers) < 200


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["at", "forget"]), st.integers(0, 200))))
def test_every_session_fires_at_the_earliest_time_asked_for(script: list[tuple[int, str, int]]) -> None:
    loop = ControlledLoop()
    try:
        sleepers = Sleepers(loop)
        each = [sleepers.make(str(number)) for number in range(5)]
        expected: dict[str, float] = {}
        for number, what, seconds in script:
            if what == "at":
                sleepers.at(each[number], seconds)
                expected[str(number)] = min(seconds, expected.get(str(number), inf))
            else:
                sleepers.timers.forget(each[number])
                expected.pop(str(number), None)
        loop.advance(300)
        assert dict(sleepers.woken) == expected
        assert len(sleepers.woken) == len(expected)
        assert len(sleepers.timers) == 0
    finally:
        loop.close()
