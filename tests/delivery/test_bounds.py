"""How much may wait for one session."""

import pytest

from crewel.delivery.bounds import Bounds, OverflowPolicy


@pytest.mark.parametrize(
    ("entries", "size", "code"),
    [
        (0, 100, None),
        (2, 100, None),
        (3, 10, "resource.overflow.queue.entries"),
        (3, 101, "resource.overflow.queue.entries"),
        (2, 101, "resource.overflow.queue.bytes"),
    ],
)
def test_the_bound_that_one_message_more_goes_beyond_is_named(entries: int, size: int, code: str | None) -> None:
    assert Bounds(3, 100).exceeded(entries, size) == code


def test_a_message_that_is_alone_fits_however_large() -> None:
    assert Bounds(3, 100).exceeded(0, 10**9) is None


@pytest.mark.parametrize("policy", OverflowPolicy)
def test_every_policy_says_in_a_sentence_what_it_does(policy: OverflowPolicy) -> None:
    assert policy.meaning.endswith(".")
