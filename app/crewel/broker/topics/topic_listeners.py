"""What topics ask of the parts above them, when one is erased."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from crewel.broker.session import Session


class TopicsListener(Protocol):
    """Ends what sessions have of a topic."""

    def wants_notice(self, session: Session, pattern: str) -> bool:
        """Whether the session, which is subscribed to this channel or pattern, asked for the notice that a topic was erased."""

    def part(self, session: Session, channel: str, *, ends: bool, tells: bool) -> asyncio.Future[Any] | None:
        """End the session's subscription to this topic, send it the notice, or both. None: it is done; else the future raises
        StoreError."""

    def committed(self) -> Awaitable[bool]:
        """Wait until the store knows how all has ended that has ended so far; False if nothing is committed any more."""
