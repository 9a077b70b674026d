"""Timestamps: on deliveries, acknowledgements and meta replies, when they leave."""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from crewel.extensions import timestamp
from crewel.extensions.timestamp import TimestampExtension
from tests.broker.world import Client, World


def test_everything_that_leaves_is_stamped_in_the_form_of_the_browsers_half(make_world: Callable[..., World]) -> None:
    client = Client(make_world(extensions=[TimestampExtension()])).joined("/a")
    request = client.send(client.message("/a", data=1), client.message("/meta/connect"))
    assert len(request.received) == 3
    for message in request.received:
        assert message["timestamp"].endswith(" GMT")
        age = datetime.now(UTC) - parsedate_to_datetime(message["timestamp"])
        assert abs(age.total_seconds()) < 60


def test_a_held_connect_is_stamped_when_it_leaves_and_what_the_client_stamped_is_replaced(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(extensions=[TimestampExtension()])
    client = Client(world).joined("/a")
    held = client.connect()
    monkeypatch.setattr(timestamp, "formatdate", lambda usegmt: "now")
    Client(world).joined().publish("/a", 1, timestamp="long ago")
    world.settle()
    assert [message["timestamp"] for message in held.answer] == ["now", "now"]
