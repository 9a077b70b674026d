"""The messages on their way to sessions: queues, the responses in which they leave, and what clients say of them."""

from __future__ import annotations

from collections.abc import Iterable

from crewel.bayeux.message import Message
from crewel.broker.exchange import Peer
from crewel.broker.mailboxes.back_pressure import BackPressure
from crewel.broker.mailboxes.dispatcher_runner import DispatcherRunner
from crewel.broker.mailboxes.events import Events
from crewel.broker.mailboxes.mailbox_listeners import MailboxesListener
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.mailboxes.reports import MailboxReports
from crewel.broker.mailboxes.session_times import SessionTimes
from crewel.broker.pipe import Hooks, Pipe
from crewel.broker.runtime import Runtime
from crewel.broker.session import Host, Session


class Mailboxes:
    """What all mailboxes of one server share. A mailbox itself is its session's."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: dict[str, Session],
        extensions: Iterable[Hooks],
        listener: MailboxesListener,
        host: Host,
    ) -> None:
        self._listener = listener
        self.host = host
        """What each session needs of its server."""
        self.times = SessionTimes(runtime.settings)
        self.events = Events(runtime)
        self.pressure = BackPressure(runtime)
        self.outbound = Outbound(runtime, sessions, Pipe(extensions), self.times, self.pressure.fan_outs, self)
        self.connects = self.outbound.connects
        self.reports = MailboxReports(runtime, self.outbound, self.events, self.pressure, listener)
        self.dispatchers = DispatcherRunner(runtime, sessions, self.outbound, self.times, self.events, listener)
        runtime.metrics.gauge("held_connects", lambda: self.connects.held)
        runtime.metrics.gauge("queued_bytes", lambda: self.outbound.backlog.size)

    # What `outbound` reports

    def on_timer(self, session: Session, now: float) -> float:
        """It may be time for something that the session's dispatcher waits for. Returns when it may be time again."""
        return self.dispatchers.on_timer(session, now)

    def conclude(self, session: Session) -> None:
        """A request has been read to its end whose statuses reported failures of the client."""
        self.dispatchers.conclude(session)

    def answer_seen(self, session: Session, peer: Peer, message: Message, *, passes: bool) -> None:
        """A plain connect cannot be held any more once the extensions have seen it."""
        self._listener.answer_seen(session, peer, message, passes=passes)

    def disconnect(self, session: Session) -> None:
        """The queue of a session that acknowledges is full, and its policy ends the session."""
        self._listener.disconnect(session)
