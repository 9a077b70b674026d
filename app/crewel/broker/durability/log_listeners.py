"""What the log and the stored sessions report to the parts above them."""

from __future__ import annotations

from typing import Protocol

from crewel.broker.addressing.queue_listeners import LettersListener
from crewel.broker.session import Event, Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import SessionRecord


class DurabilityListener(LettersListener, Protocol):
    """Gets what happens to sessions that the store has."""

    def restore(self, durable: DurableSession, record: SessionRecord, former: Session | None) -> None:
        """The store has this session: let it live again. `former`: what it was in this server before it was read again."""

    def set_aside(self, session: Session) -> None:
        """Let go of a session that will be read from the store again."""

    def end(self, session: Session, event: Event) -> None:
        """End a session that the store has not, or not as its client knows it."""

    def superseded(self) -> None:
        """Another server has taken over the store."""
