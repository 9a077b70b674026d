"""From a checked message to every subscriber of its channel: at once, or once it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from crewel.bayeux.channel import REPLIES, Channel
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.handler_steps import Promise
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.topics.topic_table import TopicTable
from crewel.broker.writing.pending_publish import PendingPublish, Published
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId, Submission
from crewel.errors import BayeuxCode, Limited, Refused, StoreError, StoreUnavailable
from crewel.qos.publish import DEFAULT, NORMAL, PublishQos
from crewel.qos.update import Origin
from crewel.storage.scheduled_messages import ScheduledMessage

ANSWERS: Final = f"{REPLIES}**"
"""The name under which answers are counted: each has a channel of its own, which is private."""


class StoragePlan(NamedTuple):
    """Where a message is kept before its publish is answered."""

    history_max: int = 0
    """How many messages the history keeps that it goes into; 0: into none."""
    is_only: bool = False
    """Whether it is refused if the history has one already."""
    groups: tuple[str, ...] = ()
    """The groups of whose members one gets it."""


@dataclass(eq=False)
class Broadcaster:
    """Puts messages into queues."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _addressing: Addressing
    _topics: TopicTable
    _options: SubscriptionOptions

    def __post_init__(self) -> None:
        runtime, mailboxes = self._runtime, self._mailboxes
        self._access, self._ids, self._registry, self._clock = (
            runtime.access,
            runtime.ids,
            runtime.services,
            runtime.clock,
        )
        self._outbound, self._dispatchers, self._events = mailboxes.outbound, mailboxes.dispatchers, mailboxes.events
        self._expiry = mailboxes.outbound.expiry
        self._channels, self._groups = self._addressing.channels, self._addressing.groups
        self._settings = self._runtime.settings
        self._metrics = self._runtime.metrics
        self._cluster, self._is_single = runtime.cluster, runtime.cluster.is_single

    def plan_storage(self, channel: Channel, qos: PublishQos, publisher: Session | None = None) -> StoragePlan | None:
        """Where the message is kept; None: nowhere, it is transient. The topic takes notice of it. Raises Limited if the topic
        is one too many for its publisher."""
        if channel.is_reply:
            return None  # its receiver is gone by the time it could be read again
        settings = self._topics.publish(channel, qos, publisher).settings
        groups = self._groups.on(channel)
        history_max = 0 if qos.is_volatile else settings.history_max
        if not (qos.persistent or history_max or groups):
            return None
        return StoragePlan(history_max, settings.is_readonly, groups)

    def store(
        self,
        channel: Channel,
        fields: Fields,
        plan: StoragePlan,
        qos: PublishQos,
        *,
        publisher: Session | None = None,
        key: str = "",
    ) -> Promise[Published]:
        """Store a message, and then put it into the queue of every subscriber of the channel. The promise has its id, or a
        CrewelError. Raises StoreError itself, Refused if an extension takes the message out, and Limited if the publisher has
        too much in the store."""
        if not self._access.has_store:
            self._topics.refused(channel.name)
            raise StoreUnavailable(self._access.trouble)
        first = self._ids.stored.first_of(key) if key else None
        if first is not None:
            known: Promise[Published] = Promise()
            known.resolve(Published(first))
            return known
        for_services = dict(fields) if self._registry.subscribed else None
        pipe = self._outbound.pipe
        if pipe.sends and not pipe.send(None, fields):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        if plan.history_max:
            self._options.number(channel, fields)
        sender = publisher.name if publisher is not None else ""
        receives_own = publisher is None or not publisher.subscriptions or self._receives_own(publisher, channel)
        excluded = None if receives_own else publisher
        submission = Submission(
            channel.name,
            encode(fields),
            sender,
            sender if excluded is not None else "",
            key,
            qos.as_stored(),
            plan.history_max,
            qos.force_update,
            plan.is_only,
            qos.leaves_history(self._clock.microseconds()) if plan.history_max or plan.is_only or plan.groups else 0,
            plan.groups,
            qos.key,
        )
        try:
            if self._access.require_writable():
                copies = 1 + bool(plan.history_max) + len(plan.groups)
                account = self._runtime.stored_shares.admit(publisher, copies * len(submission.body))
                submission = submission._replace(account=account)
        except (StoreError, Limited):
            self._topics.refused(channel.name)
            raise
        lazy = self._channels.is_lazy(channel)
        outgoing = PendingPublish(channel, submission, excluded, for_services, qos, lazy=lazy)
        self._access.writing.publish(submission, outgoing)
        return outgoing

    def store_due(
        self, channel: Channel, fields: Fields, plan: StoragePlan, qos: PublishQos, scheduled: ScheduledMessage
    ) -> Promise[Published]:
        """Publish a scheduled message: as `store`, and out of the list. The promise has an empty id if it is not there any
        more."""
        message, names = scheduled.message, self._addressing.names
        for_services = dict(fields) if self._registry.subscribed else None
        pipe = self._outbound.pipe
        if pipe.sends and not pipe.send(None, fields):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        if plan.history_max:
            self._options.number(channel, fields)
        publisher = names.find(message.sender)
        is_excluded = self.excludes(publisher, channel) if publisher is not None else bool(message.excluded)
        submission = Submission(
            channel.name,
            encode(fields),
            message.sender,
            message.sender if is_excluded else "",
            scheduled.id,
            qos.as_stored(),
            plan.history_max,
            qos.force_update,
            plan.is_only,
            qos.leaves_history(self._clock.microseconds()),
            plan.groups,
            is_due=True,
        )
        if self._access.require_writable():
            copies = 1 + bool(plan.history_max) + len(plan.groups)
            self._runtime.stored_shares.admit(None, copies * len(submission.body))
            submission = submission._replace(account=message.account)
        lazy = self._channels.is_lazy(channel)
        outgoing = PendingPublish(channel, submission, publisher if is_excluded else None, for_services, qos, lazy=lazy)
        self._access.writing.publish(submission, outgoing)
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
        """Put a message into the queue of every subscriber of the channel: encoded once, referenced by all. `origin` is its
        id and its time, if it has been given them already."""
        self._metrics.publishes += 1
        outbound = self._outbound
        # As it was published: extensions make it ready for the wire.
        for_services = dict(fields) if self._registry.subscribed else None
        if outbound.pipe.sends and not outbound.pipe.send(None, fields):
            return
        message_origin: Origin | None = None
        if self._dispatchers.updated or qos is not DEFAULT:  # else a dead letter of it would not say what was asked for
            sender = "" if publisher is None else publisher.name
            message_id, received = self._ids.stamp() if origin is None else origin
            message_origin = Origin(message_id, received, sender, qos.as_stored())
        entry = Entry(
            fields,
            lazy=lazy or self._channels.is_lazy(channel),
            priority=qos.priority,
            expires=0 if qos is DEFAULT else qos.expires(self._expiry.now()),
            origin=message_origin,
        )
        subscribers = self._channels.subscribers(channel)
        excluded = publisher
        if publisher is not None and (publisher not in subscribers or self._receives_own(publisher, channel)):
            excluded = None
        if self._options.filtered:
            others = [session for session in subscribers if session is not excluded]
            sender = "" if publisher is None else publisher.name
            counted = None if self._events.traffic is None else self._events.fan_out(_counted_as(channel))
            self._options.fan_out(channel, entry, others, sender, qos.as_stored(), counted)
        else:
            if self._events.traffic is not None:
                receivers = sum(session is not excluded for session in subscribers)
                self._events.published(_counted_as(channel), receivers)
            outbound.fan_out(entry, subscribers, excluded)
        if not self._is_single:
            self._cluster.spread(channel, entry, "" if publisher is None else publisher.name, qos.as_stored())
        if for_services is not None:
            self._registry.call_subscribed(channel, for_services, "" if publisher is None else publisher.name)

    def deliver_here(
        self,
        channel: Channel,
        wire: bytes,
        sender: str = "",
        stored_qos: bytes = b"",
        *,
        node: str = "",
        lazy: bool = False,
        priority: int = NORMAL,
        expires: int = 0,
        receivers: list[Session] | None = None,
    ) -> None:
        """Put a message into the queue of every subscriber at this node, or only of these. `wire` is its JSON, `stored_qos` its
        QoS, `node` the name of the node at which it was published if that was another one, `expires` as of an entry."""
        origin = Origin(*self._ids.stamp(), sender, stored_qos, node=node) if self._dispatchers.updated else None
        entry = Entry.logged(channel.name, LogId(0), wire, lazy=lazy, origin=origin, priority=priority, expires=expires)
        subscribers = self._channels.subscribers(channel) if receivers is None else receivers
        if self._options.filtered:
            self._options.fan_out(channel, entry, list(subscribers), sender, stored_qos)
        else:
            self._outbound.fan_out(entry, subscribers, None)

    def to_one(self, session: Session, fields: Fields, *, lazy: bool = False) -> bool:
        """Queue a ready message for one session."""
        if not session.is_live or not self._outbound.pipe.send(session, fields):
            return False
        self._outbound.enqueue(session, Entry(fields, lazy=lazy))
        return True

    def excludes(self, publisher: Session, channel: Channel) -> bool:
        """Whether the publisher does not receive what it publishes on this channel."""
        return bool(publisher.subscriptions) and not self._receives_own(publisher, channel)

    def _receives_own(self, publisher: Session, channel: Channel) -> bool:
        options = self._options
        if publisher in options.filtered and not options.is_local(publisher, channel):
            return False
        own = publisher.broadcast_to_publisher
        return self._settings.bayeux.broadcast_to_publisher if own is None else own


def _counted_as(channel: Channel) -> str:
    return ANSWERS if channel.is_reply else channel.name
