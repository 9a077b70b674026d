"""Shares of what may be present."""

import pytest

from crewel.broker.presence.presence_bounds import _has_share


@pytest.mark.parametrize(
    ("taken", "held", "has"),
    [
        (0, 0, True),
        (49, 49, True),  # up to one half, nothing is counted
        (79, 79, True),
        (80, 80, False),  # one account alone has four fifths
        (80, 0, True),
        (95, 19, True),
        (95, 20, False),
        (99, 3, True),
        (100, 0, False),
    ],
)
def test_the_account_that_has_most_is_refused_first(taken: int, held: int, has: bool) -> None:
    assert _has_share(100, taken, held) is has


def test_without_a_limit_all_have_a_place() -> None:
    assert _has_share(0, 10**9, 10**9)
