"""Delays between attempts: pure numbers, no waiting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.client.backoff import Backoff, BackoffRule

RULE = BackoffRule(initial=0.2, factor=2.0, maximum=30.0)


@pytest.mark.parametrize(
    ("failures", "chance", "delay"),
    [(0, 0.0, 0.1), (0, 1.0, 0.2), (1, 1.0, 0.4), (2, 0.5, 0.6), (7, 1.0, 25.6), (8, 1.0, 30.0), (5000, 1.0, 30.0)],
)
def test_delays_double_up_to_the_maximum_and_are_jittered_downwards(failures: int, chance: float, delay: float) -> None:
    assert RULE.delay(failures, chance) == pytest.approx(delay)


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_a_delay_is_never_nothing_and_never_more_than_the_maximum(failures: int, chance: float) -> None:
    assert 0.1 <= RULE.delay(failures, chance) <= 30.0


def test_a_success_starts_over() -> None:
    backoff = Backoff(RULE, lambda: 1.0)
    assert [backoff.failed(), backoff.failed()] == [0.2, 0.4]
    backoff.succeeded()
    assert backoff.failed() == 0.2


@pytest.mark.parametrize(("initial", "factor", "maximum"), [(0, 2, 1), (1, 0.5, 2), (3, 2, 1)])
def test_rules_that_make_no_sense_are_refused(initial: float, factor: float, maximum: float) -> None:
    with pytest.raises(ValueError, match="not a back-off"):
        BackoffRule(initial, factor, maximum)
