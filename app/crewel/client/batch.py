"""Publishes that are collected and sent in one payload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, Unpack

from crewel.bayeux.message import Fields
from crewel.client.errors import publish_refused
from crewel.client.message import is_successful
from crewel.client.publishing import PublishOptions, publication
from crewel.client.replies import Reply

Request = Callable[[list[Fields]], Awaitable[list[Fields]]]


class Batch:
    """Collects until its block ends, then sends everything at once, in order.

    If the block raises, nothing is sent. If the server refuses some of the
    messages, leaving the block raises `PublishRefused` for the first of them;
    `replies` tells of each.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._messages: list[Fields] = []
        self.replies: list[Reply] = []
        """One reply for each message, in the order of publishing, once the block has ended."""

    def publish(self, channel: str, data: Any, ext: Fields | None = None, **options: Unpack[PublishOptions]) -> None:
        """Add one message. Raises ValueError if nobody can publish to this channel."""
        self._messages.append(publication(channel, data, ext, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None or not self._messages:
            return
        messages, self._messages = self._messages, []
        self.replies = [Reply(reply) for reply in await self._request(messages)]
        for reply in self.replies:
            if not is_successful(reply):
                raise publish_refused(reply)
