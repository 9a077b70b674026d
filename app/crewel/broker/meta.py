"""One handler a meta channel (Bayeux 1.0, section 4; reference 1.3 to 1.5), and the table of them.

A handler gets the exchange, the session (live, but for the handshake's, which is to be made) and the message, and answers
the reply, or the steps to it if it may have to wait for a policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from crewel.bayeux import advice, replies
from crewel.bayeux.channel import Channel, Kind
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.channels import Channels
from crewel.broker.durability.durability import Durability
from crewel.broker.durability.subscription_store import SubscriptionStore
from crewel.broker.guard import Guard
from crewel.broker.handler_steps import Steps
from crewel.broker.limiter import Limiter
from crewel.broker.logins import Logins
from crewel.broker.names import Names
from crewel.broker.outbox.connects import Browsers
from crewel.broker.outbox.dispatchers import Dispatchers
from crewel.broker.outbox.exchange import Exchange
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.outbox.timers import SessionTimes
from crewel.broker.point_to_point.shared_queues import SharedQueues
from crewel.broker.refusals import denied as denied_handshake
from crewel.broker.refusals import limited, requested_name, shown_token, unavailable
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session, State, Verdict
from crewel.broker.session_table import SessionTable
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.subscriptions.subscribe import Permissions, SubscribeHandler
from crewel.errors import BayeuxCode, Limited, StoreError, coded

HANDSHAKE: Final = "/meta/handshake"
CONNECT: Final = "/meta/connect"

Handler = Callable[[Exchange, Session, Message], "Reply | Steps[Reply]"]


@dataclass(eq=False)
class MetaHandlers:
    """The handlers, and `by_channel`, the table of them."""

    _runtime: Runtime
    _channels: Channels
    _outbound: Outbound
    _dispatchers: Dispatchers
    _guard: Guard
    _limits: Limiter
    _logins: Logins
    _names: Names
    _shared_queues: SharedQueues
    _options: SubscriptionOptions
    _permissions: Permissions
    _browsers: Browsers
    _times: SessionTimes
    _subscriptions: SubscriptionStore
    _durability: Durability
    _table: SessionTable
    _subscribe_handler: SubscribeHandler

    def __post_init__(self) -> None:
        self._transports = list(self._runtime.settings.bayeux.transports)
        self.by_channel: Mapping[str, Handler] = {
            HANDSHAKE: self.handshake,
            CONNECT: self.connect,
            "/meta/disconnect": self.disconnect,
            "/meta/subscribe": self.subscribe,
            "/meta/unsubscribe": self.unsubscribe,
        }
        """The five meta channels, by whole name: a prefix or a last segment never selects a handler."""

    def handshake(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MAY carry anything; the version and the transports are not checked: hand-written clients leave them out."""
        try:
            self._limits.handshake(session, message)
            outcome = self._begin(exchange, session, message)
        except Limited as error:
            exchange.session = None
            return limited(message, error)
        if isinstance(outcome, dict) or shown_token(message) is None:
            return outcome
        return self._count_token(session, outcome)

    def _begin(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        if not self._guard.admits_everybody:
            return self._ask_and_shake_hands(exchange, session, message)
        if self._logins.needs_login(session, message):
            return self._log_in(exchange, session, message)
        self._limits.admit(session)
        return self._shake_hands(exchange, session, message)

    def _count_token(self, session: Session, steps: Steps[Reply]) -> Steps[Reply]:
        """Count a token that does not hold."""
        reply = yield from steps
        if not reply["successful"] and ":user.security" in reply["error"] and session.account is not None:
            self._limits.token_failed(session.account)
        return reply

    def _ask_and_shake_hands(self, exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
        refusal = yield from self._guard.handshake(session, message)
        if refusal is None:
            if self._logins.needs_login(session, message):
                return (yield from self._log_in(exchange, session, message))
            try:
                self._limits.admit(session)
            except Limited as error:
                exchange.session = None
                return limited(message, error)
            return self._shake_hands(exchange, session, message)
        exchange.session = None
        return denied_handshake(message, refusal)

    def _log_in(self, exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
        self._browsers.bind_new(session, exchange.peer)
        refusal = yield from self._logins.login(exchange, session, message)
        if refusal is not None:
            exchange.session = None
            return refusal
        assert exchange.session is not None
        if exchange.session is not session:
            try:
                yield from self._permissions.regrant(exchange.session)
            except StoreError as error:
                exchange.session = None
                return unavailable(message, error, requested_name(message.ext.get("session")))
        reply = self._shake_hands(exchange, exchange.session, message)
        if exchange.login is not None:
            reply["ext"] = {"session": exchange.login}
        return reply

    def _shake_hands(self, exchange: Exchange, session: Session, message: Message) -> Reply:
        peer = exchange.peer
        if not session.is_live:  # else another client's, which this one has taken over
            self._browsers.bind_new(session, peer)
            self._table.add(session)
        reply = replies.handshaken(message, session.id, self._transports, self._times.handshaken(session, peer))
        exchange.handshake = reply
        return reply

    def connect(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `connectionType` by the specification, which is not checked; MAY carry `advice` for this one connect."""
        self._outbound.note_connect(session, exchange.peer, message.id)
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

    def subscribe(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `subscription`. Names are taken one by one: where one is refused, those before it stay subscribed."""
        channels = message.subscriptions()
        self._limits.subscribe(session, len(channels))
        if self._subscribe_handler.asks_for_more(session, message):
            return self._subscribe_handler.subscribe(session, message, channels)
        if session.durable is not None or not all(map(self._guard.is_open, channels)):
            return self._ask_and_subscribe(session, message, channels)
        for channel in channels:
            if channel.kind is Kind.BROADCAST:
                self._channels.subscribe(session, channel.name)
        return replies.ok(message)

    def _ask_and_subscribe(self, session: Session, message: Message, channels: list[Channel]) -> Steps[Reply]:
        granted, error = yield from self._permissions.grant(session, message, channels)
        failure = yield from self._subscribe(session, [channel.name for channel in granted])
        error = error or failure
        return replies.ok(message) if error is None else replies.failed(message, error)

    def _subscribe(self, session: Session, names: list[str]) -> Steps[str | None]:
        """Subscribe to what was granted; the error, if the store could not take it."""
        if session.durable is None or not session.is_live:
            for name in names:
                self._channels.subscribe(session, name)
            return None
        if names:
            try:
                yield self._subscriptions.subscribe(session, session.durable, dict.fromkeys(names, ()))
            except StoreError as failure:
                return coded(failure.code)
        return None if session.is_live else BayeuxCode.SUBSCRIBE_FAILED

    def unsubscribe(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `subscription`. Names are taken one by one, as in subscribe."""
        given_up: list[str] = []
        error: str | None = None
        for channel in message.subscriptions():
            if channel.name in self.by_channel:
                error = BayeuxCode.UNSUBSCRIBE_FAILED
            elif not (
                channel.kind is Kind.SERVICE or channel.name in self._channels or channel.name in session.subscriptions
            ):
                error = BayeuxCode.CHANNEL_MISSING
            if error is not None:
                break
            given_up.append(channel.name)
        if session.durable is not None:
            return self._unsubscribe_later(session, message, given_up, error)
        for name in given_up:
            self._options.leave(session, name)
        return replies.ok(message) if error is None else replies.failed(message, error)

    def _unsubscribe_later(
        self, session: Session, message: Message, names: list[str], error: str | None
    ) -> Steps[Reply]:
        stored = [name for name in names if name in session.subscriptions]
        if stored and session.durable is not None:
            try:
                yield self._subscriptions.unsubscribe(session, session.durable, stored)
            except StoreError as failure:
                error = error or coded(failure.code)
        return replies.ok(message) if error is None else replies.failed(message, error)

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
