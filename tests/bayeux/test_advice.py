"""Advice: clients replace it as a whole, so each is complete."""

import pytest

from crewel.bayeux import advice


def test_retry_says_all_three() -> None:
    assert advice.retry(0, 30000) == {"reconnect": "retry", "interval": 0, "timeout": 30000}


def test_retry_tells_the_grace_if_there_is_one_to_tell() -> None:
    assert advice.retry(5, 7, 0) == {"reconnect": "retry", "interval": 5, "timeout": 7, "maxInterval": 0}


def test_the_terminal_forms() -> None:
    assert advice.handshake() == {"reconnect": "handshake", "interval": 0}
    assert advice.none() == {"reconnect": "none"}
    assert advice.removed() == {"reconnect": "none", "interval": 0}


@pytest.mark.parametrize(
    ("interval", "timeout", "told"),
    [
        (2000, None, {"multiple-clients": True, "reconnect": "retry", "interval": 2000}),
        (2000, 30000, {"multiple-clients": True, "reconnect": "retry", "interval": 2000, "timeout": 30000}),
        (0, None, {"multiple-clients": True, "reconnect": "none"}),
        (-1, None, {"multiple-clients": True, "reconnect": "none"}),
    ],
)
def test_multiple_clients_poll_slowly_or_not_at_all(
    interval: int, timeout: int | None, told: dict[str, object]
) -> None:
    assert advice.multiple_clients(interval, timeout) == told


def test_each_reply_has_an_advice_of_its_own() -> None:
    assert advice.none() is not advice.none()
