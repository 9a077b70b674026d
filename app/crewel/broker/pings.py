"""Pings: is the client there, and how long does it take to answer (design, 3.11)?

A held connect that is released empty is the question, and the client's next connect the answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from crewel.broker.sessions import Session
from crewel.errors import NotReached

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Pings"]


class Pings:
    """The pings that are under way."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Session, tuple[float, asyncio.Future[float]]] = {}

    def __bool__(self) -> bool:
        """Whether any connect is waited for."""
        return bool(self._waiting)

    async def ping(self, session: Session) -> float:
        """Have the client connect again; returns how long that took, in milliseconds. Raises NotReached if it does not in
        time."""
        loop = self._broker.loop
        if session not in self._waiting:
            self._waiting[session] = (loop.time(), loop.create_future())
            session.advised_on = None  # so that the next connect is looked at
            self._broker.outbound.release(session, loop.time())
        _, answer = self._waiting[session]
        limit = self._broker.settings.delivery.ping_timeout_ms / 1000
        try:
            return await asyncio.wait_for(asyncio.shield(answer), limit)
        except TimeoutError:
            self._waiting.pop(session, None)
            raise NotReached(f"{session.name} did not connect again within {limit:g} s") from None

    def connected(self, session: Session) -> None:
        """A connect came: if it was waited for, that is the answer."""
        started, answer = self._waiting.pop(session, (0.0, None))
        if answer is not None and not answer.done():
            answer.set_result((self._broker.loop.time() - started) * 1000)

    def ended(self, session: Session) -> None:
        """The session is over: nobody will answer."""
        _, answer = self._waiting.pop(session, (0.0, None))
        if answer is not None and not answer.done():
            answer.set_exception(NotReached(f"{session.name} has ended"))
