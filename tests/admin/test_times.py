"""Points in time, as operators write them; and how long something takes."""

from __future__ import annotations

import pytest

from crewel.times import format_span, format_timestamp, parse_timestamp

NOW = 1_795_190_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW - 90_000),
        ("30m", NOW - 1_800_000),
        ("2h", NOW - 7_200_000),
        ("7d", NOW - 604_800_000),
        ("1w", NOW - 604_800_000),
        ("999999999w", 0),
        ("1795190400000", NOW),
        ("0", 0),
        ("2026-11-20", 1_795_132_800_000),
        ("2026-11-20T16:00:00Z", 1_795_190_400_000),
        ("2026-11-20T17:00:00+01:00", 1_795_190_400_000),
        ("1901-01-01", 0),
        (" 2h ", NOW - 7_200_000),
    ],
)
def test_a_moment_is_read(text: str, expected: int) -> None:
    assert parse_timestamp(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2 h", "-2h", "2026-13-01", "1e3", "9" * 16, "٣h"])
def test_a_text_that_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a date such as 2026-11-20"):
        parse_timestamp(text, NOW)


def test_moments_are_shown_in_utc() -> None:
    assert format_timestamp(1_795_190_400_007) == "2026-11-20T16:00:00.007Z"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61.9, "1 min 1 s"),
        (3600, "1 h"),
        (7_500, "2 h 5 min"),
        (86_400, "1 d"),
        (86_461, "1 d"),
        (8_726_400, "101 d"),
    ],
)
def test_a_span_is_shown_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert format_span(seconds) == shown
