"""The path of a publish: from the request of a client, a back end or the server itself to the log, and into mailboxes."""

from __future__ import annotations

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.admission import Admission
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.publishing.broadcaster import Broadcaster
from crewel.broker.publishing.publish_handler import BackendPublisher, PublishHandler
from crewel.broker.runtime import Runtime
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.topics.topic_table import TopicTable


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
    ) -> None:
        self.broadcaster = Broadcaster(runtime, mailboxes, addressing, topics, options)
        self.handler = PublishHandler(runtime, mailboxes.outbound, addressing, admission, topics, self.broadcaster)
        self.for_back_ends = BackendPublisher(runtime, mailboxes, admission.limits, self.handler)
