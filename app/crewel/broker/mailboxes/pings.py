"""Pings: an operator asks whether a client is still there, and how long it takes to answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from crewel.broker.mailboxes.connects import Connects
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.errors import NotReached


@dataclass(eq=False)
class Pings:
    """The pings that are under way."""

    _runtime: Runtime
    _connects: Connects
    _unanswered: dict[Session, dict[asyncio.Future[float], float]] = field(default_factory=dict, init=False)

    def __bool__(self) -> bool:
        """Whether any connect is waited for."""
        return bool(self._unanswered)

    async def ping(self, session: Session) -> float:
        """Have the client connect again; returns how long that took, in milliseconds. Raises NotReached if it does not in
        time."""
        loop = self._runtime.loop
        answer: asyncio.Future[float] = loop.create_future()
        self._unanswered.setdefault(session, {})[answer] = loop.time()
        self._connects.release(session, loop.time())
        session.advised_on = None  # so that the next connect is looked at
        limit = self._runtime.settings.delivery.ping_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            raise NotReached(f"{session.name} did not connect again within {limit:g} s") from None
        finally:
            self._forget(session, answer)

    def _forget(self, session: Session, answer: asyncio.Future[float]) -> None:
        unanswered = self._unanswered.get(session, {})
        unanswered.pop(answer, None)
        if not unanswered:
            self._unanswered.pop(session, None)

    def connected(self, session: Session) -> None:
        """A connect came: if it was waited for, that is the answer."""
        for answer, started in self._unanswered.pop(session, {}).items():
            if not answer.done():
                answer.set_result((self._runtime.loop.time() - started) * 1000)

    def ended(self, session: Session) -> None:
        """The session has ended: no answer will come."""
        for answer in self._unanswered.pop(session, {}):
            if not answer.done():
                answer.set_exception(NotReached(f"{session.name} has ended"))
