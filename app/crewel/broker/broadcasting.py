"""From a checked message to everybody who hears its channel: at once, or once it is stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crewel.bayeux.channel import REPLIES, Channel
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Accepted, Fields
from crewel.broker.durability.write_queue import PendingPublish, Published
from crewel.broker.sessions import Session
from crewel.broker.steps import Promise
from crewel.broker.subscribing.choice import Heard
from crewel.delivery.entry import Entry
from crewel.delivery.records import Submission
from crewel.errors import BayeuxCode, Refused, StoreError, StoreUnavailable
from crewel.qos.publish import DEFAULT, PublishQos
from crewel.qos.update import Origin

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

ANSWERS: Final = f"{REPLIES}**"
"""The name under which answers are counted: each has a channel of its own, and that is nobody else's affair."""

log = logging.getLogger(__name__)


class Keeping(NamedTuple):
    """Where a message is kept before its publish is answered."""

    history_max: int = 0
    """How many messages the history keeps that it goes into; 0: into none."""
    is_only: bool = False
    """Whether it is refused if the history has one already."""
    groups: tuple[str, ...] = ()
    """The groups of whose members one gets it."""


class Broadcasting:
    """Puts messages into queues."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def keeping(self, channel: Channel, qos: PublishQos, publisher: Session | None = None) -> Keeping | None:
        """Where the message is kept; None: nowhere, it is transient. The topic takes notice of it. Raises Limited if the topic
        is one too many for its publisher."""
        if channel.is_reply:
            return None  # whoever has waited for it is gone when it could be read again
        settings = self._broker.topics.publish(channel, qos, publisher).settings
        groups = self._broker.groups.on(channel)
        history_max = 0 if qos.is_volatile else settings.history_max
        if not (qos.persistent or history_max or groups):
            return None
        return Keeping(history_max, settings.is_readonly, groups)

    def store(
        self,
        channel: Channel,
        fields: Fields,
        keeping: Keeping,
        qos: PublishQos,
        *,
        publisher: Session | None = None,
        key: str = "",
    ) -> Promise[Published]:
        """Store a message, and then put it into the queue of everybody who hears the channel. The promise has its id, or a
        CrewelError. Raises StoreError itself, and Refused if an extension takes the message out."""
        broker = self._broker
        if not broker.access.has_store:
            broker.topics.refused(channel.name)
            raise StoreUnavailable(broker.access.trouble)
        first = broker.ids.stored.first_of(key) if key else None
        if first is not None:
            known: Promise[Published] = Promise()
            known.keep(Published(first, is_repeated=True))
            return known
        broker.metrics.publishes += 1
        heard = dict(fields) if broker.registry.hearers else None
        if not broker.outbound.pipe.send(None, fields):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        if keeping.history_max:
            broker.subscribing.number(channel, fields)
        sender = publisher.name if publisher is not None else ""
        hears = publisher is None or not publisher.subscriptions or self._hears_itself(publisher, channel)
        excluded = None if hears else publisher
        submission = Submission(
            channel.name,
            encode(fields),
            sender,
            sender if excluded is not None else "",
            key,
            qos.kept(),
            keeping.history_max,
            qos.force_update,
            keeping.is_only,
            qos.leaves_history(broker.clock.microseconds()) if any(keeping) else 0,
            keeping.groups,
        )
        lazy = broker.channels.is_lazy(channel)
        outgoing = PendingPublish(channel, submission, excluded, heard, qos, lazy=lazy)
        try:
            broker.access.require_writable()
        except StoreError:
            broker.topics.refused(channel.name)
            raise
        broker.access.writing.publish(submission, outgoing)
        return outgoing

    def send(
        self,
        channel: Channel,
        fields: Fields,
        *,
        lazy: bool = False,
        publisher: Session | None = None,
        origin: tuple[str, str] | None = None,
        qos: PublishQos = DEFAULT,
    ) -> None:
        """Put a message into the queue of everybody who hears the channel: encoded once, referenced by all. `origin` is its
        id and its time, if it has been given them already."""
        broker = self._broker
        broker.metrics.publishes += 1
        outbound = broker.outbound
        heard = (
            dict(fields) if broker.registry.hearers else None
        )  # as it was said: extensions make it ready for the wire
        if not outbound.pipe.send(None, fields):
            return
        entry = Entry(fields, lazy=lazy or broker.channels.is_lazy(channel))
        if qos is not DEFAULT:
            entry.priority, entry.expires = qos.priority, qos.expires(broker.expiry.now())
        subscribers = broker.channels.subscribers(channel)
        if (
            broker.dispatchers.telling or qos is not DEFAULT
        ):  # else a dead letter of it would not say what was asked for
            sender = "" if publisher is None else publisher.name
            message_id, received = broker.ids.stamp() if origin is None else origin
            entry.origin = Origin(message_id, received, sender, qos.kept())
        excluded = publisher
        if publisher is not None and (publisher not in subscribers or self._hears_itself(publisher, channel)):
            excluded = None
        if broker.subscribing.choosing:
            others = [session for session in subscribers if session is not excluded]
            sender = "" if publisher is None else publisher.name
            subscribers = self.chosen(channel, entry, others, sender, qos.kept())
        if broker.events.traffic is not None:
            counted = ANSWERS if channel.is_reply else channel.name
            broker.events.published(counted, sum(session is not excluded for session in subscribers))
        outbound.fan_out(entry, subscribers, excluded)
        if heard is not None:
            self.tell_hearers(channel, heard, "" if publisher is None else publisher.name)

    def chosen(
        self, channel: Channel, entry: Entry, subscribers: Collection[Session], sender: str, qos: bytes
    ) -> list[Session]:
        """The subscribers less those who have said that they do not want this message, and those to whom it has gone now
        because they do not answer it."""
        subscribing = self._broker.subscribing
        hearing = []
        for session in subscribers:
            heard = Heard.YES
            if session in subscribing.choosing:
                heard = subscribing.hears(session, channel, entry, sender, qos)
            if heard is Heard.YES:
                hearing.append(session)
            elif heard is Heard.ONEWAY:
                self._broker.outbound.enqueue(session, entry.oneway())
        return hearing

    def to_one(self, session: Session, fields: Fields, *, lazy: bool = False) -> bool:
        """Queue a ready message for one session."""
        if not session.is_live or not self._broker.outbound.pipe.send(session, fields):
            return False
        self._broker.outbound.enqueue(session, Entry(fields, lazy=lazy))
        return True

    def _hears_itself(self, publisher: Session, channel: Channel) -> bool:
        subscribing = self._broker.subscribing
        if publisher in subscribing.choosing and not subscribing.is_local(publisher, channel):
            return False
        if self._broker.channels.is_kept_from_publisher(channel):
            return False
        own = publisher.broadcast_to_publisher
        return self._broker.settings.bayeux.broadcast_to_publisher if own is None else own

    def tell_hearers(self, channel: Channel, fields: Fields, sender: str = "") -> None:
        """Call the functions of services that hear this channel."""
        message = Accepted(fields, channel, sender)
        for pattern in channel.patterns:
            for hearer in self._broker.registry.hearers.get(pattern, ()):
                self.call(hearer, message)

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of a service; its failure is its own."""
        try:
            result = function(*arguments)
        except Exception:
            log.exception("a service failed in %s", getattr(function, "__qualname__", function))
        else:
            if isawaitable(result):
                self._broker.spawn(_waited(result))


async def _waited(awaitable: Any) -> None:
    await awaitable
