"""Activity: who does nothing for too long is disconnected."""

from collections.abc import Callable

import pytest

from crewel.extensions.activity import ActivityExtension
from tests.broker.world import Client, World


@pytest.fixture
def client(make_world: Callable[..., World]) -> Client:
    settings = ["activity.max_inactivity_ms=60000", "bayeux.max_interval_ms=3600000"]
    return Client(make_world(*settings, extensions=[ActivityExtension()])).joined()


def poll(client: Client, seconds: float) -> None:
    """Connect over and over for this long, as a client does by itself."""
    for _ in range(int(seconds / 30)):
        held = client.connect()
        client.world.advance(30)
        assert held.answer[-1]["successful"]


def test_connects_are_no_activity_and_the_first_after_too_long_is_the_last(client: Client) -> None:
    poll(client, 60)
    client.world.advance(1)
    assert client.connect().answer == [
        {"channel": "/meta/disconnect", "successful": True},
        {
            "channel": "/meta/connect",
            "id": "5",
            "successful": False,
            "error": "402::session_unknown",
            "advice": {"reconnect": "none", "interval": 0},
        },
    ]
    assert not client.is_known


@pytest.mark.parametrize("channel", ["/a", "/service/x", "/meta/subscribe", "/meta/unsubscribe"])
def test_every_other_message_is_activity(client: Client, channel: str) -> None:
    for _ in range(5):
        poll(client, 30)
        client.say(channel, subscription="/service/x")
    assert client.is_known


def test_a_handshake_is_activity(client: Client) -> None:
    client.world.advance(59)
    assert not client.connect().payloads
    assert client.is_known


def test_a_connect_of_nobody_is_nobodys_activity(client: Client) -> None:
    request = client.world.post({"channel": "/meta/connect", "clientId": "unknown"})
    assert request.answer[0]["error"] == "402::session_unknown"
