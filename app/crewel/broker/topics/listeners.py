"""What topics ask of the parts above them, when one is erased."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession


class TopicsListener(Protocol):
    """Ends what sessions have of a topic."""

    def wants_notice(self, session: Session, pattern: str) -> bool:
        """Whether the session, which is subscribed to this channel or pattern, asked for the notice that a topic was erased."""

    def leave(self, session: Session, pattern: str) -> None:
        """The session is subscribed to this pattern no more."""

    def erase_subscription(
        self, session: Session, durable: DurableSession, channel: str, *, ends: bool, tells: bool
    ) -> asyncio.Future[Any]:
        """End a stored subscription, send the notice, or both. The future raises StoreError."""

    def committed(self) -> Awaitable[None]:
        """Wait until the store knows how all has ended that has ended so far."""
