"""The path of a publish: from the request of a client, a back end or the server itself to the log, and into mailboxes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.admission import Admission
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.publishing.backend_publisher import BackendPublisher
from crewel.broker.publishing.broadcaster import Broadcaster
from crewel.broker.publishing.publish_handler import Publisher, PublishHandler
from crewel.broker.publishing.scheduler import Scheduler
from crewel.broker.runtime import Runtime
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.topics.topic_table import TopicTable


@runtime_checkable
class PublishWrapper(Protocol):
    """An extension that does something before and after each publish."""

    def wrap_publisher(self, publisher: Publisher) -> Publisher:
        """Return what takes publishes in place of `publisher`."""


class Publishing:
    """What takes publishes."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        addressing: Addressing,
        admission: Admission,
        topics: TopicTable,
        options: SubscriptionOptions,
        extensions: Iterable[object],
    ) -> None:
        self.broadcaster = Broadcaster(runtime, mailboxes, addressing, topics, options)
        self.scheduler = Scheduler(runtime, mailboxes, topics, self.broadcaster)
        self.handler = PublishHandler(
            runtime, mailboxes.outbound, addressing, admission, topics, self.broadcaster, self.scheduler
        )
        publisher: Publisher = self.handler
        for extension in extensions:
            if isinstance(extension, PublishWrapper):
                publisher = extension.wrap_publisher(publisher)
        self.publisher = publisher
        """Takes each publish of a live session."""
        self.for_back_ends = BackendPublisher(runtime, mailboxes, admission.limits, publisher)
