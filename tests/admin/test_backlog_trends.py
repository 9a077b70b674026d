"""When a queue will be full follows from how it has grown in the last two minutes."""

from __future__ import annotations

import pytest

from crewel.admin.backlog_trends import MOST_RECEIVERS, BacklogTrends, Trend

JOE = "client/joe/1"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sampled(clock: Clock, *waiting: int, every_s: float = 10, most: int = 1000) -> BacklogTrends:
    trends = BacklogTrends(clock)
    for number in waiting:
        trends.note(JOE, number / most, number)
        clock.now += every_s
    clock.now -= every_s
    return trends


def test_a_queue_that_grows_evenly_is_full_when_its_room_is_used_up(clock: Clock) -> None:
    trends = sampled(clock, 200, 300, 400, 500, 600)
    assert trends.of(JOE) == Trend(int((clock.now + 40) * 1000), 600)


@pytest.mark.parametrize(
    "waiting",
    [
        (),
        (200, 300, 400),  # too short a time
        (200, 200, 200, 200, 200),
        (600, 500, 400, 300, 200),
        (200, 400, 600, 600, 500),  # it has begun to drain
        (10, 30, 50, 70, 90),  # hardly filled
    ],
)
def test_of_others_nothing_is_said(clock: Clock, waiting: tuple[int, ...]) -> None:
    assert sampled(clock, *waiting).of(JOE) is None


def test_samples_are_some_time_apart_and_grow_old(clock: Clock) -> None:
    trends = sampled(clock, *range(200, 800, 10), every_s=1)
    trend = trends.of(JOE)
    assert trend is not None
    assert trend.per_minute == 600
    clock.now += 1801
    assert trends.of(JOE) is None


def test_old_samples_do_not_count_any_more(clock: Clock) -> None:
    trend = sampled(clock, *[500] * 20, *range(500, 640, 10)).of(JOE)
    assert trend is not None
    assert trend.per_minute == 60


def test_a_queue_that_a_count_has_not_met_was_empty_and_begins_again(clock: Clock) -> None:
    trends = BacklogTrends(clock)
    for number in (200, 300, 400, 500):
        trends.begin()
        trends.note(JOE, number / 1000, number)
        clock.now += 10
    assert trends.of(JOE) is not None
    trends.begin()
    trends.begin()
    trends.note(JOE, 0.6, 600)
    assert trends.of(JOE) is None


def test_a_queue_that_was_emptied_begins_again_and_what_is_kept_is_bounded(clock: Clock) -> None:
    trends = sampled(clock, 200, 300, 400, 500, 600, 1, 700)
    assert trends.of(JOE) is None
    for number in range(MOST_RECEIVERS):
        trends.note(f"client/many/{number}", 0.5, 5)
    clock.now += 100
    trends.note(JOE, 0.8, 800)
    trends.note(JOE, 0.9, 900)
    assert trends.of(JOE) is None
