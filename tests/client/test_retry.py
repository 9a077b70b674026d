"""When to try again: the server's advice, and the pauses between attempts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.client.retry import Advice, Backoff, BackoffRule, Reconnect, read_advice

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


@pytest.mark.parametrize(
    ("wire", "advice"),
    [
        ({"reconnect": "retry", "interval": 0, "timeout": 20000}, Advice(timeout=20.0)),
        ({"reconnect": "handshake", "interval": 0}, Advice(Reconnect.HANDSHAKE)),
        ({"reconnect": "none"}, Advice(Reconnect.NONE)),
        ({"interval": 2000, "multiple-clients": True}, Advice(interval=2.0)),
        ({"maxInterval": 10000, "timeout": 1500}, Advice(timeout=1.5, max_interval=10.0)),
        ({}, Advice()),
    ],
)
def test_what_is_left_out_falls_back_to_the_defaults(wire: dict[str, Any], advice: Advice) -> None:
    assert read_advice(wire) == advice


@pytest.mark.parametrize(
    "wire",
    [
        {"reconnect": "perhaps", "interval": "2", "timeout": None},
        {"reconnect": 7, "interval": True, "timeout": [1]},
        {"reconnect": ["none"], "interval": -5},
    ],
)
def test_values_of_a_wrong_type_count_as_left_out(wire: dict[str, Any]) -> None:
    assert read_advice(wire) == Advice()


@pytest.mark.parametrize("wire", [None, "retry", 1, ["retry"]])
def test_what_is_no_object_is_no_advice(wire: object) -> None:
    assert read_advice(wire) is None


@pytest.mark.parametrize(
    ("advice", "lifetime"),
    [(Advice(), None), (Advice(timeout=20.0, interval=1.0, max_interval=10.0), 31.0)],
)
def test_the_life_of_a_session_is_known_only_if_the_server_tells(advice: Advice, lifetime: float | None) -> None:
    assert advice.session_lifetime == lifetime


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["reconnect", "interval", "timeout", "maxInterval"]), json_values))
def test_no_advice_breaks_the_client(wire: dict[str, Any]) -> None:
    advice = read_advice(wire)
    assert advice is not None
    assert min(advice.interval, advice.timeout, advice.max_interval) >= 0
