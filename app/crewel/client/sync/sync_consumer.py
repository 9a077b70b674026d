"""A worker's view of a channel, for a loop or for threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Generic, Self

from crewel.client import consumer
from crewel.client.arguments import check_count, check_function
from crewel.client.client_message import DataT
from crewel.client.sync.background import Background, Block, Fact
from crewel.client.sync.sync_message import Delivery, hand_back
from crewel.client.threads import ProgramExit, in_thread

if TYPE_CHECKING:
    from crewel.client.sync.sync_client import Client

Handler = Callable[[Delivery[DataT]], object]
"""What is called with each message of a worker, in a thread. What it returns is ignored."""


class Consumer(Block[consumer.Consumer[DataT]], Generic[DataT]):
    """The messages of a channel, for a worker: `for message in client.consume(…)`, or `run` with threads.

    The iteration begins with a login, and continues through broken connections and restarts of the server. It ends when the
    consumer or its client is closed, and raises what a subscription raises: `DisconnectedError` if another process has taken
    the session over, `SubscribeRefused`.

    When you leave the consumer or its client, the session stays at the server and collects messages for the next worker with
    this name. That worker also gets the messages that were not acknowledged.
    """

    def __init__(self, background: Background, origin: consumer.Consumer[DataT], client: Client) -> None:
        super().__init__(background, origin)
        self.client = client
        """The session of its own that it has."""

    # Written by tools/sync_client.py, as crewel.client.Consumer has it
    attempts = Fact[int]("_origin", "attempts")
    """How often a message that raises an exception is tried."""
    retrying = Fact[int]("_origin", "retrying")
    """How many messages wait for another attempt."""
    fetched = Fact[int]("_origin", "fetched")
    """How many messages this process has fetched ahead."""
    invalid = Fact[int]("_origin", "invalid")
    """How many messages were rejected because their data has not the type that the worker asks for."""

    def batch(self, most: int, *, within: float = 0.0) -> list[Delivery[DataT]]:
        """Return up to `most` messages: the next one, and those that arrive within `within` seconds after it. The
        arguments and errors are those of `crewel.client.Consumer.batch`."""
        messages = self._background.take(lambda: self._origin.batch(most, within=within), self._origin.put_back)
        return [Delivery.of(message, self._background) for message in messages]

    def stop(self) -> None:
        """Take no more messages: the iteration ends, and `run` ends when its handlers have ended. Call it in the handler of
        SIGTERM. The next worker gets the messages that were fetched and not handed out."""
        self._background.call_soon(self._origin.stop)

    def close(self) -> None:
        """Leave the session; messages that are open stay open."""
        self._background.wait_for(self._origin.close)

    # End of what is written

    def run(self, handler: Handler[DataT], *, at_once: int = 1) -> None:
        """Call `handler(message)` for each message, at most `at_once` at the same time, each in a thread, and start the calls
        in the order of the messages. If the handler returns, its message is acknowledged; if it raises an exception, the
        message is retried or rejected, as with `with message:`.

        Returns after `stop`, when the handlers have ended. If it is interrupted, by Ctrl+C, the messages of handlers that still
        run stay open, and the server sends them again. If a handler raises SystemExit, its message stays open, and this call
        raises it when the other handlers have ended. Raises the errors of the iteration, ValueError and TypeError.
        """
        check_handler(handler)
        check_count("at_once", at_once)
        with ThreadPoolExecutor(at_once, thread_name_prefix="crewel-client-handler") as pool:

            async def handle(delivery: consumer.Delivery[DataT]) -> None:
                shown = Delivery.of(delivery, self._background)
                try:
                    check_result("handler", await in_thread(pool, handler, shown))
                finally:
                    hand_back(shown)

            try:
                self._background.wait_for(lambda: self._origin.run(handle, at_once=at_once))
            except ProgramExit as end:
                raise end.error from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery[DataT]:
        try:
            taken = self._background.take(self._origin.__anext__, self._put_back)
        except StopAsyncIteration:
            raise StopIteration from None
        return Delivery.of(taken, self._background)

    def _put_back(self, origin: consumer.Delivery[DataT]) -> None:
        self._origin.put_back([origin])


def check_handler(handler: object) -> None:
    """Raises TypeError for anything but a plain function."""
    check_function("handler", handler)
    if iscoroutinefunction(handler):
        raise TypeError("handler is a plain function here; crewel.client calls coroutine functions")


def check_result(name: str, result: object) -> object:
    """Return the result of a function. Raises TypeError for a coroutine, which no code awaits: the message is not processed."""
    if iscoroutine(result):
        result.close()
        raise TypeError(f"{name} returned a coroutine: it is a plain function here; crewel.client awaits coroutines")
    return result
