"""How long bars and points stand for, by the range of a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from crewel.pipeline.report.slots import MOST_BARS, MOST_POINTS, of_bars, of_hours, of_points

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "bars", "hours", "points"),
    [
        (timedelta(hours=1), "minute", "hour", "minute"),
        (timedelta(hours=24), "hour", "hour", "minute"),
        (timedelta(days=3), "hour", "hour", "5 minutes"),
        (timedelta(days=4), "6 hours", "day", "5 minutes"),
        (timedelta(days=30), "day", "day", "hour"),
        (timedelta(days=72), "day", "day", "6 hours"),
        (timedelta(days=365), "week", "week", "day"),
        (timedelta(days=3650), "week", "week", "week"),
    ],
)
def test_the_slot_grows_with_the_range(length: timedelta, bars: str, hours: str, points: str) -> None:
    end = BEGIN + length
    assert (of_bars(BEGIN, end).name, of_hours(BEGIN, end).name, of_points(BEGIN, end).name) == (bars, hours, points)


@pytest.mark.parametrize("days", [1, 10, 100])
def test_there_are_never_more_than_can_be_seen(days: int) -> None:
    end = BEGIN + timedelta(days=days)
    length = (end - BEGIN).total_seconds()
    assert length / of_bars(BEGIN, end).seconds <= MOST_BARS
    assert length / of_points(BEGIN, end).seconds <= MOST_POINTS
