"""The time of day that does not jump, with clocks that the test sets."""

from __future__ import annotations

import pytest

from crewel.broker.ids import KEY_LIFETIME, Clock, Ids


class Machine:
    """A machine's clocks: one that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.wall, self.elapsed = 1_000_000.0, 50.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.elapsed)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_clock_is_the_machines_as_long_as_that_is_not_set(machine: Machine) -> None:
    clock = machine.clock()
    for _ in range(100):
        machine.pass_by(7.3)
        assert clock() == pytest.approx(machine.wall)
    assert clock.microseconds() == pytest.approx(machine.wall * 1e6)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_followed_slowly(machine: Machine, jump: float) -> None:
    clock = machine.clock()
    machine.wall += jump
    before = clock()
    assert before == pytest.approx(1_000_000.0)
    machine.pass_by(10.0)
    assert 9.0 <= clock() - before <= 11.0
    machine.pass_by(40_000.0)
    assert clock() == pytest.approx(machine.wall)


def test_the_clock_never_goes_back(machine: Machine) -> None:
    clock = machine.clock()
    told = [clock()]
    for jump in (-5.0, 5.0, -86_400.0, 0.0, -1.0):
        machine.wall += jump
        machine.pass_by(0.5)
        told.append(clock())
    assert told == sorted(set(told))


def test_ids_and_times_rise_over_clocks_that_are_set(machine: Machine) -> None:
    ids = Ids("heron", machine.clock())
    stamps = []
    for jump in (0.0, -3600.0, 0.0, 7200.0, -86_400.0):
        machine.wall += jump
        machine.pass_by(0.001)
        stamps += [ids.stamp() for _ in range(3)]
    assert len({message_id for message_id, _ in stamps}) == len(stamps)
    received = [int(digits) for _, digits in stamps]
    assert received == sorted(set(received))


def test_a_key_outlives_a_clock_that_is_set_ahead(machine: Machine) -> None:
    ids = Ids("heron", machine.clock())
    ids.stored.remember("joe /a k", "1")
    machine.wall += 3600.0
    machine.pass_by(60.0)
    assert ids.stored.first_of("joe /a k") == "1"
    machine.pass_by(KEY_LIFETIME)
    assert ids.stored.first_of("joe /a k") is None


@pytest.mark.parametrize(("noted", "begins"), [(-10.0, 0.0), (3600.0, 3600.0), (86_400.0, 86_400.0), (86_401.0, 0.0)])
def test_the_clock_continues_from_what_the_store_noted_unless_that_is_a_day_ahead(
    machine: Machine, noted: float, begins: float
) -> None:
    clock = machine.clock()
    clock.continue_from(int((machine.wall + noted) * 1e6))
    assert clock() == pytest.approx(machine.wall + begins)
    machine.pass_by(10.0)
    assert 9.0 <= clock() - (machine.wall - 10.0 + begins) <= 11.0
