"""Hours as numbers."""

from __future__ import annotations

from datetime import date

import pytest

from crewel.pipeline import hours
from crewel.pipeline.hours import HOUR_MS

DAY = date(1970, 1, 2)


def test_hours_of_days_and_days_of_hours() -> None:
    assert hours.of_days([DAY]) == {*range(24, 48)}
    assert hours.days_of({23, 24, 47}) == {date(1970, 1, 1), DAY}


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (24 * HOUR_MS, 24 * HOUR_MS, {24}),
        (25 * HOUR_MS - 1, 25 * HOUR_MS, {24, 25}),
        (0, 25 * HOUR_MS, {24, 25}),
        (46 * HOUR_MS, 90 * HOUR_MS, {46, 47}),
        (0, 1, set()),
        (None, 1, {*range(24, 48)}),
    ],
)
def test_hours_of_a_file_lie_within_its_day(first: int | None, last: int, found: set[int]) -> None:
    assert hours.of_part(DAY, first, last) == found


def test_runs_of_hours_become_ranges() -> None:
    assert hours.ranges({5, 3, 4, 9}) == [(3 * HOUR_MS, 6 * HOUR_MS), (9 * HOUR_MS, 10 * HOUR_MS)]
    assert hours.condition([3, 9], "x") == (
        f"((x >= {3 * HOUR_MS} AND x < {4 * HOUR_MS}) OR (x >= {9 * HOUR_MS} AND x < {10 * HOUR_MS}))"
    )
    assert hours.condition([]) == "(false)"
