"""What a client's publish goes through: create, publish, listeners, and then all subscribers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, Protocol

from crewel.bayeux import replies
from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Fields, Message, delivered
from crewel.bayeux.replies import Reply
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.addressing.destinations import Sending
from crewel.broker.addressing.session_names import identity
from crewel.broker.admission.admission import Admission
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.broker.handler_steps import Steps, result_of, wait
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.publishing.broadcaster import Broadcaster, StoragePlan
from crewel.broker.publishing.scheduler import Scheduler
from crewel.broker.refusals import readonly, refusal
from crewel.broker.runtime import Runtime
from crewel.broker.service_registry import RemoteCall
from crewel.broker.session import Session
from crewel.broker.topic import Topic
from crewel.broker.topics.topic_table import TopicTable
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
from crewel.limits import Account
from crewel.qos.publish import PublishQos, read_publish_qos

log = logging.getLogger(__name__)

_POINT_TO_POINT: Final = "ptp"  # tells the keys of what is addressed from those of what is published


def scoped(key: str, channel: Channel, publisher: Session | None) -> str:
    """An idempotency key counts for one channel and one subject (`identity`). The server's own publishes share one."""
    return f"{'' if publisher is None else identity(publisher)} {channel.name} {key}" if key else ""


@dataclass(eq=False, frozen=True, slots=True)
class OpenCall:
    """A remote call that waits for its result."""

    channel: str
    session: Session
    id: str | None
    """The id of its message."""
    since: float
    """Loop time, in seconds."""


class Publisher(Protocol):
    """What takes publishes: `PublishHandler`, and around it an extension that takes part in each publish."""

    def publish(self, session: Session, message: Message) -> Reply | Steps[Reply]:
        """Take a publish of a live session, and return the reply, or the steps to it."""


