"""The composition root of a broker: what its parts are made of, lower ones first, and which hook calls which part.

A part gets what it needs when it is made. What it has to say to a part above it goes through a hook, an attribute that is
bound once, here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from functools import partial

from crewel.broker.broadcaster import Broadcaster
from crewel.broker.channels import Channels
from crewel.broker.dead_letters.bin import DeadLetterBin
from crewel.broker.dead_letters.notifier import DeadLetterNotifier
from crewel.broker.dead_letters.redrive import DeadLetterRedrive
from crewel.broker.durability.access import StoreAccess
from crewel.broker.durability.back_pressure import BackPressure
from crewel.broker.durability.backlog_loader import BacklogLoader
from crewel.broker.durability.durability import Durability
from crewel.broker.durability.log_appender import LogAppender
from crewel.broker.durability.subscription_store import SubscriptionStore
from crewel.broker.events import Events
from crewel.broker.guard import Guard
from crewel.broker.handshakes import HandshakeHandler
from crewel.broker.ids import Clock, Ids
from crewel.broker.inbound import Inbound, MetaHandlers
from crewel.broker.limiter import Limiter
from crewel.broker.login_refusals import LoginRefusals
from crewel.broker.logins import Logins
from crewel.broker.name_claims import NameClaims
from crewel.broker.names import BEYOND_STORED, Names
from crewel.broker.operator_channels import OperatorChannels
from crewel.broker.pipe import Hooks, Pipe
from crewel.broker.point_to_point.consumer_groups import ConsumerGroups
from crewel.broker.point_to_point.destinations import Destinations
from crewel.broker.point_to_point.shared_queues import SharedQueues
from crewel.broker.presence import Presence
from crewel.broker.publish_handler import BackendPublisher, PublishHandler
from crewel.broker.refusal_summary import RefusalSummary
from crewel.broker.runtime import Runtime
from crewel.broker.service_registry import ServiceRegistry
from crewel.broker.session import Host, Session
from crewel.broker.session_queue.acknowledgements import Acknowledgements
from crewel.broker.session_queue.connects import Browsers
from crewel.broker.session_queue.dispatcher_runner import DispatcherRunner
from crewel.broker.session_queue.expiry import Expiry
from crewel.broker.session_queue.outbound import Outbound
from crewel.broker.session_queue.reports import MailboxReports
from crewel.broker.session_queue.timers import SessionTimes
from crewel.broker.session_queue.updates import Updates
from crewel.broker.session_restorer import SessionRestorer
from crewel.broker.session_table import SessionTable
from crewel.broker.sign_outs import SignOuts
from crewel.broker.subscriptions.filter_failures import SubscriptionFailures
from crewel.broker.subscriptions.history_reader import GET_SERVICE, GetService, HistoryReader
from crewel.broker.subscriptions.history_start import HistoryReads
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.subscriptions.subscribe import Permissions, SubscribeHandler
from crewel.broker.sweeper import Sweeper
from crewel.broker.topics.erasure import ERASE_SERVICE, EraseService, TopicEraser
from crewel.broker.topics.references import QueuedTopics
from crewel.broker.topics.topic import kept_groups
from crewel.broker.topics.topic_table import TopicTable
from crewel.security.sign_in import own_grants
from crewel.security.tokens import AdminToken
from crewel.settings import Settings


class Parts:
    """The parts of one broker. `host` is the host in the names of sessions."""

    def __init__(
        self, settings: Settings, loop: asyncio.AbstractEventLoop, extensions: Iterable[Hooks], host: Host
    ) -> None:
        self.settings = settings
        self.runtime = Runtime(settings, loop)
        self.access = StoreAccess(settings, loop)
        """The store, or that there is none."""
        self.sessions: dict[str, Session] = {}
        self.clock = Clock()
        self.ids = Ids(secrets.token_hex(4), self.clock)
        self.names = Names(BEYOND_STORED if settings.storage.enabled else -1)
        self.admin = AdminToken()
        self.guard = Guard(partial(own_grants, self.admin))
        self.registry = ServiceRegistry(self.runtime.spawn)
        self.channels = Channels()
        self.channels.make_lazy(settings.bayeux.lazy_channels)
        self.browsers = Browsers(settings)
        self.times = SessionTimes(settings)
        self.login_refusals = LoginRefusals()
        self._make_outbox(extensions)
        self._make_queues()
        self._make_topics()
        self._make_durability()
        self._make_publishes(host)
        self._make_handlers(host)
        self._bind_hooks()
        self._show_figures()

    def _make_outbox(self, extensions: Iterable[Hooks]) -> None:
        """What one session has: its queue, its connect, its dispatcher."""
        runtime, access = self.runtime, self.access
        self.outbound = outbound = Outbound(
            runtime.loop, runtime.settings, runtime.metrics, self.browsers, self.times, self.sessions, self._disconnect
        )
        outbound.pipe = Pipe(extensions)
        self.pressure = BackPressure(runtime, access, outbound.fan_outs)
        self.events = Events(runtime, access, self.registry)
        self.expiry = outbound.expiry = Expiry(runtime, access, self.clock)
        self.reports = MailboxReports(
            runtime, access, self.ids, self.expiry, self.events, self.pressure, outbound.backlog
        )
        self.backlog = BacklogLoader(access, outbound, runtime.loop, runtime.spawn)
        self.dispatchers = DispatcherRunner(
            runtime,
            access,
            self.sessions,
            outbound,
            self.expiry,
            self.times,
            self.events,
            self.backlog,
        )
        self.updates = Updates(runtime.loop, outbound, self.expiry, runtime.settings.node.name)

    def _make_queues(self) -> None:
        """What is not one session's: dead letters, shared queues, and who is limited to what."""
        runtime, access, channels, outbound = self.runtime, self.access, self.channels, self.outbound
        self.dead_letters = DeadLetterNotifier(runtime, channels, outbound, self.registry, self.ids, access)
        self.operator_channels = OperatorChannels(runtime, channels, outbound, self.ids)
        self.presence = Presence(runtime, self.operator_channels, self.registry, self.names)
        self.groups = ConsumerGroups(self.registry, kept_groups(runtime.settings))
        self.shared_queues = SharedQueues(
            runtime,
            outbound,
            self.backlog,
            self.registry,
            self.names,
            self.groups,
            self.dead_letters,
            access,
        )
        self.limits = Limiter(
            runtime, channels, outbound, self.guard, self.admin, self.sessions, lambda: len(self.topics.known)
        )
        self.redrive = DeadLetterRedrive(runtime, self.backlog, self.names, self.shared_queues, access)
        self.bin = DeadLetterBin(runtime, access)

    def _make_topics(self) -> None:
        """TopicTable, and what sessions want of them."""
        runtime, access, channels, outbound = self.runtime, self.access, self.channels, self.outbound
        self.queued = QueuedTopics(self.shared_queues, access, self.sessions)
        self.topics = TopicTable(
            runtime, access, channels, self.groups, self.shared_queues, self.limits, self.clock, self.queued
        )
        self.subscription_options = SubscriptionOptions(runtime, channels, outbound, self.topics, self.groups)
        self.subscriptions = SubscriptionStore(
            runtime,
            self.expiry,
            self.shared_queues.requeue,
            self.subscription_options,
            self.dead_letters,
            access,
            self.backlog,
        )
        self.failures = SubscriptionFailures(
            runtime, self.ids, outbound, self.subscription_options, access, self.subscriptions
        )
        self.subscription_options.exceeded = self.failures.exceeded
        self.permissions = Permissions(
            channels, self.guard, self.groups, self.subscription_options, self.subscriptions, runtime
        )
        self.histories = HistoryReader(access, self.subscription_options)

    def _make_durability(self) -> None:
        """The log, and what outlives this process."""
        runtime, access, channels, outbound = self.runtime, self.access, self.channels, self.outbound
        appender = LogAppender(
            runtime,
            channels,
            outbound,
            self.dispatchers,
            self.registry,
            self.ids,
            self.expiry,
            self.topics,
            self.groups,
            self.shared_queues,
            self.subscription_options,
            access,
            self.backlog,
        )
        self.durability = Durability(
            runtime,
            access,
            self.backlog,
            self.subscriptions,
            appender,
            self.pressure,
            self.topics,
            self.shared_queues,
            self.dispatchers,
            self.dead_letters,
            self.events,
            self.ids,
            self.clock,
        )
        """What makes messages and sessions outlive this process, once there is a store."""
        self.topics.endings.eraser = TopicEraser(
            channels,
            outbound,
            self.ids,
            self.groups,
            self.shared_queues,
            access,
            self.sessions,
            self.queued,
            self.subscription_options.wants_notice,
            self.subscription_options.leave,
            self.subscriptions.erase,
            self.durability.committed,
        )

    def _make_publishes(self, host: Host) -> None:
        """What takes publishes."""
        runtime, access, channels, outbound = self.runtime, self.access, self.channels, self.outbound
        dispatchers, names, shared = self.dispatchers, self.names, self.shared_queues
        self.broadcaster = Broadcaster(
            runtime,
            channels,
            outbound,
            dispatchers,
            self.registry,
            self.ids,
            self.events,
            self.expiry,
            self.topics,
            self.groups,
            self.subscription_options,
            self.clock,
            access,
        )
        self.destinations = Destinations(
            runtime,
            channels,
            outbound,
            dispatchers,
            self.backlog,
            self.ids,
            self.expiry,
            names,
            shared,
            access,
        )
        self.publish_handler = PublishHandler(
            runtime,
            channels,
            outbound,
            self.registry,
            self.ids,
            self.guard,
            self.limits,
            self.topics,
            self.broadcaster,
            self.destinations,
        )
        self.backend_publisher = BackendPublisher(
            runtime, outbound, self.limits, self.publish_handler, self.pressure, host
        )

    def _make_handlers(self, host: Host) -> None:
        """What answers clients, but for publishes."""
        runtime, access, channels, outbound = self.runtime, self.access, self.channels, self.outbound
        dispatchers, names, timing = self.dispatchers, self.names, self.times
        self.table = SessionTable(
            runtime,
            channels,
            outbound,
            dispatchers,
            self.registry,
            self.limits,
            names,
            self.groups,
            self.subscription_options,
            timing,
            self.subscriptions,
            self.sessions,
        )
        self._make_logins(host)
        self._make_meta(host)
        self.acknowledgements = Acknowledgements(
            runtime, access, dispatchers, self.durability, self.events, self.subscription_options
        )
        self.registry.calls[ERASE_SERVICE] = EraseService(self.guard, self.topics).erase
        self.registry.calls[GET_SERVICE] = GetService(
            runtime, self.histories, self.permissions, outbound, dispatchers
        ).get
        for service in (ERASE_SERVICE, GET_SERVICE):
            self.guard.admit(service)

    def _make_logins(self, host: Host) -> None:
        self.claims = claims = NameClaims(self.runtime, self.names, self.times, self.table, self.access, self.registry)
        self.sign_outs = SignOuts(self.runtime, self.access, self.table, self.sessions)
        self.logins = Logins(
            self.runtime,
            self.outbound,
            self.dispatchers,
            self.guard,
            self.limits,
            self.names,
            self.admin,
            self.access,
            self.durability,
            self.table,
            self.presence,
            claims,
            self.sign_outs,
        )
        self.restorer = SessionRestorer(
            host,
            self.outbound,
            self.guard,
            self.dispatchers,
            self.names,
            self.table,
            self.subscription_options,
            self.durability,
            self.logins,
        )
        self.sweeper = Sweeper(
            self.runtime,
            self.channels,
            self.dispatchers,
            self.expiry,
            self.limits,
            self.logins,
            self.sign_outs,
            self.topics,
            self.shared_queues,
            self.times,
            self.durability,
            self.table,
            self.sessions,
            RefusalSummary(self.runtime.metrics),
        )

    def _make_meta(self, host: Host) -> None:
        runtime, outbound = self.runtime, self.outbound
        readers = HistoryReads(runtime.loop, runtime.settings, self.access, outbound, self.subscription_options)
        self.subscribes = subscribes = SubscribeHandler(
            runtime,
            self.channels,
            self.limits,
            self.guard,
            self.topics,
            self.subscription_options,
            self.permissions,
            self.access,
            self.subscriptions,
            readers,
            self.failures,
        )
        handshakes = HandshakeHandler(
            runtime,
            self.guard,
            self.limits,
            self.logins,
            self.permissions,
            self.browsers,
            self.times,
            self.table,
            self.login_refusals,
        )
        meta = MetaHandlers(
            outbound,
            self.dispatchers,
            self.logins,
            self.names,
            self.shared_queues,
            self.durability,
            self.table,
            handshakes,
            subscribes,
        )
        self.inbound = Inbound(
            runtime,
            outbound,
            self.dispatchers,
            self.browsers,
            self.times,
            self.publish_handler,
            self.pressure,
            self.sessions,
            meta,
            host,
        )

    def _bind_hooks(self) -> None:
        """What a part says to those above it."""
        outbound, dispatchers, groups, shared = self.outbound, self.dispatchers, self.groups, self.shared_queues
        outbound.encode_updates, outbound.on_timer = self.updates.encode, dispatchers.on_timer
        outbound.conclude, outbound.answer_seen = dispatchers.conclude, self.inbound.answer_seen
        outbound.load_backlog = self.backlog.load_if_waiting
        outbound.fan_outs.on_many = self.pressure.update
        dispatchers.on_active, dispatchers.on_capacity = shared.on_connect, shared.on_capacity
        dispatchers.on_blocked, dispatchers.try_other = shared.requeue.requeue_all, shared.requeue.try_other
        dispatchers.end_session = self.durability.end_session = self.table.remove
        self.durability.set_aside, self.durability.restore_session = self.table.set_aside, self.restorer.restore
        groups.waiting, groups.on_pattern = shared.waiting, self.topics.on_group_changed
        groups.on_member, groups.on_join = self.topics.endings.stays_in, shared.joined
        groups.on_leave = shared.schedule_lease
        self.durability.appender.on_addressed = self.destinations.take_addressed
        self.durability.inheritance.on_addressed = self.destinations.arrive_late
        self.durability.inheritance.on_changed = self.topics.changes.arrive_late

    def _show_figures(self) -> None:
        metrics = self.runtime.metrics
        metrics.gauge("sessions", lambda: len(self.sessions))
        metrics.gauge("held_connects", lambda: self.outbound.held)
        metrics.gauge("channels", lambda: len(self.channels))
        metrics.gauge("subscriptions", lambda: self.channels.subscriptions)
        metrics.gauge("queued_bytes", lambda: self.outbound.backlog.size)
        metrics.gauge("addresses", lambda: len(self.limits.addresses))
        metrics.gauge("topics", lambda: len(self.topics.known))

    def _disconnect(self, session: Session) -> None:
        self.table.disconnect(session)
