"""Logins: what a handshake makes durable, and sessions that come back from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux import replies
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.exchange import Exchange
from crewel.broker.sessions import Session
from crewel.broker.steps import Steps
from crewel.delivery.bounds import Bounds
from crewel.delivery.durable import Durable
from crewel.delivery.records import SessionRecord
from crewel.errors import StoreError, coded

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Logins"]

ANONYMOUS: Final = "client/anonymous/"


class Logins:
    """The names of one broker's sessions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def concern(self, session: Session, message: Message) -> bool:
        """Whether this handshake has to go through `login`."""
        return session.is_reliable and self._broker.durability is not None

    def login(self, exchange: Exchange, session: Session, message: Message) -> Steps[Reply | None]:
        """Store the session of a granted handshake; the reply that refuses it, or None."""
        durability = self._broker.durability
        assert durability is not None
        try:
            answer = yield durability.login(ANONYMOUS, self._facts(session), -1)
        except StoreError as error:
            return refused(message, error)
        self._bind(session)
        durability.attach(session, answer)
        return None

    def restore(self, durable: Durable, record: SessionRecord) -> None:
        """Let a session that the store has live again, as its last login made it."""
        facts = record.login
        broker = self._broker
        session = Session(broker, facts["id"])
        session.browser = facts.get("browser")
        session.is_reliable = session.connect_only = facts.get("ack", False)
        session.is_absent = True
        self._bind(session)
        for extension in broker.outbound.pipe.extensions:
            extension.restored(session)
        assert broker.durability is not None
        broker.durability.hand_to(session, durable)
        broker.revive(session, durable.since)

    def _bind(self, session: Session) -> None:
        delivery = self._broker.settings.delivery
        session.bounds = Bounds(delivery.queue_max_entries, delivery.queue_max_bytes)
        session.queue_limit = session.bounds.max_entries

    def _facts(self, session: Session) -> dict[str, Any]:
        return {"id": session.id, "browser": session.browser, "ack": session.is_reliable}


def refused(message: Message, error: StoreError) -> Reply:
    """The reply to a handshake that the store could not take: the client may try again."""
    reply = replies.failed(message, coded(error.code))
    reply["advice"] = {"reconnect": "handshake", "interval": 1000}
    return reply
