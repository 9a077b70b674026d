"""The broker: the sessions and channels of one server, and what the server itself may do with them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from inspect import isawaitable
from typing import Any

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields, Message
from crewel.broker.browsers import Browsers
from crewel.broker.channels import Channels
from crewel.broker.dispatch.dispatching import Dispatching
from crewel.broker.dispatch.telling import tell
from crewel.broker.durability.durability import Durability
from crewel.broker.durability.intake import Outgoing, Published
from crewel.broker.events import Events
from crewel.broker.guard import Guard
from crewel.broker.ids import Ids
from crewel.broker.inbound import Inbound
from crewel.broker.letters.letters import Letters
from crewel.broker.logins import Logins
from crewel.broker.outbound import Outbound
from crewel.broker.peer import Peer
from crewel.broker.services import Registry, Service
from crewel.broker.sessions import Event, Session
from crewel.broker.steps import Promise
from crewel.broker.timing import Timing
from crewel.delivery.entry import Entry
from crewel.delivery.records import Submission
from crewel.delivery.update_qos import Origin
from crewel.errors import BayeuxCode, Refused, ServiceError, StoreUnavailable
from crewel.extension import Extension, Pipe
from crewel.metrics import Metrics
from crewel.security.policy import OpenPolicy, SecurityPolicy
from crewel.settings import Settings
from crewel.storage.store import Store

__all__ = ["Broker"]

log = logging.getLogger(__name__)


class Broker:
    """Everything that one server knows. It belongs to one event loop: call it from there only."""

    def __init__(
        self, settings: Settings, extensions: Iterable[Extension] = (), loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.loop = loop or asyncio.get_running_loop()
        self.metrics = Metrics()
        self.is_draining = False
        self.sessions: dict[str, Session] = {}
        self.channels = Channels()
        self.channels.make_lazy(settings.bayeux.lazy_channels)
        self.guard = Guard()
        self.registry = Registry()
        self.letters = Letters(self)
        self.events = Events(self)
        self.browsers = Browsers(settings)
        self.timing = Timing(settings)
        self.outbound = Outbound(self.loop, settings, self.metrics, self.browsers, self.timing, self.disconnect)
        self.outbound.pipe = Pipe(extensions)
        self.dispatching = Dispatching(self)
        self.outbound.tell, self.outbound.ring = partial(tell, self), self.dispatching.ring
        self.logins = Logins(self)
        self.ids = Ids(secrets.token_hex(4), time.time)
        self.inbound = Inbound(self)
        self.durability: Durability | None = None
        """What makes messages and sessions outlive this process; None without a store."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics.gauge("sessions", lambda: len(self.sessions))
        self.metrics.gauge("held_connects", lambda: self.outbound.held)
        self.metrics.gauge("channels", lambda: len(self.channels))
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

    def publish(self, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False) -> None:
        """Publish as the server itself. Raises ValueError for an invalid channel or a wildcard, TypeError for data that
        JSON cannot say."""
        target = _literal(channel)
        fields: Fields = {"channel": target.name, "data": data}
        if ext is not None:
            fields["ext"] = ext
        self.broadcast(target, fields, lazy=lazy)

    async def publish_stored(self, channel: str, data: Any, *, ext: Fields | None = None, key: str = "") -> str:
        """Publish as the server itself, and return the message's id once it is stored: every reliable subscriber gets it.
        A `key` makes a second call within two minutes harmless. Raises StoreError, ValueError and TypeError."""
        target = _literal(channel)
        fields: Fields = {"channel": target.name, "data": data}
        if ext is not None:
            fields["ext"] = ext
        published = await self.broadcast_stored(target, fields, key=self.scoped(key, target, None))
        return published.id

    def deliver(
        self, session: Session, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False
    ) -> bool:
        """Send one session a message, whatever it is subscribed to; False if it is gone or an extension took it out."""
        fields: Fields = {"channel": _literal(channel).name, "data": data}
        if ext is not None:
            fields["ext"] = ext
        return self.deliver_fields(session, fields, lazy=lazy)

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

    def broadcast_stored(
        self, channel: Channel, fields: Fields, *, publisher: Session | None = None, key: str = "", qos: bytes = b""
    ) -> Promise[Published]:
        """Store a checked message, and then put it into the queue of everybody who hears the channel. The promise has its
        id, or a StoreError. Raises StoreError itself, and Refused if an extension takes the message out."""
        if self.durability is None:
            raise StoreUnavailable("this server has no store")
        self.metrics.publishes += 1
        heard = dict(fields) if self.registry.hearers else None
        if not self.outbound.pipe.send(None, fields):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        sender = publisher.name if publisher is not None else ""
        hears = publisher is None or not publisher.subscriptions or self._hears_itself(publisher, channel)
        excluded = None if hears else publisher
        submission = Submission(
            channel.name,
            encode(fields),
            sender,
            sender if excluded is not None else "",
            key,
            qos,
        )
        lazy = self.channels.is_lazy(channel)
        outgoing = Outgoing(channel, submission, excluded, heard, lazy=lazy)
        self.durability.intake.publish(outgoing)
        return outgoing

    def broadcast(
        self,
        channel: Channel,
        fields: Fields,
        *,
        lazy: bool = False,
        publisher: Session | None = None,
        origin: tuple[str, str] | None = None,
        qos: bytes = b"",
    ) -> None:
        """Put a checked message into the queue of everybody who hears the channel: encoded once, referenced by all.
        `origin` is its id and its time, if it has been given them already."""
        self.metrics.publishes += 1
        outbound = self.outbound
        heard = dict(fields) if self.registry.hearers else None  # as it was said: extensions make it ready for the wire
        if not outbound.pipe.send(None, fields):
            return
        entry = Entry(fields, lazy=lazy or self.channels.is_lazy(channel))
        subscribers = self.channels.subscribers(channel)
        if self.dispatching.telling:
            sender = "" if publisher is None else publisher.name
            message_id, received = self.ids.stamp() if origin is None else origin
            entry.origin = Origin(message_id, received, sender, qos)
        if publisher is not None and (publisher not in subscribers or self._hears_itself(publisher, channel)):
            publisher = None
        if self.events.traffic is not None:
            self.events.published(channel.name, sum(session is not publisher for session in subscribers))
        outbound.fan_out(entry, subscribers, publisher)
        if heard is not None:
            self.tell_hearers(channel, heard)

    def deliver_fields(self, session: Session, fields: Fields, *, lazy: bool = False) -> bool:
        """Queue a ready message for one session."""
        if not session.is_live or not self.outbound.pipe.send(session, fields):
            return False
        self.outbound.enqueue(session, Entry(fields, lazy=lazy))
        return True

    def add(self, session: Session) -> None:
        """Let a session live whose handshake was granted."""
        session.move(Event.GRANTED)
        if self.settings.bayeux.meta_connect_deliver_only:
            session.connect_only = True
        self.sessions[session.id] = session
        if session.peer is not None and session.peer.pushes:
            self._rebind(session.peer, session)
        self.metrics.handshakes += 1
        session.added_at = self.loop.time()
        self.timing.rest(session, session.added_at)
        for added in self.registry.session_added:
            self._call(added, session)

    def hand_over(self, session: Session, newcomer: Session, peer: Peer) -> None:
        """Let the client that shook hands as `newcomer` have this session: its clientId, its browser, its token."""
        if session.socket is not None and session.socket.session is session:
            session.socket.session = None
        session.socket = None
        del self.sessions[session.id]
        session.id, session.browser = newcomer.id, newcomer.browser
        session.grants, session.is_operator = newcomer.grants, newcomer.is_operator
        session.verdict = None
        session.connect_only = session.is_reliable or self.settings.bayeux.meta_connect_deliver_only
        self.sessions[session.id] = session
        session.move(Event.TAKEN_OVER)
        session.peer = peer
        if peer.pushes:
            self._rebind(peer, session)
        self.metrics.handshakes += 1
        self.timing.rest(session, self.loop.time())

    def remove(self, session: Session, event: Event) -> None:
        """End a session: by its disconnect, or by its silence."""
        if not session.is_live:
            return
        session.move(event)  # first, so that a service that ends it once more ends nothing
        self.sessions.pop(session.id, None)
        for removed in self.registry.session_removed:
            self._call(removed, session, event is not Event.DISCONNECT)
        self.channels.unsubscribe_all(session)
        if session.name:
            self.logins.names.forget(session)
        if session.dispatcher is not None or session.durable is not None:
            self.dispatching.leave(session)
        if session.durable is not None and self.durability is not None:
            self.durability.membership.end(session.durable)
            session.durable = None
        if session.held is not None:
            self.outbound.release(session, self.loop.time())
        if session.connect_only:
            # Only connects carry its messages, and none will come.
            session.queue = [entry for entry in session.queue if entry.channel == "/meta/disconnect"]
        if session.socket is not None:
            self.outbound.push(session)
            session.socket = None
        self.outbound.alarms.forget(session)

    def scoped(self, key: str, channel: Channel, publisher: Session | None) -> str:
        """A key counts for one channel and one subject; clients without a name share one, and so do back ends."""
        subject = "" if publisher is None else publisher.name.split("/")[1] if publisher.name else "anonymous"
        return f"{subject} {channel.name} {key}" if key else ""

    async def make_durable(self, store: Store) -> Durability:
        """Begin to keep in this store what must outlive the process, and go on with what it has. Raises StoreError."""
        self.durability = durability = Durability(self, store)
        self.outbound.has_room = durability.overflow.has_room
        self.metrics.gauge("waiting", durability.waiting)
        await durability.start()
        self.events.start()
        return durability

    def revive(self, session: Session, patterns: Iterable[str]) -> None:
        """Let a session live again that the store has, with what it is subscribed to. Its time begins now, and
        is longer than usual: nobody is to blame that the server was away, and a client that finds none tries less and less
        often."""
        session.move(Event.GRANTED)
        session.move(Event.CONNECT)
        self.sessions[session.id] = session
        for pattern in patterns:
            self.channels.subscribe(session, pattern)
        session.added_at = self.loop.time()
        self.timing.rest(session, session.added_at)
        session.expires_at += self.settings.delivery.restart_grace_ms / 1000
        for added in self.registry.session_added:
            self._call(added, session)

    def set_aside(self, session: Session) -> None:
        """Take a session out without ending it: the store will bring it back, or its client shakes hands again."""
        self.channels.unsubscribe_all(session)
        self.outbound.release(session, self.loop.time())
        if session.socket is not None and session.socket.session is session:
            session.socket.session = None  # the next message finds the one that is brought back
        session.durable = session.socket = None
        self.sessions.pop(session.id, None)
        self.logins.names.forget(session)
        self.outbound.alarms.forget(session)

    def sweep(self) -> None:
        """End the sessions whose time is over, and forget channels that nobody uses."""
        now = self.loop.time()
        silence = self.settings.bayeux.max_processing_ms / 1000
        for session in list(self.sessions.values()):
            if session.expires_at <= now or (0 < silence < now - session.last_seen and session.held is not None):
                self.metrics.sessions_expired += 1
                self.remove(session, Event.SILENCE)
            elif session.durable is not None and not session.is_absent and self.timing.is_gone(session, now):
                assert self.durability is not None
                self.durability.gone(session)
                self.dispatching.await_client(session, now)
            if session.grants is not None:
                self.logins.look(session)
        self.channels.sweep()

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
        await self.letters.close()

    def _hears_itself(self, publisher: Session, channel: Channel) -> bool:
        if self.channels.is_kept_from_publisher(channel):
            return False
        own = publisher.broadcast_to_publisher
        return self.settings.bayeux.broadcast_to_publisher if own is None else own

    def tell_hearers(self, channel: Channel, fields: Fields) -> None:
        """Call the functions of services that hear this channel."""
        message = Message(fields, channel, None)
        for pattern in channel.patterns:
            for hearer in self.registry.hearers.get(pattern, ()):
                self._call(hearer, message)

    def _rebind(self, socket: Peer, session: Session) -> None:
        before = socket.session
        if before is not None and before.socket is socket:
            before.socket = None
        socket.session = session

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            result = function(*arguments)
        except Exception:
            log.exception("a service failed in %s", getattr(function, "__qualname__", function))
        else:
            if isawaitable(result):
                self.spawn(_waited(result))


async def _waited(awaitable: Any) -> None:
    await awaitable


def _literal(name: str) -> Channel:
    channel = parse(name)
    if channel is None or channel.is_wildcard:
        raise ValueError(f"{name!r} is not the name of a channel that can be published to")
    return channel
