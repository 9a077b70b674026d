"""The broker: the sessions and channels of one server, and what the server itself may do with them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Final

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.message import Fields, no_object
from crewel.broker.broadcasting import Broadcasting, Keeping
from crewel.broker.channels import Channels
from crewel.broker.clock import Clock
from crewel.broker.durability.access import StoreAccess
from crewel.broker.durability.durability import Durability
from crewel.broker.durability.write_queue import Published
from crewel.broker.events import Events
from crewel.broker.guard import Guard
from crewel.broker.ids import Ids
from crewel.broker.inbound import Inbound
from crewel.broker.letters.letters import Letters
from crewel.broker.limiting import Limits
from crewel.broker.logins import Logins, identity
from crewel.broker.outbox.browsers import Browsers
from crewel.broker.outbox.dispatchers import Dispatchers
from crewel.broker.outbox.exchange import Peer
from crewel.broker.outbox.expiry import Expiry
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.outbox.timers import SessionTimes
from crewel.broker.outbox.updates import tell
from crewel.broker.ptp.destinations import Destinations, Sending
from crewel.broker.ptp.groups import Groups
from crewel.broker.ptp.presence import Presence
from crewel.broker.ptp.returning import Returning
from crewel.broker.ptp.shared import SharedQueues
from crewel.broker.services import Registry, Service
from crewel.broker.sessions import Event, Session
from crewel.broker.steps import finished
from crewel.broker.subscribing.subscribing import Subscribing
from crewel.broker.topics.topics import Topics
from crewel.delivery.entry import Entry
from crewel.errors import Refused, ServiceError, coded
from crewel.extension import Extension, Pipe
from crewel.metrics import Metrics
from crewel.qos.publish import PublishQos, read_publish_qos
from crewel.security.policy import OpenPolicy, SecurityPolicy
from crewel.settings import Settings
from crewel.storage.store import Store
from crewel.supervision import Supervisor
from crewel.turns import TURN_S

log = logging.getLogger(__name__)

_LOOKED_AT: Final = 64
"""Sessions that a sweep looks at before it asks for the time."""
_WORKS_S: Final = 120.0
"""Seconds for which a request that is being worked on shows that its client is there."""


class Broker:
    """Everything that one server knows. It belongs to one event loop: call it from there only."""

    def __init__(
        self, settings: Settings, extensions: Iterable[Extension] = (), loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.loop = loop or asyncio.get_running_loop()
        self.metrics = Metrics()
        self.supervisor = Supervisor(self.metrics.task_restarts, self.loop)
        """Runs what has to run as long as the server."""
        self.concerns: dict[str, Callable[[], str | None]] = {"task": lambda: self.supervisor.trouble}
        """What keeps the server from being ready, by what it is about: why it is not, None while all is well."""
        self.is_draining = False
        self.on_store_lost: list[Callable[[], None]] = []
        """Called when another server has taken the store: from then on nothing is served here."""
        self.sessions: dict[str, Session] = {}
        self.channels = Channels()
        self.channels.make_lazy(settings.bayeux.lazy_channels)
        self.guard = Guard()
        self.limits = Limits(self)
        self.registry = Registry()
        self.access = StoreAccess(settings, self.loop)
        """The store, or that there is none."""
        self.letters = Letters(self)
        self.events = Events(self)
        self.browsers = Browsers(settings)
        self.times = SessionTimes(settings)
        self.outbound = Outbound(self.loop, settings, self.metrics, self.browsers, self.times, self.disconnect)
        self.outbound.pipe = Pipe(extensions)
        self.dispatchers = Dispatchers(self)
        self.outbound.tell, self.outbound.ring = partial(tell, self), self.dispatchers.ring
        self.outbound.conclude = self.dispatchers.conclude
        self.outbound.bury = self.dispatchers.unsettled.bury_unsendable
        self.clock = Clock()
        self.expiry = self.outbound.expiry = Expiry(self, self.clock)
        self.logins = Logins(self)
        self.ids = Ids(secrets.token_hex(4), self.clock)
        self.broadcasting = Broadcasting(self)
        self.subscribing = Subscribing(self)
        self.shared = SharedQueues(self)
        self.returning = Returning(self)
        self.destinations = Destinations(self)
        self.presence = Presence(self)
        self.groups = Groups(self)
        self.topics = Topics(self)
        self.inbound = Inbound(self)
        self.durability = Durability(self)
        """What makes messages and sessions outlive this process, once there is a store."""
        self.outbound.has_room = self.durability.overflow.has_room
        self.on_close: list[Callable[[], None]] = []
        """Called when this broker has ended."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics.gauge("sessions", lambda: len(self.sessions))
        self.metrics.gauge("held_connects", lambda: self.outbound.held)
        self.metrics.gauge("channels", lambda: len(self.channels))
        self.metrics.gauge("subscriptions", lambda: self.channels.subscriptions)
        self.metrics.gauge("queued_bytes", lambda: self.outbound.backlog.size)
        self.metrics.gauge("addresses", lambda: len(self.limits.addresses))
        self.metrics.gauge("topics", lambda: len(self.topics.known))
        for extension in self.outbound.pipe.extensions:
            extension.installed(self)

    @property
    def transports(self) -> list[str]:
        """The connection types that the server offers, in its order."""
        return list(self.settings.bayeux.transports)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this in a task that the broker owns: its failure is logged, and it ends with the broker at the latest."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed", exc_info=error)

    # What services use

    def session(self, client_id: str) -> Session | None:
        """The live session of this `clientId`."""
        return self.sessions.get(client_id)

    def publish(
        self, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False, qos: Fields | None = None
    ) -> None:
        """Publish as the server itself; `qos` as in `ext.publish`. Where the topic keeps its messages it is heard once it is
        stored. Raises ValueError for an invalid channel or a wildcard, TypeError for data that JSON cannot say, Refused for
        qualities that cannot be had."""
        target, fields, asked = self._own(channel, data, ext, qos)
        keeping = None if qos is None and self.topics.plain(target) else self.broadcasting.keeping(target, asked)
        if keeping is None:
            self.broadcasting.send(target, fields, lazy=lazy, qos=asked)
        else:
            key = self.scoped(asked.key, target, None)
            self.broadcasting.store(target, fields, keeping, asked, key=key).then(_log_failure)

    async def publish_stored(
        self, channel: str, data: Any, *, ext: Fields | None = None, key: str = "", qos: Fields | None = None
    ) -> str:
        """Publish as the server itself, and return the message's id once it is stored: every reliable subscriber gets it.
        A `key` makes a second call within two minutes harmless. Raises StoreError, Refused, ValueError and TypeError."""
        target, fields, asked = self._own(channel, data, ext, {**(qos or {}), "persistent": True})
        keeping = self.broadcasting.keeping(target, asked) or Keeping()
        key = self.scoped(key or asked.key, target, None)
        published = await self.broadcasting.store(target, fields, keeping, asked, key=key)
        return published.id

    async def send(
        self, to: str, channel: str, data: Any, *, ext: Fields | None = None, qos: Fields | None = None
    ) -> str:
        """Send a message to a session, `client/joe/1`, or to all sessions of a subject, `client/joe`, as the server itself;
        return its id. Further destinations, and what is to be done where nobody is there, stand in `qos`. Raises Refused if one
        of them cannot have it, StoreError, ValueError and TypeError."""
        further = (qos or {}).get("destination", [])
        target, fields, asked = self._own(channel, data, ext, {**(qos or {}), "destination": [{"to": to}, *further]})
        key = self.scoped(asked.key, target, None)
        sending: Sending = await finished(self.destinations.send(None, target, fields, asked, key))
        failure = next((each for each in sending.states if each.code), None)
        if failure is not None:
            raise Refused(coded(failure.code, failure.to), failure.code, failure.message)
        return sending.id

    def _own(
        self, channel: str, data: Any, ext: Fields | None, qos: Fields | None
    ) -> tuple[Channel, Fields, PublishQos]:
        target = _literal(channel)
        fields = _checked(self.outbound.pipe, target, data, ext)
        usual = self.topics.usual(target)
        return target, fields, usual if qos is None else read_publish_qos(qos, usual)

    def deliver(
        self, session: Session, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False
    ) -> bool:
        """Send one session a message, whatever it is subscribed to; False if it is gone or an extension took it out. Raises
        ValueError, TypeError, and Refused for an `ext` that is no object."""
        return self.broadcasting.to_one(session, _checked(self.outbound.pipe, _literal(channel), data, ext), lazy=lazy)

    def disconnect(self, session: Session) -> None:
        """End the session as the server: the client gets a `/meta/disconnect` and its connect says not to come back."""
        if session.is_live:
            session.queue.append(Entry({"channel": "/meta/disconnect", "successful": True}))
            self.remove(session, Event.DISCONNECT)

    def set_policy(self, policy: SecurityPolicy) -> None:
        """Let this policy decide. Raises ServiceError if another service has brought one."""
        if type(self.guard.policy) is not OpenPolicy:
            raise ServiceError("two services bring a security policy; a server has one")
        self.guard.policy = policy

    def install(self, services: Iterable[Service]) -> None:
        """Install these services."""
        for service in services:
            service.install(self)

    # What handlers use

    def add(self, session: Session) -> None:
        """Let a session live whose handshake was granted."""
        session.begin(self.loop.time(), connect_only=self.settings.bayeux.meta_connect_deliver_only)
        self.sessions[session.id] = session
        self.limits.begun(session)
        if session.peer is not None and session.peer.pushes:
            self._rebind(session.peer, session)
        self.metrics.handshakes += 1
        self.times.arm_time_out(session, session.added_at)
        for added in self.registry.session_added:
            self.broadcasting.call(added, session)

    def hand_over(self, session: Session, newcomer: Session, peer: Peer) -> None:
        """Let the client that shook hands as `newcomer` have this session: its clientId, its browser, its token."""
        del self.sessions[session.id]
        self.limits.ended(session)
        session.hand_over(newcomer, peer, connect_only=self.settings.bayeux.meta_connect_deliver_only)
        self.limits.begun(session)
        self.sessions[session.id] = session
        if peer.pushes:
            self._rebind(peer, session)
        self.metrics.handshakes += 1
        self.times.arm_time_out(session, self.loop.time())

    def remove(self, session: Session, event: Event) -> None:
        """End a session: by its disconnect, or by its silence."""
        if not session.is_live:
            return
        session.move(event)  # first, so that a service that ends it once more ends nothing
        self.sessions.pop(session.id, None)
        self.limits.ended(session)
        for removed in self.registry.session_removed:
            self.broadcasting.call(removed, session, event is not Event.DISCONNECT)
        self.channels.unsubscribe_all(session)
        self.subscribing.forget(session)
        if session.name:
            self.logins.names.forget(session)
        if session.dispatcher is not None or session.durable is not None or session in self.dispatchers.telling:
            self.dispatchers.leave(session, event)
        if session.durable is not None:
            self.durability.subscriptions.end(session.durable)
            session.leave_store()
        if session.held is not None:
            self.outbound.release(session, self.loop.time())
        if session.connect_only:
            # Only connects carry its messages, and none will come.
            session.drop_where(lambda entry: entry.channel != "/meta/disconnect")
        if session.socket is not None:
            self.outbound.push(session)
            session.drop_socket()
        if event is Event.SILENCE:
            session.replace([])  # its socket may stay open, and would keep what it does not read
        self.outbound.timers.forget(session)

    def scoped(self, key: str, channel: Channel, publisher: Session | None) -> str:
        """An idempotency key counts for one channel and one subject (`logins.identity`). The server's own publishes share
        one."""
        return f"{'' if publisher is None else identity(publisher)} {channel.name} {key}" if key else ""

    async def make_durable(self, store: Store) -> Durability:
        """Begin to keep in this store what must outlive the process, and go on with what it has. Raises StoreError."""
        self.concerns["store"] = lambda: self.access.trouble or store.why_full
        self.metrics.gauge("waiting", self.durability.waiting)
        await self.durability.start(store)
        self.events.start()
        return self.durability

    def revive(self, session: Session, patterns: Iterable[str]) -> None:
        """Let a session live again that the store has, with what it is subscribed to. Its time begins now, and
        is longer than usual: nobody is to blame that the server was away, and a client that finds none tries less and less
        often."""
        session.revive(self.loop.time())
        self.sessions[session.id] = session
        self.limits.begun(session)
        for pattern in patterns:
            self.channels.subscribe(session, pattern)
        self.times.arm_time_out(session, session.added_at + self.settings.delivery.restart_grace_ms / 1000)
        for added in self.registry.session_added:
            self.broadcasting.call(added, session)

    def set_aside(self, session: Session) -> None:
        """Take a session out without ending it: the store will bring it back, or its client shakes hands again."""
        self.limits.ended(session)
        self.channels.unsubscribe_all(session)
        self.subscribing.forget(session)
        self.outbound.release(session, self.loop.time())
        session.leave_socket()  # its next message finds the session that is brought back
        session.leave_store()
        self.sessions.pop(session.id, None)
        self.logins.names.forget(session)
        self.groups.set_aside(session)
        self.outbound.timers.forget(session)

    def sweep(self) -> None:
        """End the sessions whose time is over, and forget channels that nobody uses."""
        self._sweep_sessions(iter(list(self.sessions.values())))
        self.expiry.sweep()
        self.shared.sweep()
        self.channels.sweep()
        self.topics.endings.sweep()
        self.limits.sweep()

    def _sweep_sessions(self, sessions: Iterator[Session]) -> None:
        """Look at these; what does not fit into one turn of the loop is looked at in the next ones."""
        now, until = self.loop.time(), time.perf_counter() + TURN_S
        silence = self.settings.bayeux.max_processing_ms / 1000
        for number, session in enumerate(sessions, 1):
            if not session.is_live:
                continue
            if session.requests and now < session.last_seen + _WORKS_S:
                pass  # a request of its client is being worked on: it is there
            elif session.expires_at <= now or (0 < silence < now - session.last_seen and session.held is not None):
                self.metrics.sessions_expired += 1
                self.remove(session, Event.SILENCE)
            elif session.durable is not None and not session.is_absent and self.times.is_gone(session, now):
                self.durability.gone(session)
                self.dispatchers.await_client(session, now)
            if session.grants is not None:
                self.logins.look(session)
            if number % _LOOKED_AT == 0 and time.perf_counter() >= until:
                self.loop.call_soon(self._sweep_sessions, sessions)
                return

    @property
    def has_lost_store(self) -> bool:
        """Whether another server has taken the store: this one serves nothing any more."""
        return self.access.is_superseded

    def lose_store(self) -> None:
        """Another server has the store: answer what is held, and let those know that serve."""
        self.drain()
        for lost in self.on_store_lost:
            lost()

    def drain(self) -> None:
        """Answer every held connect, and hold no more: the server is going down."""
        self.is_draining = True
        self.outbound.drain(self.sessions.values())

    async def close(self) -> None:
        """Drain, and end the tasks that still run."""
        self.drain()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.supervisor.close()
        await self.letters.close()
        for ended in self.on_close:
            ended()

    def _rebind(self, socket: Peer, session: Session) -> None:
        before = socket.session
        if before is not None and before.socket is socket:
            before.drop_socket()
        socket.session = session


def _literal(name: str) -> Channel:
    channel = parse(name)
    if channel is None or channel.is_wildcard:
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


def _log_failure(result: Published | Exception) -> None:
    if isinstance(result, Exception):
        log.error("the server could not publish a message of its own: %s", result)
