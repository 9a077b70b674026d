"""Questions between nodes: one node asks another one, and waits for the answer, but not for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from crewel.broker.runtime import Runtime
from crewel.errors import StoreUnavailable
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link

log = logging.getLogger(__name__)

_WAIT_S: Final = 10.0


class Calls:
    """The questions of one node, and those that it answers."""

    def __init__(self, runtime: Runtime, link_to: Callable[[str], Link | None]) -> None:
        """`link_to` gives the link to the node with a token, if there is one that takes something."""
        self._runtime = runtime
        self._link_to = link_to
        self._waiting: dict[tuple[Link, int], asyncio.Future[bytes]] = {}
        self.on_ask: Callable[[bytes], Awaitable[bytes]] | None = None
        """Answers another node; None: this one answers nothing."""

    async def ask(self, token: str, question: bytes) -> bytes:
        """Return what the node with this token answers. Raises StoreUnavailable if it cannot be reached, or says nothing."""
        link = self._link_to(token)
        if link is None:
            raise StoreUnavailable("the node cannot be reached at the moment")
        link.streams += 1
        key = link, link.streams
        answer: asyncio.Future[bytes] = self._runtime.loop.create_future()
        self._waiting[key] = answer
        link.send(Kind.ASK, link.streams, question)
        try:
            async with asyncio.timeout(_WAIT_S):
                return await answer
        except TimeoutError:
            raise StoreUnavailable("the node does not answer") from None
        finally:
            del self._waiting[key]

    def told(self, link: Link, frame: Frame) -> None:
        """The answer has come."""
        answer = self._waiting.get((link, frame.stream))
        if answer is not None and not answer.done():
            answer.set_result(frame.payload)

    def lost(self, link: Link) -> None:
        """No answer comes from there any more."""
        for (each, _), answer in self._waiting.items():
            if each is link and not answer.done():
                answer.set_exception(StoreUnavailable("the link to the node has ended; what it has done is unknown"))

    def asked(self, link: Link, frame: Frame) -> None:
        """Another node asks."""
        if self.on_ask is not None:
            self._runtime.spawn(self._answer(link, frame.stream, self.on_ask(frame.payload)))

    @staticmethod
    async def _answer(link: Link, stream: int, answering: Awaitable[bytes]) -> None:
        link.send(Kind.TOLD, stream, await answering)
