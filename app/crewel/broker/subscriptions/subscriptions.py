"""What sessions are subscribed to: subscribe and unsubscribe, options, histories, and subscriptions that the store has."""

from __future__ import annotations

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.addressing.queue_listeners import LettersListener
from crewel.broker.admission.admission import Admission
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.filter_failures import SubscriptionFailures
from crewel.broker.subscriptions.history_reader import GET_SERVICE, GetService, HistoryReader
from crewel.broker.subscriptions.history_start import HistoryReads
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.subscriptions.subscribe_handler import Permissions, SubscribeHandler
from crewel.broker.subscriptions.subscribers import Subscribers
from crewel.broker.subscriptions.subscription_store import SubscriptionStore
from crewel.broker.topics.topic_table import TopicTable
from crewel.qos.filters import Filter


class Subscriptions:
    """The subscriptions of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        addressing: Addressing,
        admission: Admission,
        topics: TopicTable,
        listener: LettersListener,
    ) -> None:
        self._addressing = addressing
        outbound = mailboxes.outbound
        self.options = SubscriptionOptions(runtime, outbound, addressing, topics, self._exceeded)
        self.stored = SubscriptionStore(
            runtime, outbound.expiry, addressing.requeue, self.options, outbound.loader, listener
        )
        subscribers = Subscribers(self.options, self.stored, HistoryReads(runtime, outbound, self.options))
        self.of = subscribers.of
        self.failures = SubscriptionFailures(runtime, subscribers)
        self.permissions = Permissions(runtime, addressing, admission, subscribers)
        self.histories = HistoryReader(runtime, self.options)
        self.handler = SubscribeHandler(runtime, admission, self.permissions, topics, self.failures)
        get = GetService(runtime, self.histories, self.permissions, mailboxes.dispatchers)
        runtime.services.calls[GET_SERVICE] = get.get
        admission.guard.admit(GET_SERVICE)

    def _exceeded(self, session: Session, pattern: str, expression: Filter, allowed: int, budget: str) -> None:
        self.failures.exceeded(session, pattern, expression, allowed, budget)

    def end_all(self, session: Session) -> None:
        """The session has ended, or is taken out without an end: it is subscribed to nothing here."""
        self._addressing.channels.unsubscribe_all(session)
        self.options.forget(session)
