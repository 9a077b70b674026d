"""How a queue grows or shrinks, and when it will be full, follows from how it was in the last two minutes."""

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
    note(trends, clock, *waiting, every_s=every_s, most=most)
    clock.now -= every_s
    return trends


def note(
    trends: BacklogTrends,
    clock: Clock,
    *waiting: int,
    every_s: float = 10,
    most: int = 1000,
    is_stopped: bool = False,
) -> None:
    for number in waiting:
        trends.note(JOE, number / most, number, is_stopped=is_stopped)
        clock.now += every_s


def test_a_queue_that_grows_evenly_is_full_when_its_room_is_used_up(clock: Clock) -> None:
    trends = sampled(clock, 200, 300, 400, 500, 600)
    assert trends.of(JOE) == Trend(int((clock.now + 40) * 1000), 600, 1_000_000)


@pytest.mark.parametrize(
    "waiting",
    [
        (),
        (200, 300, 400),  # too short a time
        (200, 200, 200, 200, 200),
        (200, 400, 600, 600, 500),  # it has begun to drain
        (11, 13, 15, 17, 19),  # hardly anything waits
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


def test_a_queue_that_is_hardly_filled_grows_and_is_not_full_soon(clock: Clock) -> None:
    assert sampled(clock, 20, 30, 50, 70, 90).of(JOE) == Trend(None, 105, 1_000_000)


def test_a_queue_shrinks_from_its_peak_on_and_grows_from_where_it_began_to(clock: Clock) -> None:
    trends = BacklogTrends(clock)
    note(trends, clock, 500, 500, *range(540, 900, 40), most=9000)
    grows = trends.of(JOE)
    assert grows is not None
    assert (grows.per_minute, grows.since) == (216, 1_010_000)
    note(trends, clock, *range(900, 4840, 40), most=9000)
    grows = trends.of(JOE)
    assert grows is not None
    assert (grows.per_minute, grows.since) == (240, 1_010_000)
    peak = int(clock.now - 10) * 1000
    note(trends, clock, 4700, 4600, 4500, most=9000)
    assert trends.of(JOE) == Trend(None, -640, peak)
    note(trends, clock, *range(4400, 2000, -100), most=9000)
    assert trends.of(JOE) == Trend(None, -600, peak)


def test_what_a_queue_did_while_its_receiver_got_nothing_tells_nothing_of_later(clock: Clock) -> None:
    trends = BacklogTrends(clock)
    note(trends, clock, *range(200, 700, 100), is_stopped=True)
    held = trends.of(JOE, is_stopped=True)
    assert held is not None
    assert held.per_minute == 600
    assert trends.of(JOE) is None
    note(trends, clock, 710)
    assert trends.of(JOE) is None
    assert trends.of(JOE, is_stopped=True) is None
    note(trends, clock, 720, 730, 740)
    freed = trends.of(JOE)
    assert freed is not None
    assert freed.per_minute == 60
    note(trends, clock, 50, is_stopped=True)  # what is hardly filled is of no interest then
    assert trends.of(JOE, is_stopped=True) is None


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