@dataclass(eq=False)
class PublishHandler:
    """Handles what clients publish."""

    _runtime: Runtime
    _outbound: Outbound
    _addressing: Addressing
    _admission: Admission
    _topics: TopicTable
    _broadcaster: Broadcaster
    _scheduler: Scheduler

    def __post_init__(self) -> None:
        self._ids, self._registry = self._runtime.ids, self._runtime.services
        self._spreading = self._topics.spreading
        self._channels, self._destinations = self._addressing.channels, self._addressing.destinations
        self._guard, self._limits = self._admission.guard, self._admission.limits
        self._settings = self._runtime.settings
        self._metrics = self._runtime.metrics
        self._spawn = self._runtime.spawn
        self.open_calls: dict[OpenCall, None] = {}  # in the order in which they began

    def publish(self, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `channel`; `data` is opaque and may be missing. The reply says that the message was accepted, whether or
        not it has subscribers."""
        channel = message.channel
        if not session.spend():
            self._limits.draw(session)
        if not channel.is_publishable:
            raise Refused(BayeuxCode.CHANNEL_INVALID)
        listeners = self._registry.listeners
        if self._guard.is_open(channel) and (not listeners or listeners.keys().isdisjoint(channel.patterns)):
            return self._publish(session, message)
        return self._ask_and_publish(session, message)

    def _ask_and_publish(self, session: Session, message: Message) -> Steps[Reply]:
        channel = message.channel
        if channel.is_broadcast and channel.name not in self._channels:
            reason = yield from self._guard.create(session, channel, message)
            if reason is not None:
                raise Refused(denied(reason, Denied.PUBLISH_CREATE))
        reason = yield from self._guard.publish(session, channel, message)
        if reason is not None:
            raise Refused(denied(reason, Denied.PUBLISH))
        ext = message.fields.get("ext")
        if type(ext) is dict and "publish" in ext:
            yield from self._ask_for_qos(session, message, self._asked(session, channel, ext["publish"]))
        if self._registry.listeners and session.is_live:
            yield from self._listen(session, message)
        if not session.is_live:
            raise Refused(BayeuxCode.SESSION_UNKNOWN)
        outcome = self._publish(session, message)
        return outcome if isinstance(outcome, dict) else (yield from outcome)

    def _ask_for_qos(self, session: Session, message: Message, qos: PublishQos) -> Steps[None]:
        """Raise Refused if the QoS asks for more than the grant to publish covers: to configure the topic, or to address
        messages to a subject."""
        channel, guard = message.channel, self._guard
        if self._topics.would_configure(channel, qos) and not (yield from guard.configure(session, channel, message)):
            text = f"the grant to publish on {channel.name} does not cover the settings of its topic"
            raise Refused(coded(NOT_AUTHORIZED, channel.name), NOT_AUTHORIZED, text)
        for subject in dict.fromkeys(each.to.subject for each in qos.destinations):
            if not (yield from guard.address(session, subject, message)):
                text = f"the grant to publish on {channel.name} does not cover messages to {subject}"
                raise Refused(coded(NOT_AUTHORIZED, f"client/{subject}"), NOT_AUTHORIZED, text)

    def _publish(self, session: Session, message: Message) -> Reply | Steps[Reply]:
        channel = message.channel
        fields = message.fields
        ext = fields["ext"] if "ext" in fields else None  # noqa: SIM401 - not a call
        if type(ext) is dict and "publish" in ext:
            return self._publish_with_qos(session, message, self._asked(session, channel, ext["publish"]))
        if channel.is_broadcast:
            if not self._topics.plain(channel, session):
                return self._publish_with_qos(session, message, self._topics.usual(channel))
            self._broadcaster.send(channel, delivered(message), publisher=session)
        else:
            answer = self._registry.answers.get(channel.name)
            if answer is not None:
                return answer(session, message)
            call = self._registry.calls.get(channel.name)
            if call is not None:
                self._call(call, session, message)
            self._metrics.publishes += 1
            if call is None and self._registry.listeners.keys().isdisjoint(channel.patterns):
                return self._unhandled(message)
        return replies.ok(message)

    def _unhandled(self, message: Message) -> Reply:
        """A message to the server that no part of it takes. Bayeux acknowledges it; a client that asks gets `handled` false."""
        self._metrics.unhandled += 1
        reply = replies.ok(message)
        if "service" in message.ext:
            reply["ext"] = {"service": {"handled": False}}
        return reply

    def _publish_with_qos(self, session: Session, message: Message, qos: PublishQos) -> Reply | Steps[Reply]:
        if message.channel.is_reply and (qos.destinations or qos.administrative):
            # No policy is asked about an answer, so it must do nothing but answer.
            raise IllegalArgument("publish", "an answer goes to its requester only, and configures no topic")
        if qos.destinations and self._guard.is_own_service(message.channel.name):
            # No policy is asked about a publish to it either, so the message must reach only the server.
            raise IllegalArgument(
                "destination", "must be left out: a message to a service of the server has no receivers"
            )
        if qos.administrative and qos.destinations:
            raise IllegalArgument("destination", "must be left out: a message that configures a topic has no receivers")
        if (qos.destinations or qos.is_volatile) and self._topics.is_closed(message.channel):
            raise readonly(message.channel)  # the store refuses what would go into the history, and only that
        if qos.destinations:
            return self._publish_to_destinations(session, message, qos)
        if not message.channel.is_broadcast:
            raise IllegalArgument(
                "publish", "a message on a service channel is for the server, unless it has a destination"
            )
        if not qos.is_immediate:
            return self._configure(message, qos) if qos.administrative else self._schedule(session, message, qos)
        return self._publish_to_subscribers(session, message, qos)

    def _configure(self, message: Message, qos: PublishQos) -> Steps[Reply]:
        stored = self._topics.administer(message.channel, qos)
        if stored is not None:
            try:
                yield stored
            except StoreError as error:
                raise not_stored(error) from error
        return _published(message, self._ids.new())

    def _schedule(self, session: Session, message: Message, qos: PublishQos) -> Steps[Reply]:
        channel, key = message.channel, scoped(qos.key, message.channel, session)
        if self._topics.is_closed(channel):
            raise readonly(channel)
        self._topics.admit(channel, session)
        try:
            scheduling = self._scheduler.schedule(
                channel, _delivered(message, qos), message.ext["publish"], qos, session, key
            )
            scheduled = yield from result_of(scheduling)
        except StoreError as error:
            raise not_stored(error) from error
        reply = _published(message, scheduled.id)
        reply["ext"]["publish"]["deliverAt"] = scheduled.due_ms
        return reply

    def _publish_to_subscribers(self, session: Session, message: Message, qos: PublishQos) -> Reply | Steps[Reply]:
        channel = message.channel
        key = scoped(qos.key, channel, session) if qos.key else ""
        plan = self._broadcaster.plan_storage(channel, qos, session)
        if plan is not None:
            return self._publish_stored(session, message, qos, plan, key)
        first = self._ids.first_of(key) if key else None
        if first is not None:
            return _published(message, first)
        origin = self._ids.stamp()
        if key:
            self._ids.remember(key, origin[0])
        self._broadcaster.send(channel, _delivered(message, qos), publisher=session, origin=origin, qos=qos)
        return _published(message, origin[0])

    def _publish_stored(
        self, session: Session, message: Message, qos: PublishQos, plan: StoragePlan, key: str
    ) -> Steps[Reply]:
        try:
            stored = self._broadcaster.store(
                message.channel, _delivered(message, qos), plan, qos, publisher=session, key=key
            )
            published = yield from result_of(stored)
        except StoreError as error:
            raise not_stored(error) from error
        if self._spreading and message.channel.name in self._spreading:
            yield asyncio.shield(self._spreading[message.channel.name])
        return _published(message, published.id)

    def _publish_to_destinations(self, session: Session, message: Message, qos: PublishQos) -> Steps[Reply]:
        """All destinations are tried, and then the subscribers; one failure among them makes the publish unsuccessful, and the
        reply says which destinations have the message all the same."""
        channel = message.channel
        key = scoped(qos.key, channel, session)
        noticed: Topic | None = None
        if has_subscribers := qos.subscribable and channel.is_broadcast:
            self._broadcaster.plan_storage(channel, qos, session)  # if it may have no topic, no destination gets it
            noticed = self._topics.known.get(channel.name)
        try:
            sending = yield from self._destinations.send(
                session, channel, _delivered(message, qos), qos, f"{key} {_POINT_TO_POINT}" if key else ""
            )
        except (StoreError, Refused) as error:
            self._forget_notice(channel, noticed)
            if isinstance(error, StoreError):
                raise not_stored(error) from error
            raise
        published, refused = sending.id, None
        if has_subscribers:
            try:
                published = yield from self._publish_beside(session, message, qos, noticed)
            except Refused as error:
                refused = error
        return self._told(message, sending, published, refused)

    def _forget_notice(self, channel: Channel, noticed: Topic | None) -> None:
        """The topic that was taken notice of may have been erased meanwhile."""
        if noticed is not None and self._topics.known.get(channel.name) is noticed:
            self._topics.refused(channel.name)

    def _publish_beside(self, session: Session, message: Message, qos: PublishQos, noticed: Topic | None) -> Steps[str]:
        """Publish to the subscribers what was sent to destinations. Returns its id."""
        try:
            outcome = self._publish_to_subscribers(session, message, qos)
        finally:
            self._forget_notice(message.channel, noticed)  # the topic has taken notice once more
        reply = outcome if isinstance(outcome, dict) else (yield from outcome)
        published: str = reply["ext"]["publish"]["id"]
        return published

    @staticmethod
    def _told(message: Message, sending: Sending, published: str, refused: Refused | None) -> Reply:
        """The reply to a publish with destinations: `refused` is why its subscribers do not get it."""
        states = [{"to": each.to, "state": "OK"} | _failed(each.code, each.message) for each in sending.states]
        failure = next((each for each in sending.states if each.code), None)
        if refused is not None:
            reply = refusal(message.fields, message, refused)
            why = reply.get("ext", {}).get("publish", {})
            reply["ext"] = {"publish": {"id": published, "state": "ERROR"} | why}
        elif failure is None:
            reply = _published(message, published)
        else:
            reply = replies.failed(message, coded(failure.code, failure.to))
            reply["ext"] = {"publish": {"id": published} | _failed(failure.code, failure.message)}
        reply["ext"]["publish"]["destinations"] = states
        return reply

    def _asked(self, session: Session, channel: Channel, asked: object) -> PublishQos:
        topics = self._topics
        is_administrative = type(asked) is dict and asked.get("administrative") is True
        usual = topics.administered(channel) if is_administrative else topics.usual(channel)
        qos = read_publish_qos(asked, usual)
        if qos.history_max != usual.history_max and not session.is_operator:
            most = self._settings.limits.max_history_entries
            if 0 < most < qos.history_max:
                raise IllegalArgument(
                    "history.maxEntries", f"must be a whole number from 0 to {most} (limits.max_history_entries)"
                )
        return qos

    def _listen(self, session: Session, message: Message) -> Steps[None]:
        for pattern in message.channel.patterns:
            for listener in self._registry.listeners.get(pattern, ()):
                try:
                    verdict = yield from wait(listener(session, message))
                except Exception:
                    log.exception("a listener failed on %s: the message continues", message.channel.name)
                    continue
                if verdict is False:
                    raise Refused(BayeuxCode.MESSAGE_DELETED)

    def _call(self, call: RemoteCall, session: Session, message: Message) -> None:
        """Call, and deliver the result: before the acknowledgement if it is there at once, later on its own if not."""
        text = self._limits.call_refused(session)
        if text:
            self._notify(session, message, {"errorCode": Limited.CAP, "message": text}, successful=False)
            return
        try:
            result = call(session, message.data)
        except Exception as error:  # noqa: BLE001 - whatever the application raises is the caller's answer
            self._notify(session, message, _failure(message, error), successful=False)
        else:
            if isawaitable(result):
                self._spawn(self._call_later(result, session, message, self._limits.call_started(session)))
            else:
                self._notify(session, message, result, successful=True)

    async def _call_later(
        self, pending: Awaitable[Any], session: Session, message: Message, account: Account | None
    ) -> None:
        open_call = OpenCall(message.channel.name, session, message.id, self._runtime.loop.time())
        self.open_calls[open_call] = None
        try:
            try:
                result = await pending
            finally:
                self.open_calls.pop(open_call, None)
                self._limits.call_finished(session, account)
        except Exception as error:  # noqa: BLE001 - whatever the application raises is the caller's answer
            self._notify(session, message, _failure(message, error), successful=False)
        else:
            self._notify(session, message, result, successful=True)

    def _notify(self, session: Session, message: Message, result: Any, *, successful: bool) -> None:
        fields: Fields = {"channel": message.channel.name, "data": result, "successful": successful}
        if message.id is not None:
            fields["id"] = message.id
        try:
            self._outbound.pipe.require_encodable(fields)
            self._broadcaster.to_one(session, fields)
        except TypeError as error:
            self._notify(session, message, _failure(message, error), successful=False)


def _failed(code: str, text: str) -> Fields:
    return {"state": "ERROR", "errorCode": code, "message": text} if code else {}


def channel_of(element: object) -> object:
    """The channel that an element of a payload names, not looked at yet."""
    return element.get("channel") if isinstance(element, dict) else None


def not_stored(error: StoreError) -> Refused:
    """The refusal of a publish that the store did not take."""
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
    ext = message.fields["ext"] if "ext" in message.fields else None  # noqa: SIM401 - not a call
    if type(ext) is dict and "publish" in ext:
        reply["ext"] = {"publish": {"id": message_id, "state": "OK"}}
    return reply


def _failure(message: Message, error: Exception) -> Any:
    if isinstance(error, RemoteCallError):
        return error.data
    # The caller learns that it failed, not how: a traceback is the server's own affair.
    log.error("the remote call on %s failed", message.channel.name, exc_info=error)
    return {"message": "internal error"}
