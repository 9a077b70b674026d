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


class Pings:
    """The pings that are under way."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Session, dict[asyncio.Future[float], float]] = {}

    def __bool__(self) -> bool:
        """Whether any connect is waited for."""
        return bool(self._waiting)

    async def ping(self, session: Session) -> float:
        """Have the client connect again; returns how long that took, in milliseconds. Raises NotReached if it does not in
        time."""
        loop = self._broker.loop
        answer: asyncio.Future[float] = loop.create_future()
        self._waiting.setdefault(session, {})[answer] = loop.time()
        self._broker.outbound.release(session, loop.time())
        session.advised_on = None  # so that the next connect is looked at
        limit = self._broker.settings.delivery.ping_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            raise NotReached(f"{session.name} did not connect again within {limit:g} s") from None
        finally:
            self._forget(session, answer)

    def _forget(self, session: Session, answer: asyncio.Future[float]) -> None:
        waiting = self._waiting.get(session, {})
        waiting.pop(answer, None)
        if not waiting:
            self._waiting.pop(session, None)

    def connected(self, session: Session) -> None:
        """A connect came: if it was waited for, that is the answer."""
        for answer, started in self._waiting.pop(session, {}).items():
            if not answer.done():
                answer.set_result((self._broker.loop.time() - started) * 1000)

    def ended(self, session: Session) -> None:
        """The session is over: nobody will answer."""
        for answer in self._waiting.pop(session, {}):
            if not answer.done():
                answer.set_exception(NotReached(f"{session.name} has ended"))
