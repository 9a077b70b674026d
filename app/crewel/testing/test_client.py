"""The Python client for tests without an event loop: the same client, each call of which waits."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, Unpack

from crewel.client import Client, Message, Reply, Subscription
from crewel.client.config import Options
from crewel.client.publish_options import PublishOptions
from crewel.client.states import State
from crewel.client.subscription import SubscribeOptions
from crewel.testing.loop_thread import LoopThread

WAIT_S = 10.0
"""Seconds to wait for a message, unless the test sets another limit."""


class TestSubscription:
    """A subscription of a test."""

    def __init__(self, thread: LoopThread, subscription: Subscription) -> None:
        self._thread = thread
        self._subscription = subscription

    @property
    def channel(self) -> str:
        """The channel or pattern."""
        return self._subscription.channel

    def next(self, timeout: float = WAIT_S) -> Message:
        """The next message; asking for it acknowledges the one before. Raises TimeoutError if none comes."""
        return self._thread.run(self._subscription.receive(timeout), timeout + WAIT_S)

    def take(self, count: int, timeout: float = WAIT_S) -> list[Any]:
        """The data of the next `count` messages. Raises TimeoutError if one does not come."""
        return [self.next(timeout).data for _ in range(count)]

    def reject(self, message: Message, code: str, text: str = "") -> None:
        """Report that the message cannot be handled, as `Message.reject` does. The client needs `update=True`. Raises
        ValueError for a code that a receiver may not report."""

        async def rejected() -> None:
            message.reject(code, text)

        self._thread.run(rejected())

    @property
    def waiting(self) -> int:
        """How many messages have arrived and were not taken yet."""
        return self._subscription.queued

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._thread.run(self._subscription.unsubscribe())


class TestClient:
    """One client: `with TestClient(thread, url) as client:`, or the fixture `crewel_client`. The keywords are those of
    `crewel.client.Client`."""

    __test__ = False  # pytest must not take it for a class of tests

    def __init__(self, thread: LoopThread, url: str, **options: Unpack[Options]) -> None:
        self._thread = thread

        async def made() -> Client:
            return Client(url, **options)

        self.client = thread.run(made())
        """The client itself; its coroutines run in `thread`."""

    def open(self) -> Self:
        """Handshake. Raises what entering a `Client` raises."""
        self._thread.run(self.client.__aenter__())
        return self

    def close(self) -> None:
        """Disconnect; nothing if there is no session."""
        self._thread.run(self.client.__aexit__(None, None, None))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def client_id(self) -> str | None:
        """The id of the session; another one after each handshake."""
        return self.client.client_id

    @property
    def state(self) -> State:
        """The state of the session."""
        return self.client.state

    def publish(self, channel: str, data: Any, **options: Unpack[PublishOptions]) -> Reply:
        """Publish one message and return the reply. Raises what `Client.publish` raises."""
        return self._thread.run(self.client.publish(channel, data, **options))

    def subscribe(self, channel: str, **options: Unpack[SubscribeOptions]) -> TestSubscription:
        """Subscribe to a channel or a wildcard. Raises what `Client.subscribe` raises."""
        return TestSubscription(self._thread, self._thread.run(self.client.subscribe(channel, **options)))

    def listen(self, channel: str) -> TestSubscription:
        """Receive the messages of a channel that are addressed to this client, without a subscription."""

        async def listening() -> Subscription:
            return self.client.listen(channel)

        return TestSubscription(self._thread, self._thread.run(listening()))

    def request(self, channel: str, data: Any = None, timeout: float = WAIT_S) -> Message:
        """Send a request and return the first reply."""
        return self._thread.run(self.client.request(channel, data, timeout), timeout + WAIT_S)

    def remote_call(self, target: str, data: Any = None, timeout: float = WAIT_S) -> Any:
        """The result of the server's procedure."""
        return self._thread.run(self.client.remote_call(target, data, timeout), timeout + WAIT_S)
