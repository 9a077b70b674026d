"""Dispatchers at work: what clients report of their messages is carried out, and what operators ask for.

The pure half, `delivery.dispatcher`, decides; here messages are moved, sessions paused and ended, and holdbacks stored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import time
from typing import Any, Final

from crewel.broker.mailboxes.departures import OnewayUpdates
from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.events import Events
from crewel.broker.mailboxes.mailbox_listener import Occasion
from crewel.broker.mailboxes.mailbox_listeners import MailboxesListener
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.mailboxes.pings import Pings
from crewel.broker.mailboxes.session_times import SessionTimes, cause
from crewel.broker.mailboxes.stops import Stops, from_json
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session, State
from crewel.delivery.dispatcher import NO_RULES, Judgement, Rejection, Rules
from crewel.delivery.dispatcher_states import DispatcherState, Holdback
from crewel.delivery.entry import Entry
from crewel.delivery.outcomes import OnUserError, read_statuses
from crewel.delivery.records import EndReason, SessionRecord
from crewel.errors import IllegalArgument
from crewel.event_loop import in_turns
from crewel.qos.connect import ConnectQos, Retries

log = logging.getLogger(__name__)

_HELD: Final = "user.update.holdback"
_NAMED_CHANNELS: Final = 3
_SKIPPED: Final = "resource.maintenance.skipped", "an operator has skipped it"
_DRAINED: Final = "resource.maintenance.drained", "an operator has drained the queue"
"""Code and reason of messages that operators take out of a queue."""


@dataclass(eq=False)
class DispatcherRunner:
    """The dispatchers of one broker."""

    _runtime: Runtime
    _sessions: dict[str, Session]
    _outbound: Outbound
    _times: SessionTimes
    _events: Events
    _listener: MailboxesListener
    is_offered: bool = field(default=False, init=False)
    """Whether sessions may ask for the origin of messages: an extension of this server offers it."""
    updated: set[Session] = field(default_factory=set, init=False)
    """The sessions that receive `ext.update`, including those that acknowledge nothing."""

    def __post_init__(self) -> None:
        self._stops = Stops(self._runtime.access, self._runtime.loop)
        self._expiry = self._outbound.expiry
        self._node = self._runtime.settings.node.name
        self.pings = Pings(self._runtime, self._outbound.connects)
        self._runtime.metrics.count("held_sessions", self._held_sessions)
        self._runtime.metrics.count("unclaimed", self._unclaimed)

    async def _held_sessions(self) -> int:
        return sum([each.mailbox.view().holdback is not None async for each in in_turns(self._sessions.values())])

    async def _unclaimed(self) -> int:
        return sum([each.mailbox.view().unclaimed async for each in in_turns(self.updated)])

    # Logins

    def configure(self, session: Session, qos: ConnectQos) -> None:
        """Give the session the dispatcher that its login asks for. One that it has stays, with its holdback."""
        tells = self._tells(session, qos)
        if qos.ping_interval_ms:
            # A held connect that is released empty is the ping, and the next connect the answer.
            session.timeout_ms = min(qos.ping_interval_ms, self._runtime.settings.bayeux.timeout_ms)
        view = session.mailbox.view()
        if tells or qos.dispatcher is not None or qos.max_open or view.rules is not NO_RULES:
            was_rejecting = view.rejection is not None
            session.mailbox.configure(self._rules(session, qos), qos.max_open)
            if was_rejecting:
                self._stops.store(session)
            self._let_leave(session)
        is_oneway = qos.update and self.is_offered and not session.acknowledges
        if is_oneway and not any(isinstance(each, OnewayUpdates) for each in session.parts):
            session.add_part(OnewayUpdates(self.updated, self._expiry, self._node))
        if tells or is_oneway:
            self.updated.add(session)
        else:
            self.updated.discard(session)

    def _tells(self, session: Session, qos: ConnectQos) -> bool:
        return qos.update and self.is_offered and session.acknowledges

    def _rules(self, session: Session, qos: ConnectQos) -> Rules:
        delivery, asked = self._runtime.settings.delivery, qos.dispatcher or Retries()
        retries = delivery.retries if asked.retries is None else asked.retries
        delay = (delivery.delay_ms if asked.delay_ms is None else asked.delay_ms) / 1000
        wait_ms = delivery.ack_wait_ms if qos.ack_wait_ms is None else qos.ack_wait_ms
        rules = Rules(
            tells=self._tells(session, qos),
            settle=qos.settle,
            ack_wait=wait_ms / 1000 if wait_ms > 0 else inf,
            retries=retries,
            delay=delay,
            factor=asked.factor,
            max_delay=inf if asked.max_delay_ms is None else asked.max_delay_ms / 1000,
            on_user_error=OnUserError(delivery.on_user_error),
        )
        counts = qos.dispatcher is not None and asked.absence
        return replace(rules, gives_up=rules.all_pauses()) if counts else rules

    def rules(self, session: Session) -> Rules:
        """What the session's dispatcher goes by, or would."""
        rules = session.mailbox.view().rules
        return self._rules(session, session.asked) if rules is NO_RULES else rules

    def restore(self, session: Session, record: SessionRecord) -> None:
        """The session came back from the store: its dispatcher stands where it stood."""
        if record.dispatch is None:
            return
        stop = from_json(record.dispatch)
        session.mailbox.hold(stop, self.rules(session))
        if isinstance(stop, Rejection):
            self._dead_letter_all(session, *stop)
        self._let_leave(session)

    def leave(self, session: Session, event: Event) -> None:
        """The session ends: what of it is in memory only becomes dead letters, if a client may come back for it."""
        depth = session.mailbox.view().depth
        self.updated.discard(session)
        self._outbound.connects.reported.discard(session)
        self.pings.ended(session)
        self._expiry.leave(session)
        lapsed = Ends(session.mailbox).leave()
        if session.acknowledges and depth:
            self._runtime.metrics.ended[EndReason.LAPSED] += lapsed
            self._log_end(session, event, depth, lapsed)

    def _log_end(self, session: Session, event: Event, depth: int, lapsed: int) -> None:
        """Log what ends with the session: from now on its messages are dead letters, or are dropped."""
        is_kept = session.mailbox.view().ends_in_letters and depth > lapsed
        backlog = depth - lapsed if is_kept else depth
        why = cause(session, event, self._times, self._runtime.loop.time())
        if is_kept:
            self._events.died(session, backlog, why)
        log.log(
            logging.WARNING if is_kept else logging.INFO,
            "the session %s has ended (%s); its waiting messages (%d) %s",
            session.name or "of a client without a name",
            why,
            backlog,
            "become dead letters, or go back to their subject or group" if is_kept else "end with it",
        )

    # What clients say

    def handle_statuses(self, session: Session, given: object, batch: int | None = None) -> list[dict[str, Any]]:
        """Carry out what the client says of its messages; returns the statuses that do not count, with why. What they mean
        for the client itself waits for `conclude`. `batch` is the last one that the client has got, if it says that as well:
        a failure of what was sent after it repeats what it had said before."""
        mailbox, view = session.mailbox, session.mailbox.view()
        statuses, rejected = read_statuses(given)
        if not (view.rules.tells and session.is_live):
            reason = "the session is not one that answers statuses: its handshake did not ask for update with ext.ack"
            return [*rejected, *({**status.given, "reason": reason} for status in statuses)]
        had_unclaimed = view.unclaimed
        judgement = mailbox.report(statuses, batch, self._occasion(session, self._runtime.loop.time()))
        if judgement.unclaimed and not had_unclaimed:
            channels = ", ".join(sorted({entry.channel for entry in judgement.unclaimed})[:_NAMED_CHANNELS])
            log.warning(
                "%s: no listener takes its messages of %s; they stay open until one does", session.name, channels
            )
        self._note(session, judgement)
        if view.has_reports:
            self._outbound.connects.reported.add(session)
        else:
            self._follow(session)
        return rejected + judgement.rejected

    def conclude(self, session: Session) -> None:
        """The request that reported failures is read to its end: carry out what they mean for the client itself."""
        self._outbound.connects.reported.discard(session)
        if not session.is_live:
            return
        was_rejecting = session.mailbox.view().rejection is not None
        if session.mailbox.conclude(self._runtime.loop.time()):  # its messages become dead letters
            self._listener.end(session, Event.FAILED)
        else:
            self._follow(session, was_rejecting=was_rejecting)

    def _occasion(self, session: Session, now: float) -> Occasion:
        return Occasion(session.name, now, int(time() * 1000), partial(self._listener.try_other, session))

    def _note(self, session: Session, judgement: Judgement) -> None:
        self._events.judged(session, judgement)
        self._runtime.metrics.redeliveries += len(judgement.put_back)
        if judgement.holdback is not None:
            self._note_hold(session, judgement.holdback)
            self._stops.store(session)

    def _follow(self, session: Session, *, was_rejecting: bool = True) -> None:
        """The client has said something of messages: let others have what the session gets no more, or let it continue."""
        view = session.mailbox.view()
        if view.is_paused or view.rejection is not None:
            self._listener.is_blocked(session)
        if view.rejection is not None and not was_rejecting:
            self._dead_letter_all(session, *view.rejection)
            self._stops.store(session)
        self._let_leave(session)
        self._listener.has_capacity(session)

    def _dead_letter_all(self, session: Session, code: str, reason: str, given: str = "") -> int:
        return Ends(session.mailbox).dead_letter_all(self._expiry.now(), code, reason, given)

    def note_room(self, session: Session) -> None:
        """The client of a session with a limit may have room for messages again."""
        self._outbound.leave_soon(session)
        self._listener.has_capacity(session)

    def note_active(self, session: Session) -> None:
        """Another client has the session now."""
        self._listener.is_active(session)

    # Pauses

    def _let_leave(self, session: Session) -> None:
        """Its mailbox is paused, or continues: what may leave does, and the clock is set for what comes next."""
        self._outbound.leave_soon(session)
        self._outbound.loader.load_if_waiting(session)
        self._outbound.timers.at(session, session.mailbox.view().next_at)

    def on_timer(self, session: Session, now: float) -> float:
        """It may be time for something; returns when it may be time again."""
        if not session.is_live:
            return inf
        view = session.mailbox.view()
        self._resume(session, now)
        if view.next_at <= now:
            self._note(session, session.mailbox.overdue(self._occasion(session, now)))
            self.conclude(session)
        return view.next_at

    def _resume(self, session: Session, now: float) -> bool:
        is_over = session.mailbox.resume(now)
        if is_over:
            self._let_leave(session)
            self._listener.is_active(session)
        return is_over

    def back(self, session: Session) -> None:
        """The client was away, and is there again."""
        now = self._runtime.loop.time()
        session.mailbox.come_back(now)
        self._times.wheel.put(session, now)
        self._events.back(session)
        self._outbound.timers.at(session, session.mailbox.view().next_at)
        self._listener.is_active(session)

    def await_client(self, session: Session, now: float) -> None:
        """The client is gone. Its login may have said for how long it is waited for."""
        session.expires_at = min(session.expires_at, now + session.mailbox.view().rules.gives_up)
        self._events.lost(session)

    # What operators ask for

    def state(self, session: Session) -> DispatcherState:
        """Where the session's dispatcher stands."""
        return session.mailbox.view().state(is_gone=self.is_away(session))

    def is_away(self, session: Session) -> bool:
        """Whether the session's client is not there, whatever its dispatcher does."""
        is_gone = session.mailbox.view().is_absent or session.state is not State.CONNECTED
        return is_gone or self._times.is_away(session, self._runtime.loop.time())

    def away_since(self, session: Session) -> float:
        """The loop time (s) since which nothing has come from the session's client, which is away."""
        rests_since = self._times.rests_since(session)
        if rests_since is None or session.state is not State.CONNECTED:  # no connect has come yet
            return session.added_at
        # Nothing may have come here from one that the store brought back: the store said since when, its client has a grace.
        return session.last_seen or min(rests_since, session.added_at)

    async def hold(self, session: Session, who: str, *, code: str = "", message_id: str = "", reason: str = "") -> None:
        """Let the session's messages wait until it is activated. A session that is on hold already stays as it is. Raises
        IllegalArgument for one that does not acknowledge: nothing waits for it."""
        if not session.acknowledges:
            raise IllegalArgument(
                "dispatcherActive", f"{session.name} does not acknowledge: the server keeps nothing for it"
            )
        if session.mailbox.view().holdback is None:
            holdback = Holdback(who, int(time() * 1000), code, message_id, reason)
            session.mailbox.hold(holdback, self.rules(session))
            self._note_hold(session, holdback)
            self._listener.is_blocked(session)
            self._let_leave(session)
            await self._stored(session)

    def _note_hold(self, session: Session, holdback: Holdback) -> None:
        self._events.held(session, holdback)
        why = ", ".join(filter(None, (holdback.code, holdback.reason)))
        log.warning(
            "%s is on hold by %s (%s): its messages wait until an operator activates it, crewel sessions activate %s",
            session.name,
            holdback.who,
            why or "no reason given",
            session.name,
        )

    async def activate(self, session: Session) -> None:
        """Let the session's messages go to it again, the held one in its old place."""
        if session.mailbox.view().holdback is not None:
            session.mailbox.hold(None, self.rules(session))
            self._events.released(session)
            self._let_leave(session)
            self._listener.is_active(session)
            await self._stored(session)

    def retry(self, session: Session) -> bool:
        """Send again what its client could not take, without waiting longer; whether it was waited with."""
        return self._resume(session, inf)

    async def _stored(self, session: Session) -> None:
        stored = self._stops.store(session)
        if stored is not None:
            await stored

    async def skip(self, session: Session, message_id: str = "") -> int:
        """Make a dead letter of the message of this id; without an id, of the one that is on hold, or else of the first that
        waits. The one that is on hold keeps the code for which it is. Returns how many."""
        view = session.mailbox.view()
        held = view.holdback
        held_id = held.message_id if held is not None and view.has_held else ""
        code, reason = _SKIPPED
        if held is not None and held_id and message_id in ("", held_id):
            code, reason = held.code or _HELD, held.reason or reason
        done = Ends(session.mailbox).dead_letter_one(message_id or held_id, code, reason, or_first=not message_id)
        count = int(done)
        self._note_ended(session)
        return count

    async def drain(self, session: Session) -> int:
        """Make dead letters of all waiting messages; returns how many."""
        count = self._dead_letter_all(session, *_DRAINED)
        self._note_ended(session)
        return count

    def _note_ended(self, session: Session) -> None:
        if session.mailbox.view().max_open:
            self.note_room(session)

    async def clear(self, session: Session) -> int:
        """Drop all waiting messages; returns how many."""
        return await self.remove(session, session.mailbox.view().depth)

    async def remove(self, session: Session, count: int) -> int:
        """Drop the first so many of the waiting messages, the stored ones first; returns how many."""
        dropped = Ends(session.mailbox).drop_first(count)
        self._note_ended(session)
        return dropped

    async def peek(self, session: Session, count: int) -> list[Entry]:
        """The first so many of the waiting messages, the stored ones first. Raises StoreError."""
        view = session.mailbox.view()
        stored = await self._outbound.loader.read(session.name, view.first_stored(count))
        return stored + view.transients()[: count - len(stored)]
