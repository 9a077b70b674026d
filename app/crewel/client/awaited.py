"""What a client still awaits: replies and results of remote calls by id, answers by the reply channel of their request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from crewel.bayeux.channel import REPLIES
from crewel.bayeux.message import Fields
from crewel.client.client_message import is_delivery

_ANSWERS_REMEMBERED: Final = 10_000
"""How many answered requests are remembered, to distinguish what comes twice from what comes late."""


class Awaited(dict[str, "asyncio.Future[Fields]"]):
    """What is still awaited, by the id or the channel that it comes with. `began` is called when there is more of it."""

    def __init__(self, began: Callable[[], None] = lambda: None) -> None:
        self._began = began

    @contextmanager
    def wait_for(self, names: list[str]) -> Iterator[list[asyncio.Future[Fields]]]:
        """Await these within the block; afterwards they are of no interest."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in names]
        self.update(zip(names, futures, strict=True))
        self._began()
        try:
            yield futures
        finally:
            for name, future in zip(names, futures, strict=True):
                self.pop(name, None)
                # A failure that comes after the waiter has gone is of no interest: looking at it keeps asyncio from
                # reporting it.
                if not future.cancel() and not future.cancelled():
                    future.exception()

    def settle(self, name: str, fields: Fields) -> bool:
        """Hand a received message to its waiter; whether there was one that had none yet."""
        future = self.get(name)
        if future is None or future.done():
            return False
        future.set_result(fields)
        return True

    def fail(self, error: Exception, *, except_prefix: str = "") -> None:
        """None of these will come any more, but on channels that begin with `except_prefix`."""
        for name, future in self.items():
            if not (except_prefix and name.startswith(except_prefix)) and not future.done():
                future.set_exception(error)


class Exchanges:
    """The replies and remote call results that are still awaited, by the ids of their requests."""

    def __init__(self, began: Callable[[], None] = lambda: None) -> None:
        self.replies = Awaited()
        self.results = Awaited(began)

    def is_awaited_result(self, fields: Fields) -> bool:
        """Whether this is the result of a remote call that still waits: a delivery with the id of the call."""
        return is_delivery(fields) and fields.get("id") in self.results

    def settle(self, fields: Fields) -> bool:
        """Hand a received message to the request that awaits it; whether there was one."""
        message_id = fields.get("id")
        if not isinstance(message_id, str):
            return False
        return (self.results if is_delivery(fields) else self.replies).settle(message_id, fields)

    async def replied(self, timeout: float) -> None:
        """Wait until all requests that are on their way have their replies, at most `timeout` seconds."""
        if self.replies:
            await asyncio.wait(self.replies.values(), timeout=timeout)

    def fail(self, error: Exception) -> None:
        """The session is gone: neither replies nor results will come."""
        self.replies.fail(error)
        self.results.fail(error)


class Answers(Awaited):
    """The answers that are still awaited, by the reply channel of their request."""

    def __init__(self, began: Callable[[], None] = lambda: None) -> None:
        super().__init__(began)
        self.duplicates = 0
        """How many answers came to requests that had one."""
        self.late = 0
        """How many came that no request waits for, or not any more."""
        self._answered: dict[str, None] = {}

    def is_awaited(self, fields: Fields) -> bool:
        """Whether this is an answer that a request waits for."""
        return fields.get("channel") in self and is_delivery(fields)

    def take(self, fields: Fields) -> bool:
        """Hand a received message to the request that it answers; whether there is one. Counts answers without one."""
        channel = fields.get("channel")
        if not isinstance(channel, str) or not channel.startswith(REPLIES) or not is_delivery(fields):
            return False
        if not self.settle(channel, fields):
            self.duplicates += channel in self._answered
            self.late += channel not in self._answered
            return False
        del self[channel]
        self._answered[channel] = None
        if len(self._answered) > _ANSWERS_REMEMBERED:
            del self._answered[next(iter(self._answered))]
        return True
