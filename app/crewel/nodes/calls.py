"""Questions between nodes: one node asks another one, and waits for the answer, but not for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from crewel.bayeux.codec import encode
from crewel.broker.runtime import Runtime
from crewel.errors import StoreUnavailable
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link

log = logging.getLogger(__name__)

_WAIT_S: Final = 10.0
"""For an answer. The link to a node that hangs ends before."""
_ABOUT: Final = "about"
"""The field of a question that says which one it is."""
OPERATOR: Final = "operator"
"""What a question is about that does not say it: those of nodes of the first versions."""
_SAYS_ABOUT: Final = 2
"""The version of the link from which on a question says what it is about."""
_FAILED: Final = "failed"
"""The field of an answer that says why there is none."""

Fields = dict[str, Any]
"""A question, or an answer: what JSON can say."""


class Calls:
    """The questions of one node, and those that it answers."""

    def __init__(self, runtime: Runtime, link_to: Callable[[str], Link | None]) -> None:
        """`link_to` gives the link to the node with a token, if there is one that takes something."""
        self._runtime = runtime
        self._link_to = link_to
        self._waiting: dict[tuple[Link, int], asyncio.Future[bytes]] = {}
        self.answers: dict[str, Callable[[Fields], Awaitable[Fields]]] = {}
        """What answers another node, by what its question is about."""

    async def ask(self, token: str, about: str, fields: Fields) -> Fields:
        """Return what the node with this token answers. Raises StoreUnavailable if it cannot be reached, says nothing in time,
        or cannot answer."""
        link = self._link_to(token)
        if link is None:
            raise StoreUnavailable("the node cannot be reached at the moment")
        if about != OPERATOR and link.version < _SAYS_ABOUT:
            raise StoreUnavailable(f"the node does not know the request {about}: its version is older")
        link.streams += 1
        key = link, link.streams
        told: asyncio.Future[bytes] = self._runtime.loop.create_future()
        self._waiting[key] = told
        link.send(Kind.ASK, link.streams, encode({_ABOUT: about, **fields}))
        try:
            async with asyncio.timeout(_WAIT_S):
                answer: Fields = orjson.loads(await told)
        except TimeoutError:
            raise StoreUnavailable("the node does not answer") from None
        finally:
            del self._waiting[key]
        if _FAILED in answer:
            raise StoreUnavailable(f"the node {answer[_FAILED]}")
        return answer

    def on_answer(self, link: Link, frame: Frame) -> None:
        """The answer has come."""
        answer = self._waiting.get((link, frame.stream))
        if answer is not None and not answer.done():
            answer.set_result(frame.payload)

    def lost(self, link: Link) -> None:
        """No answer comes from there any more."""
        for (each, _), answer in self._waiting.items():
            if each is link and not answer.done():
                answer.set_exception(
                    StoreUnavailable("the link to the node has ended; the outcome of the request is unknown")
                )

    def asked(self, link: Link, frame: Frame) -> None:
        """Another node asks."""
        self._runtime.spawn(self._answer(link, frame.stream, orjson.loads(frame.payload)))

    async def _answer(self, link: Link, stream: int, question: Fields) -> None:
        about = question.pop(_ABOUT, OPERATOR)
        answering = self.answers.get(about)
        try:
            if answering is None:
                answer = {_FAILED: f"does not know the request {about}: its version differs"}
            else:
                answer = await answering(question)
        except Exception:
            log.exception("a request of another node failed: %s", about)
            answer = {_FAILED: "has failed to answer"}
        link.send(Kind.TOLD, stream, encode(answer))
