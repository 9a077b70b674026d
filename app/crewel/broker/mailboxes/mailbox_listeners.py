"""What the parts of this package report to the parts above them: calls that go up, by the names of what has happened."""

from __future__ import annotations

from typing import Protocol

from crewel.bayeux.message import Message
from crewel.broker.exchange import Peer
from crewel.broker.session import Event, Session
from crewel.delivery.dispatcher import FailedDelivery


class OutboundListener(Protocol):
    """Gets what `Outbound` and `Connects` notice, and do not do themselves."""

    def on_timer(self, session: Session, now: float) -> float:
        """It may be time for something that the session's dispatcher waits for. Returns when it may be time again."""

    def conclude(self, session: Session) -> None:
        """A request has been read to its end whose statuses reported failures of the client."""

    def answer_seen(self, session: Session, peer: Peer, message: Message, *, passes: bool) -> None:
        """A plain connect cannot be held any more once the extensions have seen it; `passes`: they let it through."""

    def disconnect(self, session: Session) -> None:
        """The queue of a session that acknowledges is full, and its policy ends the session."""


class MailboxesListener(Protocol):
    """Gets what happens to sessions by what they are sent."""

    def is_active(self, session: Session) -> None:
        """The session takes messages of shared queues again: it was on hold, failing or away."""

    def has_capacity(self, session: Session) -> None:
        """The queue of the session may have capacity again for messages of shared queues."""

    def is_blocked(self, session: Session) -> None:
        """The session takes no messages of shared queues for the time being."""

    def try_other(self, session: Session, failed: FailedDelivery) -> bool:
        """Whether another session gets a message that this one has failed; it has no attempts if this one would try again."""

    def end(self, session: Session, event: Event) -> None:
        """The client of the session has failed for good: the session ends."""

    def answer_seen(self, session: Session, peer: Peer, message: Message, *, passes: bool) -> None:
        """A plain connect cannot be held any more once the extensions have seen it; `passes`: they let it through."""

    def disconnect(self, session: Session) -> None:
        """The queue of a session that acknowledges is full, and its policy ends the session."""
