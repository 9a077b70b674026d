"""The broker: one server, as its subsystems, and what applications, transports and operators may do with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Protocol

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.message import Fields, no_object
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.addressing.destinations import Sending
from crewel.broker.admission.admission import Admission
from crewel.broker.cluster import Cluster
from crewel.broker.dead_letters.dead_letters import DeadLetters
from crewel.broker.durability.durability import Durability
from crewel.broker.handler_steps import Promise, finished
from crewel.broker.inbound import Inbound
from crewel.broker.mailboxes.ledger import NoLedger
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.meta_handlers import MetaHandlers
from crewel.broker.pipe import Hooks, Pipe
from crewel.broker.presence.presence import Presence
from crewel.broker.presence.presence_service import offer_presence
from crewel.broker.publishing.broadcaster import StoragePlan
from crewel.broker.publishing.cancel_service import offer_cancel
from crewel.broker.publishing.publish_handler import scoped
from crewel.broker.publishing.publishing import Publishing
from crewel.broker.publishing.scheduler import Receipt
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.sessions.sessions import Sessions
from crewel.broker.subscriptions.subscriptions import Subscriptions
from crewel.broker.sweeper import Sweeper
from crewel.broker.topics.erase_service import offer_erase
from crewel.broker.topics.server_topics import ServerTopics
from crewel.broker.upward import UpwardCalls
from crewel.broker.writing.pending_publish import Published
from crewel.errors import Refused, ServiceError, coded
from crewel.metrics import Metrics
from crewel.qos.publish import PublishQos, read_publish_qos
from crewel.security.policy import OpenPolicy, SecurityPolicy
from crewel.settings import Settings
from crewel.storage.store import Store
from crewel.supervision import Supervisor

log = logging.getLogger(__name__)


class InstallableExtension(Hooks, Protocol):
    """An extension, as the broker sees it."""

    def installed(self, broker: Broker) -> None:
        """Called once, before the first message."""


class Installable(Protocol):
    """A service, as the broker sees it."""

    def install(self, broker: Broker) -> None:
        """Bind it to this broker."""


class Broker:
    """One server as applications, transports and operators use it. It belongs to one event loop: call it from there only."""

    def __init__(
        self,
        settings: Settings,
        extensions: Iterable[InstallableExtension] = (),
        loop: asyncio.AbstractEventLoop | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        installed, by_id = list(extensions), dict[str, Session]()
        above = UpwardCalls(self)
        # Lower ones first: each gets those below it, and reports to `above`.
        self.runtime = runtime = Runtime(settings, loop or asyncio.get_running_loop(), above, cluster)
        self.mailboxes = mailboxes = Mailboxes(runtime, by_id, installed, above, self)
        self.addressing = addressing = Addressing(runtime, mailboxes, above)
        self.admission = admission = Admission(runtime, mailboxes, addressing, by_id, above.topic_count)
        self.topics = topics = ServerTopics(runtime, mailboxes, addressing, admission, by_id, above)
        offer_erase(runtime, admission.guard, topics)
        self.subscriptions = Subscriptions(runtime, mailboxes, addressing, admission, topics.table, above)
        self.durability = Durability(runtime, mailboxes, addressing, topics, self.subscriptions, above)
        self.dead_letters = DeadLetters(runtime, mailboxes, addressing)
        self.publishing = Publishing(
            runtime, mailboxes, addressing, admission, topics.table, self.subscriptions.options, installed
        )
        offer_cancel(runtime, admission.guard, self.publishing.scheduler)
        self.presence = Presence(runtime, addressing, self.subscriptions, self.publishing)
        offer_presence(runtime, admission.guard, self.presence)
        self.sessions = Sessions(runtime, mailboxes, addressing, admission, self.subscriptions, self.durability, by_id)
        meta = MetaHandlers(mailboxes, addressing, self.durability, self.sessions, self.subscriptions.handler)
        self.inbound = Inbound(runtime, mailboxes, self.publishing.publisher, by_id, meta, admission.limits)
        self.sweeper = Sweeper(
            runtime,
            (
                self.sessions.silent,
                mailboxes.outbound.expiry,
                addressing,
                topics.endings,
                admission,
                self.presence,
                self.publishing.scheduler,
            ),
        )
        for extension in installed:
            extension.installed(self)

    @property
    def settings(self) -> Settings:
        """The settings of the server."""
        return self.runtime.settings

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the server."""
        return self.runtime.loop

    @property
    def metrics(self) -> Metrics:
        """What the server counts."""
        return self.runtime.metrics

    @property
    def supervisor(self) -> Supervisor:
        """Runs what has to run as long as the server."""
        return self.runtime.supervisor

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this in a task that the server owns: its failure is logged, and it ends with the server at the latest."""
        return self.runtime.spawn(coroutine)

    @property
    def no_ledger(self) -> NoLedger:
        """Of all sessions that the store does not have."""
        return self.mailboxes.reports.no_ledger

    @property
    def on_store_lost(self) -> list[Callable[[], None]]:
        """Called when another server has taken the store: from then on nothing is served here."""
        return self.runtime.life.on_store_lost

    @property
    def transports(self) -> list[str]:
        """The connection types that the server offers, in its order."""
        return list(self.settings.bayeux.transports)

    # What services use

    def session(self, client_id: str) -> Session | None:
        """The live session of this `clientId`."""
        return self.sessions.by_id.get(client_id)

    def publish(
        self, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False, qos: Fields | None = None
    ) -> None:
        """Publish as the server itself; `qos` has the fields of `ext.publish`. If the topic has a history, the message is
        delivered when it is stored. Raises ValueError for an invalid channel or a wildcard, TypeError for data that JSON cannot
        represent, and Refused for options that the server cannot fulfil."""
        target, fields, asked = self._own(channel, data, ext, qos)
        if qos is not None and asked.is_scheduled:
            self._schedule(target, fields, qos, asked).then(_log_failure)
            return
        plan = (
            None
            if qos is None and self.topics.table.plain(target)
            else self.publishing.broadcaster.plan_storage(target, asked)
        )
        if plan is None:
            self.publishing.broadcaster.send(target, fields, lazy=lazy, qos=asked)
        else:
            key = scoped(asked.key, target, None)
            self.publishing.broadcaster.store(target, fields, plan, asked, key=key).then(_log_failure)

    async def publish_stored(
        self, channel: str, data: Any, *, ext: Fields | None = None, key: str = "", qos: Fields | None = None
    ) -> str:
        """Publish as the server itself, and return the message's id when it is stored: every reliable subscriber gets it.
        With a `key`, a second call within two minutes has no effect. Raises StoreError, Refused, ValueError and TypeError."""
        target, fields, asked = self._own(channel, data, ext, {**(qos or {}), "persistent": True})
        if self.mailboxes.pressure.is_on and (relief := self.mailboxes.pressure.relief([target.name])) is not None:
            await relief
        if key:
            asked = replace(asked, key=key)
        if asked.is_scheduled:
            return (await self._schedule(target, fields, {**(qos or {}), "persistent": True}, asked)).id
        plan = self.publishing.broadcaster.plan_storage(target, asked) or StoragePlan()
        key = scoped(asked.key, target, None)
        published = await self.publishing.broadcaster.store(target, fields, plan, asked, key=key)
        return published.id

    async def send(
        self, to: str, channel: str, data: Any, *, ext: Fields | None = None, qos: Fields | None = None
    ) -> str:
        """Send a message to a session, `client/joe/1`, or to all sessions of a subject, `client/joe`, as the server itself;
        return its id. Further destinations, and what is to be done without a session there, stand in `qos`. Raises Refused if
        one of them cannot have it, StoreError, ValueError and TypeError."""
        further = (qos or {}).get("destination", [])
        target, fields, asked = self._own(channel, data, ext, {**(qos or {}), "destination": [{"to": to}, *further]})
        key = scoped(asked.key, target, None)
        sending: Sending = await finished(self.addressing.destinations.send(None, target, fields, asked, key))
        failure = next((each for each in sending.states if each.code), None)
        if failure is not None:
            raise Refused(coded(failure.code, failure.to), failure.code, failure.message)
        return sending.id

    def _schedule(self, channel: Channel, fields: Fields, given: Fields, qos: PublishQos) -> Promise[Receipt]:
        return self.publishing.scheduler.schedule(channel, fields, given, qos, None, scoped(qos.key, channel, None))

    def _own(
        self, channel: str, data: Any, ext: Fields | None, qos: Fields | None
    ) -> tuple[Channel, Fields, PublishQos]:
        target = _literal(channel)
        fields = _checked(self.mailboxes.outbound.pipe, target, data, ext)
        usual = self.topics.table.usual(target)
        return target, fields, usual if qos is None else read_publish_qos(qos, usual)

    def deliver(
        self, session: Session, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False
    ) -> bool:
        """Send a message to one session, whatever its subscriptions; False if the session has ended or an extension removed the
        message. Raises ValueError, TypeError, and Refused for an `ext` that is not an object."""
        return self.publishing.broadcaster.to_one(
            session, _checked(self.mailboxes.outbound.pipe, _literal(channel), data, ext), lazy=lazy
        )

    def disconnect(self, session: Session) -> None:
        """End the session as the server: the client gets a `/meta/disconnect` and its connect says not to come back."""
        self.sessions.table.disconnect(session)

    def set_policy(self, policy: SecurityPolicy) -> None:
        """Use this policy. Raises ServiceError if another service has set one."""
        if type(self.admission.guard.policy) is not OpenPolicy:
            raise ServiceError("two services have a security policy; a server takes one")
        self.admission.guard.policy = policy

    def install(self, services: Iterable[Installable]) -> None:
        """Install these services."""
        for service in services:
            service.install(self)

    # The life of a server

    async def make_durable(self, store: Store) -> Durability:
        """Begin to keep in this store what must outlive the process, and continue with what it has. Raises StoreError."""
        self.runtime.life.concerns["store"] = lambda: self.runtime.access.trouble or store.why_full
        self.metrics.count("waiting", self.durability.waiting)
        await self.durability.start(store)
        self.mailboxes.events.start()
        return self.durability

    def sweep(self) -> None:
        """End the sessions whose time has ended, and forget unused channels."""
        self.sweeper.sweep()

    @property
    def has_lost_store(self) -> bool:
        """Whether another server has taken over the store. This server then no longer serves anything."""
        return self.runtime.access.phase.is_superseded

    def lose_store(self) -> None:
        """Another server has the store: answer what is held, and let those know that serve."""
        self.drain()
        for lost in self.on_store_lost:
            lost()

    def drain(self) -> None:
        """Answer every held connect, and hold no more: the server is going down."""
        self.runtime.supervisor.shutdown.begin()
        self.runtime.life.is_draining = True
        self.mailboxes.connects.drain(self.sessions.by_id.values(), self.runtime.cluster.pause_ms)
        for drained in self.runtime.life.on_drain:
            drained()

    async def close(self) -> None:
        """Drain, and end the tasks that still run."""
        self.drain()
        await self.runtime.close()
        await self.dead_letters.notifier.close()
        for ended in self.runtime.life.on_close:
            ended()


def _literal(name: str) -> Channel:
    channel = parse(name)
    if channel is None or not channel.is_publishable:
        raise ValueError(f"{name!r} is not the name of a channel that can be published to")
    return channel


def _checked(pipe: Pipe, channel: Channel, data: Any, ext: Fields | None) -> Fields:
    """The message as it is delivered. Raises TypeError for what JSON cannot say, IllegalArgument for `ext`."""
    fields: Fields = {"channel": channel.name, "data": data}
    if ext is not None:
        if not isinstance(ext, dict):
            raise no_object(ext)
        fields["ext"] = ext
    pipe.require_encodable(fields)
    return fields


def _log_failure(result: Published | Receipt | Exception) -> None:
    if isinstance(result, Exception):
        log.error("the server could not publish a message of its own: %s", result)
