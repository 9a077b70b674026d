"""Logins: what a handshake makes durable, and sessions that come back from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux import replies
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.sessions import Event, Session
from crewel.broker.steps import Steps
from crewel.delivery.durable import Durable
from crewel.delivery.records import SessionRecord
from crewel.errors import StoreError

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Logins"]

ANONYMOUS: Final = "client/anonymous/"


class Logins:
    """The names of one broker's sessions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def login(self, session: Session, message: Message) -> Steps[Reply | None]:
        """Store the session of a granted handshake, if it is one that survives; the reply that refuses it, or None."""
        durability = self._broker.durability
        if durability is None or not session.is_reliable:
            return None
        try:
            answer = yield durability.login(ANONYMOUS, self._facts(session), -1)
        except StoreError as error:
            return refused(message, error)
        durability.attach(session, answer)
        return None

    def restore(self, durable: Durable, record: SessionRecord) -> None:
        """Let a session that the store has live again, as its last login made it."""
        facts = record.login
        session = Session(self._broker, facts["id"])
        session.browser = facts.get("browser")
        session.is_reliable = session.connect_only = facts.get("ack", False)
        session.durable = durable
        session.name = durable.name
        session.is_absent = True
        durable.holder = session
        session.move(Event.GRANTED)
        session.move(Event.CONNECT)
        self._broker.revive(session, durable.since)

    def _facts(self, session: Session) -> dict[str, Any]:
        return {"id": session.id, "browser": session.browser, "ack": session.is_reliable}


def refused(message: Message, error: StoreError) -> Reply:
    """The reply to a handshake that the store could not take: the client may try again."""
    reply = replies.failed(message, f"503::{error.code}")
    reply["advice"] = {"reconnect": "handshake", "interval": 1000}
    return reply
