"""One handler a meta channel (Bayeux 1.0, section 4; reference 1.3 to 1.5), and `HANDLERS`, the table of them.

A handler gets the exchange, the session (live, but for the handshake's, which is to be made) and the message, and answers
the reply, or the steps to it if it may have to wait for a policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from crewel.bayeux import advice, replies
from crewel.bayeux.channel import Channel, Kind
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.outbox.exchange import Exchange
from crewel.broker.refusals import denied as denied_handshake
from crewel.broker.refusals import limited, shown_token, told_name, unavailable
from crewel.broker.sessions import Event, Session, State, Verdict
from crewel.broker.steps import Steps
from crewel.broker.subscribing.granting import grant, regrant
from crewel.broker.subscribing.handling import asks_for_more
from crewel.broker.subscribing.handling import subscribe as subscribe_with_qos
from crewel.errors import BayeuxCode, Limited, StoreError, coded

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

HANDSHAKE: Final = "/meta/handshake"
CONNECT: Final = "/meta/connect"

Handler = Callable[["Broker", Exchange, Session, Message], "Reply | Steps[Reply]"]


def handshake(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
    """MAY carry anything; the version and the transports are not checked: hand-written clients leave them out."""
    try:
        broker.limits.handshake(session, message)
        outcome = _begin(broker, exchange, session, message)
    except Limited as error:
        exchange.session = None
        return limited(message, error)
    if isinstance(outcome, dict) or shown_token(message) is None:
        return outcome
    return _count_token(broker, session, outcome)


def _begin(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
    if not broker.guard.admits_everybody:
        return _ask_and_shake_hands(broker, exchange, session, message)
    if broker.logins.concern(session, message):
        return _log_in(broker, exchange, session, message)
    broker.limits.admit(session)
    return _shake_hands(broker, exchange, session, message)


def _count_token(broker: Broker, session: Session, steps: Steps[Reply]) -> Steps[Reply]:
    """Count a token that does not hold."""
    reply = yield from steps
    if not reply["successful"] and ":user.security" in reply["error"] and session.account is not None:
        broker.limits.token_failed(session.account)
    return reply


def _ask_and_shake_hands(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
    refusal = yield from broker.guard.handshake(session, message)
    if refusal is None:
        if broker.logins.concern(session, message):
            return (yield from _log_in(broker, exchange, session, message))
        try:
            broker.limits.admit(session)
        except Limited as error:
            exchange.session = None
            return limited(message, error)
        return _shake_hands(broker, exchange, session, message)
    exchange.session = None
    return denied_handshake(message, refusal)


def _log_in(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
    broker.browsers.bind_new(session, exchange.peer)
    refusal = yield from broker.logins.login(exchange, session, message)
    if refusal is not None:
        exchange.session = None
        return refusal
    assert exchange.session is not None
    if exchange.session is not session:
        try:
            yield from regrant(broker, exchange.session)
        except StoreError as error:
            exchange.session = None
            return unavailable(message, error, told_name(message.ext.get("session")))
    reply = _shake_hands(broker, exchange, exchange.session, message)
    if exchange.login is not None:
        reply["ext"] = {"session": exchange.login}
    return reply


def _shake_hands(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply:
    peer = exchange.peer
    if not session.is_live:  # else another client's, which this one has taken over
        broker.browsers.bind_new(session, peer)
        broker.add(session)
    reply = replies.handshaken(message, session.id, broker.transports, broker.times.handshaken(session, peer))
    exchange.handshake = reply
    return reply


def connect(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
    """MUST carry `connectionType` by the specification, which nobody checks; MAY carry `advice` for this one connect."""
    peer = exchange.peer
    session.connect_id = None if peer.pushes else message.id
    broker.metrics.connects += 1
    if session.grants is not None:
        broker.logins.look(session)
    if session.verdict is not None:
        return _refused_connect(message, session.verdict)
    if session.held is not None:
        broker.outbound.supersede(session)
    if broker.dispatchers.pings:
        broker.dispatchers.pings.connected(session)
    if not peer.pushes:
        session.socket = None  # it has moved: its messages go with this transport from here on
    if session.state is State.CONNECTED:
        exchange.was_connected = True
    else:
        session.move(Event.CONNECT)
        if session.name:
            broker.logins.names.prove(session)
            broker.shared.here(session)
    has_advice = "advice" in message.fields and message.has_advice
    session.transient_timeout_ms = message.advised_ms("timeout") if has_advice else None
    session.transient_interval_ms = message.advised_ms("interval") if has_advice else None
    if has_advice or session.advised_on != peer.transport:
        exchange.advise = True
        session.advised_on = peer.transport
    exchange.connect = reply = replies.ok(message)
    if session.durable is not None:
        waiting = broker.durability.here(session, session.durable)
        if waiting is not None:
            return _connect_later(waiting, reply)
    return reply


def _refused_connect(message: Message, verdict: Verdict) -> Reply:
    reply = replies.failed(message, verdict.error)
    reply["advice"] = verdict.advice
    return reply


def _connect_later(waiting: Awaitable[None], reply: Reply) -> Steps[Reply]:
    yield waiting
    return reply


def disconnect(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply:
    """Ends the session; what is queued goes out before the reply, and a held connect is answered."""
    broker.remove(session, Event.DISCONNECT)
    return replies.ok(message)


def subscribe(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
    """MUST carry `subscription`. Names are taken one by one: where one is refused, those before it stay subscribed."""
    channels = message.subscriptions()
    broker.limits.subscribe(session, len(channels))
    if asks_for_more(broker, session, message):
        return subscribe_with_qos(broker, session, message, channels)
    if session.durable is not None or not all(map(broker.guard.is_open, channels)):
        return _ask_and_subscribe(broker, session, message, channels)
    for channel in channels:
        if channel.kind is Kind.BROADCAST:
            broker.channels.subscribe(session, channel.name)
    return replies.ok(message)


def _ask_and_subscribe(broker: Broker, session: Session, message: Message, channels: list[Channel]) -> Steps[Reply]:
    granted, error = yield from grant(broker, session, message, channels)
    failure = yield from _subscribe(broker, session, [channel.name for channel in granted])
    error = error or failure
    return replies.ok(message) if error is None else replies.failed(message, error)


def _subscribe(broker: Broker, session: Session, names: list[str]) -> Steps[str | None]:
    """Subscribe to what was granted; the error, if the store could not take it."""
    if session.durable is None or not session.is_live:
        for name in names:
            broker.channels.subscribe(session, name)
        return None
    if names:
        try:
            yield broker.durability.subscriptions.subscribe(session, session.durable, dict.fromkeys(names, ()))
        except StoreError as failure:
            return coded(failure.code)
    return None if session.is_live else BayeuxCode.SUBSCRIBE_FAILED


def unsubscribe(broker: Broker, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
    """MUST carry `subscription`. Names are taken one by one, as in subscribe."""
    given_up: list[str] = []
    error: str | None = None
    for channel in message.subscriptions():
        if channel.name in HANDLERS:
            error = BayeuxCode.UNSUBSCRIBE_FAILED
        elif not (
            channel.kind is Kind.SERVICE or channel.name in broker.channels or channel.name in session.subscriptions
        ):
            error = BayeuxCode.CHANNEL_MISSING
        if error is not None:
            break
        given_up.append(channel.name)
    if session.durable is not None:
        return _unsubscribe_later(broker, session, message, given_up, error)
    for name in given_up:
        broker.subscribing.leave(session, name)
    return replies.ok(message) if error is None else replies.failed(message, error)


def _unsubscribe_later(
    broker: Broker, session: Session, message: Message, names: list[str], error: str | None
) -> Steps[Reply]:
    stored = [name for name in names if name in session.subscriptions]
    if stored and session.durable is not None:
        try:
            yield broker.durability.subscriptions.unsubscribe(session, session.durable, stored)
        except StoreError as failure:
            error = error or coded(failure.code)
    return replies.ok(message) if error is None else replies.failed(message, error)


def unknown_session(broker: Broker, exchange: Exchange, message: Message) -> Reply:
    """The reply to a message whose session is unknown or gone. Only a connect is advised: to shake hands again, or, if
    the session was disconnected just now or another client has taken it over, to stop."""
    if message.channel.name != CONNECT:
        return replies.failed(message, BayeuxCode.SESSION_UNKNOWN)
    if exchange.session is not None and exchange.session.state is State.DISCONNECTED:
        return _refused_connect(message, Verdict(BayeuxCode.SESSION_UNKNOWN, advice.removed()))
    return _refused_connect(message, broker.logins.unknown(message.fields.get("clientId")))


HANDLERS: Final[Mapping[str, Handler]] = {
    HANDSHAKE: handshake,
    CONNECT: connect,
    "/meta/disconnect": disconnect,
    "/meta/subscribe": subscribe,
    "/meta/unsubscribe": unsubscribe,
}
"""The five meta channels, by whole name: a prefix or a last segment never selects a handler."""
