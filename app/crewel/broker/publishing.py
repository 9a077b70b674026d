"""What a client's publish goes through: create, publish, listeners, and then everybody who is subscribed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux import replies
from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Fields, Message, delivered
from crewel.bayeux.replies import Reply
from crewel.broker.broadcasting import Keeping
from crewel.broker.durability.log_appender import readonly
from crewel.broker.durability.write_queue import Published
from crewel.broker.guard import NOT_AUTHORIZED
from crewel.broker.services import RemoteCall
from crewel.broker.sessions import Session
from crewel.broker.steps import Steps, Then, wait
from crewel.errors import (
    BayeuxCode,
    Denied,
    IllegalArgument,
    Limited,
    Refused,
    RemoteCallError,
    StoreError,
    coded,
    denied,
)
from crewel.qos.publish import PublishQos, read_publish_qos

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

log = logging.getLogger(__name__)

_POINT_TO_POINT: Final = "ptp"  # tells the keys of what is addressed from those of what is published


def publish(broker: Broker, session: Session, message: Message) -> Reply | Steps[Reply] | Then[Reply]:
    """MUST carry `channel`; `data` is opaque and may be missing. The reply says that the message was accepted, whether or
    not anybody hears it."""
    channel = message.channel
    if channel.is_wildcard:
        raise Refused(BayeuxCode.CHANNEL_INVALID)
    if session.credit > 0:
        session.credit -= 1
    else:
        broker.limits.draw(session)
    listeners = broker.registry.listeners
    if broker.guard.is_open(channel) and (not listeners or listeners.keys().isdisjoint(channel.patterns)):
        return _publish(broker, session, message)
    return _ask_and_publish(broker, session, message)


def _ask_and_publish(broker: Broker, session: Session, message: Message) -> Steps[Reply]:
    channel = message.channel
    if channel.is_broadcast and channel.name not in broker.channels:
        reason = yield from broker.guard.create(session, channel, message)
        if reason is not None:
            raise Refused(denied(reason, Denied.PUBLISH_CREATE))
    reason = yield from broker.guard.publish(session, channel, message)
    if reason is not None:
        raise Refused(denied(reason, Denied.PUBLISH))
    ext = message.fields.get("ext")
    if type(ext) is dict and "publish" in ext:
        yield from _ask_for_qos(broker, session, message, _asked(broker, session, channel, ext["publish"]))
    if broker.registry.listeners and session.is_live:
        yield from _listen(broker, session, message)
    if not session.is_live:
        raise Refused(BayeuxCode.SESSION_UNKNOWN)
    outcome = _publish(broker, session, message)
    return outcome if isinstance(outcome, dict) else (yield from outcome)


def _ask_for_qos(broker: Broker, session: Session, message: Message, qos: PublishQos) -> Steps[None]:
    """Raise Refused if the QoS asks for more than the grant to publish covers: to configure the topic, or to address
    messages to a subject."""
    channel, guard = message.channel, broker.guard
    if broker.topics.would_configure(channel, qos) and not (yield from guard.configure(session, channel, message)):
        told = f"the grant to publish on {channel.name} does not cover the settings of its topic"
        raise Refused(coded(NOT_AUTHORIZED, channel.name), NOT_AUTHORIZED, told)
    for subject in dict.fromkeys(each.to.subject for each in qos.destinations):
        if not (yield from guard.address(session, subject, message)):
            told = f"the grant to publish on {channel.name} does not cover messages to {subject}"
            raise Refused(coded(NOT_AUTHORIZED, f"client/{subject}"), NOT_AUTHORIZED, told)


def _publish(broker: Broker, session: Session, message: Message) -> Reply | Steps[Reply] | Then[Reply]:
    channel = message.channel
    ext = message.fields.get("ext")
    if type(ext) is dict and "publish" in ext:
        return _publish_with_qos(broker, session, message, _asked(broker, session, channel, ext["publish"]))
    if channel.is_broadcast:
        if not broker.topics.plain(channel, session):
            return _publish_with_qos(broker, session, message, broker.topics.usual(channel))
        broker.broadcasting.send(channel, delivered(message), publisher=session)
    else:
        answer = broker.registry.answers.get(channel.name)
        if answer is not None:
            return answer(session, message)
        call = broker.registry.calls.get(channel.name)
        if call is not None:
            _call(broker, call, session, message)
        broker.metrics.publishes += 1
        if call is None and broker.registry.listeners.keys().isdisjoint(channel.patterns):
            return _unhandled(broker, message)
    return replies.ok(message)


def _unhandled(broker: Broker, message: Message) -> Reply:
    """A message to the server that no part of it takes. Bayeux acknowledges it; a client that asks gets `handled` false."""
    broker.metrics.unhandled += 1
    reply = replies.ok(message)
    if "service" in message.ext:
        reply["ext"] = {"service": {"handled": False}}
    return reply


def _publish_with_qos(
    broker: Broker, session: Session, message: Message, qos: PublishQos
) -> Reply | Steps[Reply] | Then[Reply]:
    if message.channel.is_reply and (qos.destinations or qos.administrative):
        # No policy is asked about an answer, so it must do nothing but answer.
        raise IllegalArgument("publish", "an answer goes to who asked, and is kept nowhere")
    if qos.administrative and qos.destinations:
        raise IllegalArgument("destination", "must be left out: what configures a topic is delivered to nobody")
    if (qos.destinations or qos.is_volatile) and broker.topics.is_closed(message.channel):
        raise readonly(message.channel)  # the store refuses what would go into the history, and only that
    if qos.destinations:
        return _publish_to_destinations(broker, session, message, qos)
    if not message.channel.is_broadcast:
        raise IllegalArgument(
            "publish", "a message on a service channel is for the server, unless it has a destination"
        )
    if qos.administrative:
        return _configure(broker, message, qos)
    return _publish_to_subscribers(broker, session, message, qos)


def _configure(broker: Broker, message: Message, qos: PublishQos) -> Steps[Reply]:
    stored = broker.topics.administer(message.channel, qos)
    if stored is not None:
        try:
            yield stored
        except StoreError as error:
            raise _not_stored(error) from error
    return _published(message, broker.ids.new())


def _publish_to_subscribers(broker: Broker, session: Session, message: Message, qos: PublishQos) -> Reply | Then[Reply]:
    channel = message.channel
    key = broker.scoped(qos.key, channel, session) if qos.key else ""
    keeping = broker.broadcasting.keeping(channel, qos, session)
    if keeping is not None:
        return _publish_stored(broker, session, message, qos, keeping, key)
    first = broker.ids.first_of(key) if key else None
    if first is not None:
        return _published(message, first)
    origin = broker.ids.stamp()
    if key:
        broker.ids.remember(key, origin[0])
    broker.broadcasting.send(channel, _delivered(message, qos), publisher=session, origin=origin, qos=qos)
    return _published(message, origin[0])


def _publish_stored(
    broker: Broker, session: Session, message: Message, qos: PublishQos, keeping: Keeping, key: str
) -> Then[Reply]:
    try:
        promise = broker.broadcasting.store(
            message.channel, _delivered(message, qos), keeping, qos, publisher=session, key=key
        )
    except StoreError as error:
        raise _not_stored(error) from error

    def stored(result: Published | Exception) -> Reply:
        if isinstance(result, StoreError):
            raise _not_stored(result) from result
        if isinstance(result, Exception):
            raise result
        return _published(message, result.id)

    return Then(promise, stored)


def _publish_to_destinations(broker: Broker, session: Session, message: Message, qos: PublishQos) -> Steps[Reply]:
    """All destinations are tried, and then the subscribers; one failure among them makes the publish unsuccessful."""
    channel = message.channel
    key = broker.scoped(qos.key, channel, session)
    try:
        sending = yield from broker.destinations.send(
            session, channel, _delivered(message, qos), qos, f"{key} {_POINT_TO_POINT}" if key else ""
        )
    except StoreError as error:
        raise _not_stored(error) from error
    published = sending.id
    if qos.subscribable and channel.is_broadcast:
        outcome = _publish_to_subscribers(broker, session, message, qos)
        reply = outcome if isinstance(outcome, dict) else (yield from outcome)
        published = reply["ext"]["publish"]["id"]
    states = [{"to": each.to, "state": "OK"} | _failed(each.code, each.message) for each in sending.states]
    failure = next((each for each in sending.states if each.code), None)
    if failure is None:
        reply = _published(message, published)
    else:
        reply = replies.failed(message, coded(failure.code, failure.to))
        reply["ext"] = {"publish": {"id": published} | _failed(failure.code, failure.message)}
    reply["ext"]["publish"]["destinations"] = states
    return reply


def _asked(broker: Broker, session: Session, channel: Channel, asked: object) -> PublishQos:
    topics = broker.topics
    is_administrative = type(asked) is dict and asked.get("administrative") is True
    usual = topics.administered(channel) if is_administrative else topics.usual(channel)
    qos = read_publish_qos(asked, usual)
    if qos.history_max != usual.history_max and not session.is_operator:
        most = broker.settings.limits.max_history_entries
        if 0 < most < qos.history_max:
            raise IllegalArgument(
                "history.maxEntries", f"must be a whole number from 0 to {most} (limits.max_history_entries)"
            )
    return qos


def _failed(code: str, text: str) -> Fields:
    return {"state": "ERROR", "errorCode": code, "message": text} if code else {}


def _not_stored(error: StoreError) -> Refused:
    return Refused(coded(error.code), error.code, str(error))


def _delivered(message: Message, qos: PublishQos) -> Fields:
    """The message that is delivered, with the channel on which an answer is waited for: clients that know nothing of us can
    answer too."""
    fields = delivered(message)
    if qos.reply_to:
        fields["ext"] = {**fields.get("ext", {}), "replyTo": qos.reply_to}
    return fields


def _published(message: Message, message_id: str) -> Reply:
    reply = replies.ok(message)
    if "publish" in message.ext:
        reply["ext"] = {"publish": {"id": message_id, "state": "OK"}}
    return reply


def _listen(broker: Broker, session: Session, message: Message) -> Steps[None]:
    for pattern in message.channel.patterns:
        for listener in broker.registry.listeners.get(pattern, ()):
            try:
                verdict = yield from wait(listener(session, message))
            except Exception:
                log.exception("a listener failed on %s: the message goes on", message.channel.name)
                continue
            if verdict is False:
                raise Refused(BayeuxCode.MESSAGE_DELETED)


def _call(broker: Broker, call: RemoteCall, session: Session, message: Message) -> None:
    """Call, and deliver the result: before the acknowledgement if it is there at once, later on its own if not."""
    if not broker.limits.may_call(session):
        most = broker.settings.limits.max_calls_per_session
        told = f"limits.max_calls_per_session: {most} calls of this session wait for their results"
        _tell(broker, session, message, {"errorCode": Limited.CAP, "message": told}, successful=False)
        return
    try:
        result = call(session, message.data)
    except Exception as error:  # noqa: BLE001 - whatever the application raises is the caller's answer
        _tell(broker, session, message, _failure(message, error), successful=False)
    else:
        if isawaitable(result):
            broker.limits.calls[session] += 1
            broker.spawn(_call_later(broker, result, session, message))
        else:
            _tell(broker, session, message, result, successful=True)


async def _call_later(broker: Broker, pending: Awaitable[Any], session: Session, message: Message) -> None:
    try:
        try:
            result = await pending
        finally:
            broker.limits.called(session)
    except Exception as error:  # noqa: BLE001 - whatever the application raises is the caller's answer
        _tell(broker, session, message, _failure(message, error), successful=False)
    else:
        _tell(broker, session, message, result, successful=True)


def _failure(message: Message, error: Exception) -> Any:
    if isinstance(error, RemoteCallError):
        return error.data
    # The caller learns that it failed, not how: a traceback is the server's own affair.
    log.error("the remote call on %s failed", message.channel.name, exc_info=error)
    return {"message": "internal error"}


def _tell(broker: Broker, session: Session, message: Message, result: Any, *, successful: bool) -> None:
    fields: Fields = {"channel": message.channel.name, "data": result, "successful": successful}
    if message.id is not None:
        fields["id"] = message.id
    try:
        broker.outbound.pipe.require_encodable(fields)
        broker.broadcasting.to_one(session, fields)
    except TypeError as error:
        _tell(broker, session, message, _failure(message, error), successful=False)
