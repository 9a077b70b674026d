"""What `crewel sub` prints when messages of several channels come at once."""

import asyncio
from typing import Any

import pytest

from crewel.cli.sub import Reader
from crewel.client import Message
from crewel.client.router import Router
from crewel.client.subscription import Subscription
from tests.client.test_router import subscribed

pytestmark = pytest.mark.unit


class Client:
    """A client that has the subscriptions of a router."""

    def __init__(self) -> None:
        self._router = Router()
        self.subscriptions: list[Subscription] = []

    async def subscribe(self, channel: str, **_: Any) -> Subscription:
        """Subscribe locally."""
        self.subscriptions.append(subscribed(self._router, channel))
        return self.subscriptions[-1]

    def on_state(self, listener: object) -> None:
        """There are no transitions."""


async def test_a_reader_of_two_channels_prints_as_many_messages_as_asked_for() -> None:
    client, printed = Client(), []
    reader = Reader(client, ["/a", "/b"], {}, lambda message: printed.append(message.data), 1)  # type: ignore[arg-type]
    await reader.prepare(with_addressed=False)
    reading = asyncio.create_task(reader.read())
    for _ in range(10):
        await asyncio.sleep(0)  # until both wait for a message
    for subscription in client.subscriptions:
        subscription.offer(Message(subscription.channel, 1, {}))
    async with asyncio.timeout(5):
        await reading
    assert printed == [1]
