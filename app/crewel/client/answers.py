"""Requests that wait for their answer, matched by its channel; and what becomes of answers that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from crewel.bayeux.channel import REPLIES
from crewel.bayeux.message import Fields
from crewel.client.message import is_delivery

_REMEMBERED: Final = 10_000
"""How many answered requests are remembered, to tell what comes twice from what comes late."""


class Answers:
    """The answers that are still awaited, by the reply channel of their request."""

    def __init__(self) -> None:
        self.duplicates = 0
        """How many answers came to requests that had one."""
        self.late = 0
        """How many came that nobody waits for, or not any more."""
        self._awaited: dict[str, asyncio.Future[Fields]] = {}
        self._answered: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def __contains__(self, reply_to: object) -> bool:
        return reply_to in self._awaited

    @contextmanager
    def awaited(self, reply_to: str) -> Iterator[asyncio.Future[Fields]]:
        """Await the answer on this channel within the block; afterwards it is of no interest."""
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._awaited[reply_to] = answer
        try:
            yield answer
        finally:
            self._awaited.pop(reply_to, None)
            # A failure that came after its waiter had gone is nobody's: looking at it keeps asyncio from reporting it.
            if not answer.cancel() and not answer.cancelled():
                answer.exception()

    def is_awaited(self, fields: Fields) -> bool:
        """Whether this is an answer that a request waits for."""
        return fields.get("channel") in self._awaited and is_delivery(fields)

    def settle(self, fields: Fields) -> bool:
        """Hand a received message to the request that it answers; whether there is one. Counts answers without one."""
        channel = fields.get("channel")
        if not isinstance(channel, str) or not channel.startswith(REPLIES) or not is_delivery(fields):
            return False
        answer = self._awaited.pop(channel, None)
        if answer is None or answer.done():
            self.duplicates += channel in self._answered
            self.late += channel not in self._answered
            return False
        self._answered[channel] = None
        if len(self._answered) > _REMEMBERED:
            del self._answered[next(iter(self._answered))]
        answer.set_result(fields)
        return True

    def fail(self, error: Exception, *, kept: str = "") -> None:
        """No answer will come any more, but on channels that begin with `kept`."""
        for channel, answer in self._awaited.items():
            if not (kept and channel.startswith(kept)) and not answer.done():
                answer.set_exception(error)
