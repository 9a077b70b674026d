"""How results are told to people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from crewel.pipeline.output import lines


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"entries": 1234567}, ["entries        1,234,567"]),
        ({"seconds": 12.345}, ["seconds        12.3"]),
        ({"is_clean": True}, ["is clean       yes"]),
        ({"sick": [], "poison": None, "counts": {}}, []),
        ({"sick": ["a", "b"]}, ["sick           a", "               b"]),
        ({"counts": {"lost": 0, "twice": 12}}, ["counts         lost 0", "               twice 12"]),
        (
            {"findings": [{"finding": "lost", "log_id": None, "evidence": ["1-0", "2-0"]}]},
            ["findings       lost  1-0  2-0"],
        ),
        (
            {"unread_until": datetime(2026, 11, 20, 22, 30, 1, tzinfo=UTC)},
            ["unread until   2026-11-20 22:30:01"],
        ),
    ],
)
def test_a_result_is_shown_a_line_a_value(values: dict[str, Any], shown: list[str]) -> None:
    assert list(lines(values)) == shown


def test_of_a_long_list_the_first_are_shown() -> None:
    shown = list(lines({"paths": [str(number) for number in range(1030)]}))
    assert len(shown) == 21
    assert shown[-1] == "               and 1,010 more"
