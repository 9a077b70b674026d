"""The topics of one server: which there are, what they are configured to be, what refers to them, and how they end."""

from __future__ import annotations

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.admission import Admission
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.topics.endings import Endings
from crewel.broker.topics.erasure import TopicEraser
from crewel.broker.topics.references import QueuedTopics
from crewel.broker.topics.topic_listeners import TopicsListener
from crewel.broker.topics.topic_table import TopicTable
from crewel.broker.topics.topic_views import TopicViews


class ServerTopics:
    """The topics of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        addressing: Addressing,
        admission: Admission,
        sessions: dict[str, Session],
        listener: TopicsListener,
    ) -> None:
        queued = QueuedTopics(runtime, addressing.shared_queues, sessions)
        self.table = TopicTable(runtime, addressing, admission, queued)
        self.views = TopicViews(runtime, self.table, queued, addressing.channels, addressing.groups)
        eraser = TopicEraser(runtime, mailboxes.outbound, addressing, sessions, queued, listener)
        self.endings = Endings(runtime, self.table, self.views, queued, addressing, eraser)
