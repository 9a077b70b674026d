"""The way out: queues, and the responses that leave.

A publish only puts references into queues and marks sessions ready; the ready ones are flushed once a turn of the event
loop, so that many messages share one response.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from crewel.broker.exchange import Exchange, encode_reply
from crewel.broker.mailboxes.backlog import Backlog
from crewel.broker.mailboxes.backlog_loader import BacklogLoader
from crewel.broker.mailboxes.connects import Connects
from crewel.broker.mailboxes.departures import Departures
from crewel.broker.mailboxes.expiry import Expiry
from crewel.broker.mailboxes.fan_outs import FanOuts
from crewel.broker.mailboxes.mailbox_listeners import OutboundListener
from crewel.broker.mailboxes.offers import EVICTED, KEPT, LEAVES, NOT_OF_INBOX, OVERFULL, READY
from crewel.broker.mailboxes.session_times import SessionTimes
from crewel.broker.mailboxes.timers import Timers
from crewel.broker.pipe import Pipe
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, State
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId
from crewel.event_loop import do_slice

log = logging.getLogger(__name__)


class Outbound:
    """Queues entries and answers exchanges."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: dict[str, Session],
        pipe: Pipe,
        times: SessionTimes,
        fan_outs: FanOuts,
        listener: OutboundListener,
    ) -> None:
        self._loop = runtime.loop
        self._metrics = runtime.metrics
        self._settings = runtime.settings.bayeux
        self._times = times
        self._listener = listener
        self.pipe = pipe
        self.timers = Timers(runtime.loop, self._on_timer)
        self.expiry = Expiry(runtime)
        departures = Departures(runtime, pipe, self.timers, self.expiry)
        self._take = departures.take
        self.backlog = Backlog(runtime.settings.limits)
        """The messages in all queues."""
        self.fan_outs = fan_outs
        self.loader = BacklogLoader(runtime, self)
        """Brings back the messages that are in the store only."""
        self.connects = Connects(runtime, sessions, times, departures, self.loader, listener)
        """The connects that wait for messages."""
        self._ready: dict[Session, None] = {}  # what the next flush looks at
        self._left: list[Session] = []  # what the last one had no time for
        self._overflowed: set[Session] = set()
        self._is_ending = False  # whether more of these end in the next turn

    # Into the queues

    def fan_out(
        self, entry: Entry, sessions: Iterable[Session], publisher: Session | None, *, in_turn: bool = False
    ) -> None:
        """Put the entry into the queue of each session but the publisher's. Where nothing waits before it, hand it to the
        session's socket at once instead: the transport collects what is written in one turn of the loop. Many sessions, and
        those for which an older message of the channel is on its way, have it in later turns, unless this is one."""
        fan_outs = self.fan_outs
        if fan_outs.pending and not in_turn and entry.channel in fan_outs.pending:
            fan_outs.add(entry.channel, self._fan_out_in_turns(entry, list(sessions), publisher))
            return
        parts, is_direct = [entry.wire], not (entry.lazy or entry.expires)
        make, frame = None, b""
        pushed, most = 0, fan_outs.at_once
        ready: list[Session] = []
        for index, session in enumerate(sessions):
            if index == most:
                fan_outs.add(entry.channel, self._fan_out_in_turns(entry, list(sessions)[most:], publisher))
                break
            if session is publisher:
                continue
            socket = session.socket
            if (
                socket is not None
                and is_direct
                and not (session.mailbox.news or session.connect_only or session.parts)
                and socket.is_writable
            ):
                writer = socket.writer
                if writer is None:
                    socket.send(parts)
                else:  # `send`, without a call
                    if socket.frame is not make:
                        make = socket.frame
                        frame = make(parts)
                    writer.write(frame)
                pushed += 1
            elif (answer := session.mailbox.offer(entry)) == READY and is_direct:
                ready.append(session)
            else:
                self.came(session, entry, answer)
        if ready:
            self.make_ready(ready)
        self._metrics.deliveries += pushed

    def _fan_out_in_turns(self, entry: Entry, sessions: Sequence[Session], publisher: Session | None) -> Iterator[None]:
        """Put the entry into the queues of many sessions, a few at a time. Those that have ended meanwhile are left out."""
        step = self.fan_outs.step
        for at in range(0, len(sessions), step):
            self.fan_out(entry, [each for each in sessions[at : at + step] if each.is_live], publisher, in_turn=True)
            yield

    def enqueue(self, session: Session, entry: Entry, cursor: LogId = NOT_OF_INBOX) -> None:
        """A message comes for the session: it waits, and leaves with the next flush, if there is room for it. `cursor`, for one
        that comes past the log: the place up to which that was read."""
        self.came(session, entry, session.mailbox.offer(entry, cursor))

    def load(self, session: Session, entry: Entry) -> None:
        """What has waited in the store, or a notice, waits in memory, whatever the bounds of the queue are."""
        self.came(session, entry, session.mailbox.load(entry))

    def came(self, session: Session, entry: Entry, answer: int) -> None:
        """The mailbox of the session has been offered the entry, and has answered this."""
        if answer == READY:
            self.make_ready((session,))
        elif answer == EVICTED:
            self.loader.load_if_waiting(session)
        elif answer == OVERFULL:
            self.end_soon(session)
        elif answer == KEPT and entry.lazy:
            self.timers.at(session, session.mailbox.view().lazy_at)
        if entry.expires:
            self.expiry.watch(session)

    def make_ready(self, sessions: Iterable[Session]) -> None:
        """Let the next flush look at these sessions, of which there is one at least."""
        if not (self._ready or self._left):
            self._loop.call_soon(self._flush)
        self._ready.update(dict.fromkeys(sessions))

    def leave_soon(self, session: Session) -> None:
        """Something has changed for the session: what may leave now leaves with the next flush."""
        if session.mailbox.news == LEAVES:
            self.make_ready((session,))

    def shorten(self, sessions: Iterable[Session]) -> None:
        """Cut the queues that have more than their share, if all together have too much."""
        if not self.backlog.is_full:
            return
        for session in list(sessions):
            if session.mailbox.shorten():
                self.end_soon(session)

    def end_soon(self, session: Session) -> None:
        """End the session with the next flush; until then it receives what it has, from the front: never a gap."""
        self._overflowed.add(session)
        self.make_ready((session,))

    # Out of the queues

    def _flush(self) -> None:
        ready = [*self._left, *self._ready]
        self._left, self._ready = [], {}
        now = self._loop.time()
        fan_outs = self.fan_outs
        for index, session in enumerate(ready):
            if index >= fan_outs.at_once and not index % fan_outs.step and self._loop.time() > now + fan_outs.slice_s:
                if not self._ready:
                    self._loop.call_soon(self._flush)
                self._left = ready[index:]  # others have their turn first
                return
            if session.mailbox.news == LEAVES and not session.requests:
                try:
                    if session.socket is not None and not session.connect_only:
                        self.push(session)
                    elif session.held is not None and session.held.not_before <= now:
                        self.connects.release(session, now)
                except Exception:
                    log.exception("a flush failed")
        if self._overflowed and not self._is_ending:
            self._end_overflowed()

    def _end_overflowed(self) -> None:
        """End the sessions whose queues were full, as many as fit into a turn."""
        full = (self._overflowed.pop() for _ in range(len(self._overflowed)))
        self._is_ending = not do_slice(map(self._listener.disconnect, full), self.fan_outs.slice_s)
        if self._is_ending:
            self._loop.call_soon(self._end_overflowed)

    def push(self, session: Session) -> None:
        """Send what is queued over the session's socket, as long as the socket takes it."""
        socket, mailbox = session.socket, session.mailbox
        while socket is not None and mailbox.news and socket.is_writable:
            messages = self._take(session)
            if messages:
                socket.send(messages)
            elif mailbox.news != LEAVES:  # it is paused
                return

    def _on_timer(self, session: Session, now: float) -> float:
        mailbox = session.mailbox
        news, lazy_at = mailbox.news, mailbox.tick(now)
        if mailbox.news > news and session.socket is not None and not (session.requests or session.connect_only):
            self.push(session)
        due = min(lazy_at, self._listener.on_timer(session, now))
        held = session.held
        if held is None:
            return due
        if held.not_before <= now:
            held.not_before = 0.0  # `now` may be a moment ahead of the clock: what comes next must not wait for that
        if held.deadline <= now or (mailbox.news == LEAVES and not held.not_before):
            self.connects.release(session, now)
            return due
        return min(due, held.deadline, held.not_before or inf)

    # Answers

    def answer(self, exchange: Exchange) -> None:
        """Hold the exchange's connect, or send its replies with the messages that go with them."""
        session = exchange.session
        if exchange.repeated is not None:
            exchange.peer.send(exchange.repeated)
            return
        if session is not None:
            if not session.is_live and session.state is State.NEW:
                session = None
            elif session in self.connects.reported:
                self._listener.conclude(session)
        if exchange.connect is not None and session is not None and session.is_live:
            if len(exchange.elements) == 1 and exchange.is_overtaken(session, exchange.connect.get("id")):
                exchange.peer.supersede()
                return
            if self.connects.hold_begun(exchange, session):
                return
        messages: list[bytes] = []
        if session is not None and session.mailbox.news and exchange.carries_messages(session, self._settings):
            messages = self._take(session)
        if exchange.handshake is not None and messages:
            exchange.handshake["x-messages"] = len(messages)
        parts = []
        for reply, message in exchange.replies:
            if message is None:
                passes = True
            elif message.channel.is_meta:
                passes = self.pipe.send_meta(session, reply, message)
            else:
                passes = not self.pipe.sends or self.pipe.send(session, reply)
            if passes:
                parts.append(encode_reply(reply, self._metrics))
        if messages:
            # Messages come before replies; only a handshake reply goes before all, for the client has no session until then.
            parts = messages + parts if exchange.handshake is None else parts + messages
        if parts or not exchange.peer.pushes:
            exchange.peer.send(parts)
        if self.connects.longest_pause_ms and exchange.connect is not None:
            exchange.peer.end_well()
        if session is None or not session.is_live:
            return
        if exchange.connect is not None or exchange.handshake is not None:
            if exchange.connect is not None:
                is_kept = session.acknowledges
            else:
                is_kept = self._settings.allow_message_delivery_during_handshake
            if session.connecting is exchange.peer:
                session.connecting = None
                if exchange.has_waited and exchange.peer.is_gone:
                    session.connect_id = None  # it has no answer: once more, it is no copy
                    is_kept = False
            if is_kept:
                session.answered = parts
            self._times.arm_time_out(session, self._loop.time())
        if not exchange.peer.pushes:
            session.peer = None
        self.leave_soon(session)
