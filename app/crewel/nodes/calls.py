"""Questions between nodes: one node asks another one, and waits for the answer, but not for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from crewel.bayeux.codec import encode
from crewel.broker.runtime import Runtime
from crewel.errors import NodeFailed, StoreUnavailable
from crewel.nodes.frames import LAST_STREAM, Frame, Kind
from crewel.nodes.link import Link, OpenLinks
from crewel.nodes.node_requests import REQUESTS, Answer, Question, Request

log = logging.getLogger(__name__)

_WAIT_S: Final = 10.0
"""For an answer. The link to a node that hangs ends before."""
_ABOUT: Final = "about"
"""The field of a question that says which one it is. Those of nodes of the first versions are of operators."""
_FAILED: Final = "failed"
"""The field of an answer that says why there is none."""
_UNKNOWN: Final = "does not know the request"
"""So begins what a node says of a question of a later version."""


class Calls:
    """The questions of one node, and those that it answers."""

    def __init__(self, runtime: Runtime, links: OpenLinks) -> None:
        self._runtime = runtime
        self._links = links
        self._waiting: dict[tuple[Link, int], asyncio.Future[bytes]] = {}
        self._answering: dict[str, Callable[[Any], Awaitable[Any]]] = {}

    def serve(self, request: Request[Question, Answer], answering: Callable[[Question], Awaitable[Answer]]) -> None:
        """Let this answer the other nodes' questions of this kind."""
        self._answering[request.about] = answering

    async def ask(self, token: str, request: Request[Question, Answer], question: Question) -> Answer:
        """Return what the node with this token answers. Raises NodeFailed if it fails, or answers what this node cannot read,
        and StoreUnavailable if it cannot be reached or says nothing in time."""
        link = self._links.to(token)
        if link is None:
            raise StoreUnavailable("the node cannot be reached at the moment")
        asked = encode({_ABOUT: request.about, **orjson.loads(request.question.write(question))})
        told = await self._send(link, asked)
        try:
            fields = orjson.loads(told)
            if _FAILED not in fields:
                return request.answer.read(fields)
        except (ValueError, TypeError) as error:
            log.exception("the answer of another node cannot be read: %s", request.about)
            raise NodeFailed(f"the answer of the node to {request.about} cannot be read") from error
        reason = str(fields[_FAILED])
        failure = f"the node {reason}"
        # While nodes are upgraded one after another, some are of the earlier version.
        log.log(logging.INFO if reason.startswith(_UNKNOWN) else logging.ERROR, "%s (%s)", failure, request.about)
        raise NodeFailed(failure)

    async def _send(self, link: Link, asked: bytes) -> bytes:
        stream = link.streams % LAST_STREAM + 1
        while (link, stream) in self._waiting:
            stream = stream % LAST_STREAM + 1
        link.streams = stream
        key = link, stream
        told: asyncio.Future[bytes] = self._runtime.loop.create_future()
        self._waiting[key] = told
        try:
            link.send(Kind.ASK, stream, asked)
            async with asyncio.timeout(_WAIT_S):
                return await told
        except TimeoutError:
            raise StoreUnavailable("the node does not answer") from None
        finally:
            del self._waiting[key]

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
        self._runtime.spawn(self._answer(link, frame))

    async def _answer(self, link: Link, frame: Frame) -> None:
        link.send(Kind.TOLD, frame.stream, await self._answered(frame.payload))

    async def _answered(self, payload: bytes) -> bytes:
        """The answer; what fails here, to the last byte of it, is one too: else it would look like silence."""
        about = ""
        try:
            fields = orjson.loads(payload)
            about = str(fields.pop(_ABOUT, ""))
            request, answering = REQUESTS.get(about), self._answering.get(about)
            if request is None or answering is None:
                return encode({_FAILED: f"{_UNKNOWN} {about}: its version differs"})
            return request.answer.write(await answering(request.question.read(fields)))
        except Exception:
            log.exception("a request of another node failed: %s", about)
            return encode({_FAILED: f"has failed to answer {about}: its log says why"})
