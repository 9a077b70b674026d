"""One handler for each meta channel (Bayeux 1.0, section 4).

A handler gets the exchange, the session (live, but for the handshake's, which is to be made) and the message. It returns the
reply, or the steps to it if it may have to wait for a policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from crewel.bayeux import advice, replies
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.durability.durability import Durability
from crewel.broker.exchange import Exchange
from crewel.broker.handler_steps import Steps
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.session import Event, Session, State, Verdict
from crewel.broker.sessions.handshakes import HANDSHAKE
from crewel.broker.sessions.sessions import Sessions
from crewel.broker.subscriptions.subscribe_handler import SubscribeHandler
from crewel.errors import BayeuxCode

CONNECT: Final = "/meta/connect"
# A member of an enumeration is a slow look-up; these are asked for with each connect.
_CONNECTED: Final = State.CONNECTED
_CONNECT: Final = Event.CONNECT

Handler = Callable[[Exchange, Session, Message], "Reply | Steps[Reply]"]


@dataclass(eq=False)
class MetaHandlers:
    """The handlers, and `by_channel`, the table of them."""

    _mailboxes: Mailboxes
    _addressing: Addressing
    _durability: Durability
    _sessions: Sessions
    _subscriptions: SubscribeHandler

    def __post_init__(self) -> None:
        self._connects, self._dispatchers = self._mailboxes.connects, self._mailboxes.dispatchers
        self._names = self._addressing.names
        self._logins = self._sessions.logins
        self.by_channel: Mapping[str, Handler] = {
            HANDSHAKE: self._sessions.handshakes.handshake,
            CONNECT: self.connect,
            "/meta/disconnect": self.disconnect,
            "/meta/subscribe": self._subscriptions.subscribe,
            "/meta/unsubscribe": self._subscriptions.unsubscribe,
        }
        """The five meta channels, by whole name: a prefix or a last segment never selects a handler."""

    def connect(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `connectionType` by the specification, which is not checked; MAY carry `advice` for this one connect."""
        self._connects.note_connect(exchange, session, message.id)
        if session.grants is not None:
            self._logins.check_token(session)
        if session.verdict is not None:
            return _refused_connect(message, session.verdict)
        reply = self._connects.begin_connect(exchange, session, message)
        if self._dispatchers.pings:
            self._dispatchers.pings.connected(session)
        if session.state is _CONNECTED:
            exchange.was_connected = True
        else:
            session.move(_CONNECT)
            if session.name:
                self._names.prove(session)
                self._addressing.on_connect(session)
        if session.mailbox.is_absent or session.mailbox.evicted:
            awaited = self._durability.on_connect(session)
            if awaited is not None:
                return _connect_later(awaited, reply)
        return reply

    def disconnect(self, exchange: Exchange, session: Session, message: Message) -> Reply:
        """Ends the session; what is queued goes out before the reply, and a held connect is answered."""
        self._sessions.table.remove(session, Event.DISCONNECT)
        return replies.ok(message)

    def unknown_session(self, exchange: Exchange, message: Message) -> Reply:
        """The reply to a message whose session is unknown or gone. Only a connect is advised: to handshake again, or, if
        the session was disconnected just now or another client has taken it over, to stop."""
        if message.channel.name != CONNECT:
            return replies.failed(message, BayeuxCode.SESSION_UNKNOWN)
        if exchange.session is not None and exchange.session.state is State.DISCONNECTED:
            return _refused_connect(message, Verdict(BayeuxCode.SESSION_UNKNOWN, advice.removed()))
        client_id = message.fields.get("clientId")
        session = self._sessions.by_id.get(client_id) if isinstance(client_id, str) else None
        if session is not None and exchange.session is None:  # it lives, and this is not its browser
            interval_ms = self._sessions.lost_cookies.refuse(session, exchange.peer)
            return _refused_connect(message, Verdict(BayeuxCode.SESSION_UNKNOWN, advice.handshake(interval_ms)))
        return _refused_connect(message, self._logins.unknown(client_id))


def _refused_connect(message: Message, verdict: Verdict) -> Reply:
    reply = replies.failed(message, verdict.error)
    reply["advice"] = verdict.advice
    return reply


def _connect_later(awaited: Awaitable[None], reply: Reply) -> Steps[Reply]:
    yield awaited
    return reply
