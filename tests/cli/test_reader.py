"""What `crewel sub` prints when messages of several channels come at once."""

import asyncio
from typing import Any

import pytest

from crewel.cli.qos_options import shown
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
        self.subscriptions[-1].confirmed(None, {channel: {"epoch": "e", "id": "0"}})
        return self.subscriptions[-1]

    def on_state(self, listener: object) -> None:
        """There are no transitions."""


async def read(reader: Reader, client: Client, message_id: str) -> None:
    """Let the reader read while a message of this id comes for each of its channels."""
    await reader.prepare(with_addressed=False)
    reading = asyncio.create_task(reader.read())
    for _ in range(10):
        await asyncio.sleep(0)  # until all wait for a message
    for subscription in client.subscriptions:
        subscription.offer(Message(subscription.channel, 1, {"id": message_id}))
    async with asyncio.timeout(5):
        await reading


async def test_a_reader_of_two_channels_prints_as_many_messages_as_asked_for() -> None:
    client, printed = Client(), []

    async def take(message: Message) -> None:
        printed.append(message.data)

    reader = Reader(client, ["/a", "/b"], {}, take, 1)  # type: ignore[arg-type]
    await read(reader, client, "1")
    assert printed == [1]


async def test_a_reader_does_not_continue_behind_what_it_did_not_print(capsys: pytest.CaptureFixture[str]) -> None:
    async def take(_: Message) -> None:
        pass

    client = Client()
    reader = Reader(client, ["/a", "/b"], {"since": {}}, take, 1)  # type: ignore[arg-type]
    await read(reader, client, "1")
    reached = {"/a": {"epoch": "e", "id": "1"}, "/b": {"epoch": "e", "id": "0"}}
    assert capsys.readouterr().err.splitlines()[-1] == f"crewel: continue with --since {shown(reached, ['/a', '/b'])}"


async def test_a_reader_continues_with_what_it_failed_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(_: Message) -> None:
        raise BrokenPipeError

    client = Client()
    reader = Reader(client, ["/a"], {"since": {}}, fail, None)  # type: ignore[arg-type]
    with pytest.raises(BrokenPipeError):
        await read(reader, client, "1")
    assert capsys.readouterr().err.splitlines()[-1] == "crewel: continue with --since e:0"
