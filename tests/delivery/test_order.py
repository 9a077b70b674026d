"""The order in which messages wait: by priority, then age."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.entry import (
    Entry,
    as_they_came,
    beyond,
    comes_before,
    in_order,
    insert,
    least,
    notice_entry,
    place_of,
    priority_of,
    rank_of,
)
from crewel.delivery.records import LogId, PendingMessage
from crewel.qos.update import Origin

PRIORITIES = st.integers(0, 9)
PLACES = st.integers(0, 2**53).map(LogId)


def entries(*priorities: int) -> list[Entry]:
    """Messages of these priorities, numbered from 0 as they came."""
    return [Entry({"channel": "/a", "data": number}, priority=each) for number, each in enumerate(priorities)]


def told(queue: list[Entry]) -> list[tuple[int, Any]]:
    return [(entry.priority, entry.fields["data"]) for entry in queue]


class TestRanks:
    @given(st.lists(st.tuples(PRIORITIES, PLACES), unique=True))
    def test_ranks_sort_by_priority_and_then_by_age(self, waiting: list[tuple[int, LogId]]) -> None:
        ranks = sorted(rank_of(place, priority) for priority, place in waiting)
        assert [priority_of(each) for each in ranks] == sorted((priority for priority, _ in waiting), reverse=True)
        assert [place_of(each) for each in ranks] == [
            place for _, place in sorted(waiting, key=lambda w: (-w[0], w[1]))
        ]

    def test_of_the_usual_priority_it_is_the_place_itself(self) -> None:
        place = LogId(17)
        assert rank_of(place, 5) is place


class TestInserting:
    @given(st.lists(PRIORITIES))
    def test_what_came_one_by_one_lies_in_order(self, priorities: list[int]) -> None:
        queue: list[Entry] = []
        for entry in entries(*priorities):
            insert(queue, entry, 0)
        assert queue == in_order(entries_as_they_came := sorted(queue, key=lambda each: int(each.fields["data"])))
        assert [each.priority for each in entries_as_they_came] == priorities

    def test_messages_that_are_put_back_lie_as_they_came(self) -> None:
        def came(number: int, at: str | None, priority: int = 5) -> Entry:
            origin = None if at is None else Origin(str(number), at)
            return Entry({"channel": "/a", "data": number}, priority=priority, origin=origin)

        answer = came(2, None)
        queue = as_they_came([came(3, "30"), came(1, "9"), answer, came(0, "8"), came(4, "40", priority=9)])
        assert told(queue) == [(9, 4), (5, 0), (5, 1), (5, 2), (5, 3)]

    def test_nothing_goes_ahead_of_what_is_sent_again(self) -> None:
        queue = entries(1, 5, 2)
        insert(queue, Entry({"channel": "/a", "data": "x"}, priority=9), 2)
        assert told(queue) == [(1, 0), (5, 1), (9, "x"), (2, 2)]


class TestGivingWay:
    @pytest.mark.parametrize(
        ("priorities", "front", "found"),
        [
            ((), 0, None),
            ((5,), 1, None),
            ((5, 5, 5), 0, 0),
            ((5, 5, 5), 1, 1),
            ((9, 5, 5, 1, 1), 0, 3),
            ((1, 9, 5, 5), 1, 2),
        ],
    )
    def test_the_oldest_of_the_lowest_priority_gives_way(
        self, priorities: tuple[int, ...], front: int, found: int | None
    ) -> None:
        assert least(entries(*priorities), front) == found

    @pytest.mark.parametrize(
        ("waiting", "front", "found"), [("n", 0, None), ("nm", 0, 1), ("mnn", 0, 0), ("mnnm", 1, 3), ("Mn", 0, 0)]
    )
    def test_a_notice_does_not_give_way(self, waiting: str, front: int, found: int | None) -> None:
        notice = notice_entry(PendingMessage(channel="/a"), LogId(7))
        messages = {"n": notice, "m": Entry({"channel": "/a"}), "M": Entry({"channel": "/a"}, priority=9)}
        assert least([messages[each] for each in waiting], front) == found

    @pytest.mark.parametrize(
        ("priorities", "front", "priority", "found"),
        [((), 0, 5, 0), ((5,), 2, 5, 1), ((9, 5, 1), 0, 5, 1), ((9, 5, 1), 2, 5, 2), ((9, 9), 0, 5, 2)],
    )
    def test_what_has_a_higher_priority_does_not_give_way(
        self, priorities: tuple[int, ...], front: int, priority: int, found: int
    ) -> None:
        assert beyond(entries(*priorities), front, priority) == found


@pytest.mark.parametrize(
    ("place", "priority", "goes_first"), [(20, 5, False), (5, 5, True), (20, 6, True), (5, 4, False)]
)
def test_a_stored_message_goes_before_a_younger_one_and_one_of_lower_priority(
    place: int, priority: int, *, goes_first: bool
) -> None:
    queue = [Entry({"channel": "/a"}), Entry.logged("/a", LogId(10), b'{"channel":"/a"}')]
    assert comes_before(LogId(place), priority, queue) is goes_first
