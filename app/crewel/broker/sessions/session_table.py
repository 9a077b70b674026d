"""The live sessions of a server by clientId: how one is added, handed to another client, brought back, and ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.limiter import Limiter
from crewel.broker.exchange import Peer
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session, State
from crewel.broker.subscriptions.subscriptions import Subscriptions
from crewel.delivery.entry import Entry
from crewel.delivery.records import SessionRecord


@dataclass(eq=False)
class SessionTable:
    """Adds sessions and ends them; every part that knows a session learns of its end from here."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _addressing: Addressing
    _limits: Limiter
    _subscriptions: Subscriptions
    _sessions: dict[str, Session]

    def __post_init__(self) -> None:
        self._registry, self._times = self._runtime.services, self._mailboxes.times
        self._outbound, self._connects = self._mailboxes.outbound, self._mailboxes.connects
        self._dispatchers = self._mailboxes.dispatchers
        self._names, self._groups = self._addressing.names, self._addressing.groups

    def disconnect(self, session: Session) -> None:
        """End the session as the server: the client gets a `/meta/disconnect` and its connect says not to come back."""
        if session.is_live:
            session.mailbox.append(Entry({"channel": "/meta/disconnect", "successful": True}))
            self.remove(session, Event.ENDED)

    def add(self, session: Session) -> None:
        """Let a session live whose handshake was granted."""
        session.begin(self._runtime.loop.time(), connect_only=self._runtime.settings.bayeux.meta_connect_deliver_only)
        self._sessions[session.id] = session
        self._limits.session_started(session)
        if session.peer is not None and session.peer.pushes:
            self._rebind(session.peer, session)
        self._runtime.metrics.handshakes += 1
        self._times.arm_time_out(session, session.added_at)
        self._times.wheel.put(session, session.added_at)
        for added in self._registry.session_added:
            self._registry.call(added, session)

    def hand_over(self, session: Session, newcomer: Session, peer: Peer) -> None:
        """Let the client with the handshake `newcomer` have this session: its clientId, its browser, its token."""
        del self._sessions[session.id]
        self._limits.session_ended(session)
        session.hand_over(newcomer, peer, connect_only=self._runtime.settings.bayeux.meta_connect_deliver_only)
        self._limits.session_started(session)
        self._sessions[session.id] = session
        if peer.pushes:
            self._rebind(peer, session)
        self._runtime.metrics.handshakes += 1
        now = self._runtime.loop.time()
        self._times.arm_time_out(session, now)
        self._times.wheel.put(session, now)

    def remove(self, session: Session, event: Event) -> None:
        """End a session: by its disconnect, or by its silence."""
        if not session.is_live:
            return
        session.move(event)  # first, so that a service that ends it once more ends nothing
        self._sessions.pop(session.id, None)
        self._limits.session_ended(session)
        for removed in self._registry.session_removed:
            self._registry.call(removed, session, session.state is State.EXPIRED)
        self._subscriptions.end_all(session)
        if session.name:
            self._names.forget(session)
        if session.mailbox.view().accounts_for_all or session in self._dispatchers.updated:
            self._dispatchers.leave(session, event)
        self._subscriptions.of(session).end()
        if session.held is not None:
            self._connects.release(session, self._runtime.loop.time())
        if session.connect_only:
            # Only connects carry its messages, and none will come.
            session.mailbox.clear(but="/meta/disconnect")
        if session.socket is not None:
            self._outbound.push(session)
            session.use_socket(None)
        if event is Event.SILENCE:
            session.mailbox.clear()  # its socket may stay open, and would keep what it does not read
        self._outbound.timers.forget(session)
        self._times.wheel.forget(session)

    def revive(self, session: Session, patterns: Iterable[str], record: SessionRecord) -> None:
        """Let a session live again that the store has, with its name and what it is subscribed to. Its time begins now, or
        began when a server took it over first since its client was there. It is longer than usual: no client is to blame that
        the server was away, and a client that finds none tries less and less often."""
        self._names.add(session, *record.login.get("resume", ()))
        session.revive(self._runtime.loop.time())
        self._sessions[session.id] = session
        self._limits.session_started(session)
        for pattern in patterns:
            self._addressing.channels.subscribe(session, pattern)
        self._times.await_again(
            session,
            session.added_at,
            self._runtime.clock() * 1000,
            record,
            self._runtime.settings.delivery.restart_grace_ms / 1000,
        )
        self._times.wheel.put(session, session.added_at)
        for added in self._registry.session_added:
            self._registry.call(added, session)
        self._subscriptions.options.restore(session, record.options)

    def set_aside(self, session: Session) -> None:
        """Take a session out without ending it: the store will bring it back, or its client sends a handshake again."""
        self._limits.session_ended(session)
        self._subscriptions.end_all(session)
        self._connects.release(session, self._runtime.loop.time())
        session.leave_socket()  # its next message finds the session that is brought back
        session.leave_store()
        self._sessions.pop(session.id, None)
        self._names.forget(session)
        self._groups.set_aside(session)
        self._outbound.timers.forget(session)
        self._times.wheel.forget(session)
        if session.is_live:  # else its login has not ended
            session.move(Event.SILENCE)  # what its requests still wait for must not be done to it

    def _rebind(self, socket: Peer, session: Session) -> None:
        before = socket.session
        if before is not None and before.socket is socket:
            before.use_socket(None)
        socket.session = session
