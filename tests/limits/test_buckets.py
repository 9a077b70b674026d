"""Token buckets, on a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.limits import Bucket, Rate

RATE = Rate(10, 5)


def test_a_bucket_gives_its_burst_and_then_names_the_wait() -> None:
    bucket = Bucket(RATE, 0.0)
    assert [bucket.take(RATE, 1, 0.0) for _ in range(5)] == [0.0] * 5
    assert bucket.take(RATE, 1, 0.0) == pytest.approx(0.1)
    assert bucket.take(RATE, 1, 0.05) == pytest.approx(0.05)
    assert bucket.take(RATE, 1, 0.1) == 0.0


def test_a_refused_request_costs_nothing() -> None:
    bucket = Bucket(RATE, 0.0)
    bucket.take(RATE, 5, 0.0)
    for _ in range(100):
        assert bucket.take(RATE, 1, 0.0) == pytest.approx(0.1)


def test_a_pause_fills_the_bucket_to_its_burst_and_no_further() -> None:
    bucket = Bucket(RATE, 0.0)
    bucket.take(RATE, 5, 0.0)
    assert bucket.available(RATE, 1000.0) == 5


def test_more_than_the_burst_is_taken_from_a_full_bucket_and_made_up_for() -> None:
    bucket = Bucket(RATE, 0.0)
    assert bucket.take(RATE, 15, 0.0) == 0.0
    assert bucket.available(RATE, 0.0) == -10
    assert bucket.take(RATE, 1, 0.0) == pytest.approx(1.1)
    assert bucket.take(RATE, 1, 1.1) == 0.0


def test_a_bucket_is_full_again_when_its_tokens_are_back() -> None:
    bucket = Bucket(RATE, 0.0)
    assert bucket.is_full(RATE, 0.0)
    bucket.spend(2)
    assert not bucket.is_full(RATE, 0.1)
    assert bucket.is_full(RATE, 0.2)


def test_a_rate_that_changes_holds_at_once() -> None:
    bucket = Bucket(RATE, 0.0)
    bucket.take(RATE, 5, 0.0)
    faster = Rate(1000, 50)
    assert bucket.take(faster, 1, 0.01) == 0.0
    assert bucket.available(Rate(1000, 3), 60.0) == 3


@given(
    st.integers(1, 50),
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 10)), max_size=60),
)
def test_no_span_of_time_has_more_than_its_burst_and_its_rate(
    per_s: int, burst: int, asked: list[tuple[float, int]]
) -> None:
    rate, now, taken = Rate(per_s, burst), 0.0, 0
    bucket = Bucket(rate, now)
    for pause, count in asked:
        now += pause
        if bucket.take(rate, min(count, burst), now) == 0.0:
            taken += min(count, burst)
        assert taken <= burst + now * per_s + 1e-6
