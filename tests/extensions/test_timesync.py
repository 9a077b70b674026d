"""Time synchronisation."""

from collections.abc import Callable
from typing import Any

import pytest

from crewel.extensions import timesync
from crewel.extensions.timesync import ACCURACY_TARGET, TimesyncExtension
from tests.broker.world import Client, World

NOW = 1_800_000_000_000


class Clock:
    """The server's clock, in milliseconds."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timesync, "_now", clock)
    return clock


@pytest.fixture
def client(make_world: Callable[..., World], clock: Clock) -> Client:
    return Client(make_world(extensions=[TimesyncExtension()]))


def ask(**fields: Any) -> dict[str, Any]:
    return {"ext": {"timesync": fields}}


def test_a_first_question_is_answered_with_all_four(client: Client) -> None:
    reply = client.handshake(**ask(tc=NOW - 100, l=0, o=0))
    assert reply["ext"] == {"timesync": {"tc": NOW - 100, "ts": NOW, "p": 0, "a": -100}}


def test_a_held_connect_tells_how_long_it_was_held(client: Client, clock: Clock) -> None:
    client.joined()
    held = client.connect(**ask(tc=NOW, l=0, o=0))
    clock.now += 1234
    client.world.advance(30)
    assert held.answer[0]["ext"]["timesync"] == {"tc": NOW, "ts": NOW, "p": 1234, "a": 0}


@pytest.mark.parametrize(
    ("lag", "error", "is_told"),
    [
        (0, 0, True),
        (10, 0, False),
        (10, ACCURACY_TARGET - 1, False),
        (10, ACCURACY_TARGET, True),
        (10, -ACCURACY_TARGET + 1, False),
        (10, -ACCURACY_TARGET, True),
    ],
)
def test_who_knows_the_time_well_enough_is_left_alone(client: Client, lag: int, error: int, is_told: bool) -> None:
    reply = client.handshake(**ask(tc=NOW, l=lag, o=error - lag))
    assert ("ext" in reply) is is_told
    if is_told:
        assert reply["ext"]["timesync"]["a"] == error


def test_the_old_form_is_always_answered(client: Client) -> None:
    assert client.handshake(**ask(tc=5))["ext"]["timesync"] == {"tc": 5, "ts": NOW, "p": 0}


def test_the_lag_is_an_attribute_of_the_session(client: Client) -> None:
    client.handshake(**ask(tc=NOW, l=0, o=0))
    client.say("/meta/connect", **ask(tc=NOW, l=42, o=-42))
    assert client.session.attributes["lag"] == 42


@pytest.mark.parametrize(
    "asked",
    [
        None,
        5,
        "x",
        [],
        {},
        {"tc": "now"},
        {"tc": True},
        {"tc": None},
        {"l": 0, "o": 0},
        {"tc": 1e308, "l": 1e308, "o": 1e308},
        {"tc": 2**60, "l": 0, "o": 0},
    ],
)
def test_what_is_no_question_gets_no_answer_and_no_harm(client: Client, asked: Any, caplog: Any) -> None:
    reply = client.handshake(ext={"timesync": asked})
    assert reply["successful"]
    assert "ext" not in reply
    assert not caplog.records


def test_a_publish_is_no_question(client: Client) -> None:
    client.handshake()
    assert "ext" not in client.publish("/a", 1, **ask(tc=1, l=0, o=0))
