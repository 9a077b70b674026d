"""One handler a meta channel (Bayeux 1.0, section 4; reference 1.3 to 1.5), and the table of them.

A handler gets the exchange, the session (live, but for the handshake's, which is to be made) and the message, and answers
the reply, or the steps to it if it may have to wait for a policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from crewel.bayeux import advice, replies
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.durability.durability import Durability
from crewel.broker.handler_steps import Steps
from crewel.broker.logins import HANDSHAKE, HandshakeHandler, Logins
from crewel.broker.names import Names
from crewel.broker.outbox.dispatchers import Dispatchers
from crewel.broker.outbox.exchange import Exchange
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.point_to_point.shared_queues import SharedQueues
from crewel.broker.session import Event, Session, State, Verdict
from crewel.broker.session_table import SessionTable
from crewel.broker.subscriptions.subscribe import SubscribeHandler
from crewel.errors import BayeuxCode

CONNECT: Final = "/meta/connect"

Handler = Callable[[Exchange, Session, Message], "Reply | Steps[Reply]"]


@dataclass(eq=False)
class MetaHandlers:
    """The handlers, and `by_channel`, the table of them."""

    _outbound: Outbound
    _dispatchers: Dispatchers
    _logins: Logins
    _names: Names
    _shared_queues: SharedQueues
    _durability: Durability
    _table: SessionTable
    _handshakes: HandshakeHandler
    _subscriptions: SubscribeHandler

    def __post_init__(self) -> None:
        self.by_channel: Mapping[str, Handler] = {
            HANDSHAKE: self._handshakes.handshake,
            CONNECT: self.connect,
            "/meta/disconnect": self.disconnect,
            "/meta/subscribe": self._subscriptions.subscribe,
            "/meta/unsubscribe": self._subscriptions.unsubscribe,
        }
        """The five meta channels, by whole name: a prefix or a last segment never selects a handler."""

    def connect(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `connectionType` by the specification, which is not checked; MAY carry `advice` for this one connect."""
        self._outbound.note_connect(exchange, session, message.id)
        if session.grants is not None:
            self._logins.check_token(session)
        if session.verdict is not None:
            return _refused_connect(message, session.verdict)
        reply = self._outbound.begin_connect(exchange, session, message)
        if self._dispatchers.pings:
            self._dispatchers.pings.connected(session)
        if session.state is State.CONNECTED:
            exchange.was_connected = True
        else:
            session.move(Event.CONNECT)
            if session.name:
                self._names.prove(session)
                self._shared_queues.on_connect(session)
        if session.durable is not None:
            waiting = self._durability.on_connect(session, session.durable)
            if waiting is not None:
                return _connect_later(waiting, reply)
        return reply

    def disconnect(self, exchange: Exchange, session: Session, message: Message) -> Reply:
        """Ends the session; what is queued goes out before the reply, and a held connect is answered."""
        self._table.remove(session, Event.DISCONNECT)
        return replies.ok(message)

    def unknown_session(self, exchange: Exchange, message: Message) -> Reply:
        """The reply to a message whose session is unknown or gone. Only a connect is advised: to shake hands again, or, if
        the session was disconnected just now or another client has taken it over, to stop."""
        if message.channel.name != CONNECT:
            return replies.failed(message, BayeuxCode.SESSION_UNKNOWN)
        if exchange.session is not None and exchange.session.state is State.DISCONNECTED:
            return _refused_connect(message, Verdict(BayeuxCode.SESSION_UNKNOWN, advice.removed()))
        return _refused_connect(message, self._logins.unknown(message.fields.get("clientId")))


def _refused_connect(message: Message, verdict: Verdict) -> Reply:
    reply = replies.failed(message, verdict.error)
    reply["advice"] = verdict.advice
    return reply


def _connect_later(waiting: Awaitable[None], reply: Reply) -> Steps[Reply]:
    yield waiting
    return reply
