"""Ids of messages that are not stored, and keys that make a publish harmless to repeat."""

from __future__ import annotations

import pytest

from crewel.broker import ids
from crewel.broker.ids import KEY_LIFETIME, Ids


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_ids_tell_the_time_a_number_and_the_node(clock: Clock) -> None:
    made = Ids("heron", clock)
    assert [made.new(), made.new()] == ["1000000-0-heron", "1000000-1-heron"]
    clock.now = 1000.001
    assert made.new() == "1000001-0-heron"


def test_a_clock_that_goes_back_makes_no_id_twice(clock: Clock) -> None:
    made = Ids("heron", clock)
    made.new()
    clock.now = 999.0
    assert made.new() == "1000000-1-heron"


def test_a_key_is_known_for_its_lifetime(clock: Clock) -> None:
    made = Ids("heron", clock)
    made.remember("joe /a k", "1")
    clock.now += KEY_LIFETIME - 0.001
    assert made.first_of("joe /a k") == "1"
    assert made.first_of("joe /b k") is None
    clock.now += 0.001
    assert made.first_of("joe /a k") is None


def test_the_oldest_keys_give_way(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "MAX_KEYS", 2)
    made = Ids("heron", clock)
    for key in ("a", "b", "c"):
        made.remember(key, key)
    assert [made.first_of(key) for key in ("a", "b", "c")] == [None, "b", "c"]


def test_keys_whose_time_is_over_are_forgotten(clock: Clock) -> None:
    made = Ids("heron", clock)
    made.remember("a", "1")
    clock.now += KEY_LIFETIME
    made.remember("b", "2")
    assert list(made._known) == ["b"]
