"""The functions of an application that a client calls with messages, each in a task that the client ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any

from crewel.client.client_message import DataT, Message
from crewel.client.errors import ClientError, failure_of
from crewel.client.subscription import Subscription
from crewel.client.traces import NO_TRACES, Traces

log = logging.getLogger("crewel.client")

OnMessage = Callable[[Message[DataT]], Awaitable[None] | None]
"""What is called with each message of a subscription; it may be a coroutine function."""


class Callbacks:
    """The tasks of one client that call its application."""

    def __init__(self, traces: Traces = NO_TRACES) -> None:
        self._traces = traces
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, callback: OnMessage, subscription: Subscription) -> None:
        """Call the function with each message of the subscription, one after another."""
        self.keep(self._call_with_each(callback, subscription), subscription.channel)

    def keep(self, coroutine: Coroutine[Any, Any, None], channel: str) -> None:
        """Run this until it ends, or the client is closed."""
        task = asyncio.create_task(coroutine, name=f"crewel-client {channel}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call_with_each(self, callback: OnMessage, subscription: Subscription) -> None:
        task = asyncio.current_task()
        try:
            async for message in subscription:  # asking for the next one settles it
                try:
                    with self._traces.processing(message):
                        await result_of(callback, message)
                except Exception as error:
                    log.exception("a callback of %s failed", subscription.channel)
                    message.reject(*failure_of(error))
                # The callback has caught its cancellation: the client waits for the end of this task.
                if task is not None and task.cancelling():
                    subscription.settle_taken()
                    return
        except ClientError as error:
            log.warning("%s ended: %s", subscription.channel, error)

    async def cancel(self) -> None:
        """End all of them, but the one that calls this."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def result_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function or coroutine function; what it returns. Raises what it raises: CancelledError if the client cancels it,
    and RuntimeError for any other, which comes from what it awaits."""
    try:
        result = function(*arguments)
        return await result if isawaitable(result) else result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("what it waited for was cancelled") from error
