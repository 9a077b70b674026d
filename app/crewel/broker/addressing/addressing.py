"""Receivers of messages: names of sessions, channels and their subscribers, groups, and queues that several sessions share."""

from __future__ import annotations

from crewel.broker.addressing.channels import Channels
from crewel.broker.addressing.consumer_groups import ConsumerGroups, kept_groups
from crewel.broker.addressing.destinations import Destinations
from crewel.broker.addressing.queue_listeners import AddressingListener
from crewel.broker.addressing.requeue import Requeue
from crewel.broker.addressing.session_names import BEYOND_STORED, Names
from crewel.broker.addressing.shared_queues import CommonQueues, SharedQueues
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session


class Addressing:
    """The addresses of one broker, and their queues."""

    def __init__(self, runtime: Runtime, mailboxes: Mailboxes, listener: AddressingListener) -> None:
        self._listener = listener
        self._cluster = runtime.cluster
        settings = runtime.settings
        self.names = Names(BEYOND_STORED if settings.storage.enabled else -1)
        self.channels = Channels(runtime.cluster)
        self.channels.make_lazy(settings.bayeux.lazy_channels)
        self.groups = ConsumerGroups(runtime.services, self, kept_groups(settings))
        queues = SharedQueues if runtime.cluster.is_single else CommonQueues
        self.shared_queues = queues(runtime, mailboxes, self.names, self.groups, listener)
        self.requeue = Requeue(runtime, mailboxes, self.groups, self.shared_queues)
        runtime.services.session_added.append(self.on_connect)
        self.destinations = Destinations(runtime, self.channels, mailboxes, self.names, self.shared_queues)
        runtime.metrics.gauge("channels", lambda: len(self.channels))
        runtime.metrics.gauge("subscriptions", lambda: self.channels.subscriptions)

    def sweep(self) -> None:
        """Forget what is unused."""
        self.requeue.sweep()
        self.shared_queues.sweep()
        self.channels.sweep()

    def on_connect(self, session: Session) -> None:
        """The session is there, or there again, or takes messages again: let it have the messages that wait for it."""
        if session.name:
            self.shared_queues.on_connect(session)
            self.requeue.rebalance(session, self.shared_queues.names_for(session))

    # What groups report

    def waiting(self, name: str) -> int:
        """How many messages wait in a queue."""
        return self.shared_queues.waiting(name)

    def joins(self, session: Session, queue: str) -> None:
        """A session has joined the group that has this queue."""
        self._listener.new_member(queue)
        self.shared_queues.joined(queue)
        self.requeue.rebalance(session, [queue])

    def left(self, queue: str) -> None:
        """A member has left the group that has this queue."""
        self.shared_queues.schedule_lease(queue)

    def first_here(self, queue: str) -> None:
        """The group gets its first member at this node."""
        self._cluster.wants(queue)

    def none_here(self, queue: str) -> None:
        """The group has lost the last one."""
        self._cluster.gives_up(queue)
