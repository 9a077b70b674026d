"""What lies beside the log comes in its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.beside_log import BesideLog
from crewel.delivery.records import LogId


def test_what_has_the_same_place_comes_in_the_order_in_which_it_was_added() -> None:
    beside: BesideLog[str] = BesideLog()
    assert not beside
    for log_id, what in ((7, "c"), (5, "a"), (5, "b"), (9, "d")):
        beside.add(LogId(log_id), what)
    assert len(beside) == 4
    assert [*beside.take(LogId(4))] == []
    assert [*beside.take(LogId(7))] == [(5, "a"), (5, "b"), (7, "c")]
    assert beside
    assert [*beside.take(LogId(20))] == [(9, "d")]
    assert not beside


@given(st.lists(st.integers(1, 50)), st.lists(st.integers(0, 60)))
def test_all_come_once_and_rising_however_the_log_is_taken(places: list[int], portions: list[int]) -> None:
    beside: BesideLog[int] = BesideLog()
    for place in places:
        beside.add(LogId(place), place)
    taken = [what for last in (*sorted(portions), 60) for _, what in beside.take(LogId(last))]
    assert taken == sorted(places)
