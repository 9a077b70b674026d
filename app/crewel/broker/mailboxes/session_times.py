"""The times of a session: of its connects and pauses, how long its client may be away, and what happens then."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from crewel.bayeux import advice
from crewel.bayeux.advice import Advice
from crewel.bayeux.replies import Reply
from crewel.broker.exchange import Peer
from crewel.broker.mailboxes.timing_wheel import TimingWheel
from crewel.broker.session import Event, Session, State
from crewel.delivery.records import SessionRecord
from crewel.errors import BayeuxCode
from crewel.settings import Settings
from crewel.times import format_span

_AWAY_MS = 30_000
"""A client that has rested for longer than its pause and this is not there, however long its session may live."""


class SessionTimes:
    """The server's times, or a session's own where it has any. Milliseconds as on the wire; deadlines in seconds of loop
    time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.bayeux
        self.wheel = TimingWheel()
        """When the sweep looks at each session. Whatever lets one end earlier than it could before puts it there again."""
        self.usual_rest = 0.0
        """How long (s) a client may rest that has no times of its own."""
        self.renew()
        self._excused_until = -inf
        self._excuse_ends = True

    def renew(self) -> None:
        """Obey the settings of this moment: each sweep does, since each reply to a connect needs the sum."""
        self.usual_rest = (self._settings.interval_ms + self._settings.max_interval_ms) / 1000

    def excuse(self, until: float) -> None:
        """Let no session end by silence before this moment (loop time): its client may be unable to reach this server, and not
        by its own fault. Infinity: until `end_excuse`."""
        if until == inf:
            self._excuse_ends = False
        else:
            self._excused_until = max(self._excused_until, until)

    def end_excuse(self, now: float) -> None:
        """Clients can reach this server again: from now on each has its usual time for it, or longer if it was excused until a
        moment after that."""
        self._excuse_ends = True
        self._excused_until = max(self._excused_until, now + self.usual_rest)

    def are_excused(self, now: float) -> bool:
        """Whether no session may end by silence."""
        return not self._excuse_ends or now < self._excused_until

    def hold_ms(self, session: Session) -> float:
        """How long the connect being processed may be held: what it asked for, or what the session was advised."""
        if session.transient is not None and session.transient[0] is not None:
            return session.transient[0]
        return self._settings.timeout_ms if session.timeout_ms is None else session.timeout_ms

    def pause_ms(self, session: Session) -> float:
        """How long the client may pause before its next connect."""
        if session.transient is not None and session.transient[1] is not None:
            return session.transient[1]
        return self._settings.interval_ms if session.interval_ms is None else session.interval_ms

    def advice(self, session: Session) -> Advice:
        """The full advice of this session. A client's own wish for this one connect does not come back as the time-out."""
        timeout = self._settings.timeout_ms if session.timeout_ms is None else session.timeout_ms
        grace = self._settings.max_interval_ms if self._settings.handshake_reconnect else None
        return advice.retry(int(self.pause_ms(session)), timeout, grace)

    def advise_multiple_clients(self, session: Session, reply: Reply, *, with_timeout: bool) -> None:
        """Make this the reply to a connect that is not held because its browser holds enough of them."""
        interval = self._settings.multi_session_interval_ms
        reply["advice"] = advice.multiple_clients(interval, self._settings.timeout_ms if with_timeout else None)
        if interval > 0:
            session.transient = (None if session.transient is None else session.transient[0], interval)
        else:
            reply["successful"] = False

    def advise_released(self, session: Session, reply: Reply, transport: str) -> None:
        """Put the advice into the reply to a connect that was held, or what has happened to the session meanwhile."""
        if session.verdict is not None:
            reply.update(successful=False, error=session.verdict.error, advice=session.verdict.advice)
        elif session.state is State.EXPIRED:
            reply.update(successful=False, error=BayeuxCode.SESSION_UNKNOWN, advice=advice.handshake())
        elif not session.is_live:
            reply["advice"] = advice.none()
        else:
            reply["advice"] = self.advice(session)
            session.advised_on = transport

    def handshaken(self, session: Session, peer: Peer) -> Advice:
        """The advice that a handshake is answered with."""
        session.advised_on = peer.transport
        return self.advice(session)

    def arm_time_out(self, session: Session, now: float) -> None:
        """Start the time within which the next connect must come."""
        if session.transient is None and session.interval_ms is None and session.grace_ms is None:
            session.expires_at = now + self.usual_rest
        elif session.grace_ms is not None:
            session.expires_at = now + session.grace_ms / 1000
        else:
            session.expires_at = now + (self.pause_ms(session) + self._settings.max_interval_ms) / 1000

    def await_again(self, session: Session, now: float, now_ms: float, record: SessionRecord, grace: float) -> None:
        """Start the time within which the client of a session that was taken over must come: what has passed of it counts, and
        the grace (s) is added once. `now_ms`: milliseconds since 1970."""
        waited = max(now_ms - record.awaited_since_ms, 0.0) / 1000 if record.awaited_since_ms else 0.0
        until = now - waited + grace
        if record.ends_ms:
            session.expires_at = max(now + (record.ends_ms - now_ms) / 1000, until)
        else:
            self.arm_time_out(session, until)

    def saw(self, session: Session, now: float, peer: Peer | None = None) -> None:
        """Something came from the session: it is not idle, and a deadline that runs is at least the grace away."""
        if peer is not None:
            session.peer = peer
        session.last_seen = now
        away = self._settings.max_interval_ms if session.grace_ms is None else session.grace_ms
        grace = now + away / 1000
        if session.expires_at < grace:
            session.expires_at = grace

    def is_safe_until(self, session: Session, now: float) -> float:
        """The loop time (s) before which the client neither counts as gone nor has been silent for too long, whatever comes
        from it until then. One that was away and is back may count as gone before that."""
        # Without the pause before it: that may be another one after each connect.
        rest_ms, grace_ms = self._settings.max_interval_ms, session.grace_ms
        until = now + (rest_ms if grace_ms is None or rest_ms < grace_ms else grace_ms) / 1000
        if session.held is not None:
            return until
        if session.socket is not None:
            return min(until, session.expires_at)
        if session.mailbox.view().is_absent:
            return session.expires_at
        if session.durable is None or grace_ms is None:
            return min(until, session.expires_at)
        return min(until, session.expires_at, session.expires_at - grace_ms / 1000 + self._rest(session))

    def is_gone(self, session: Session, now: float) -> bool:
        """Whether the client has been away for longer than between two connects: it is not ALIVE, however long its
        session may live."""
        left = self.gone_in(session, now)
        return left is not None and left <= 0

    def gone_in(self, session: Session, now: float) -> float | None:
        """Seconds until the client counts as gone unless it connects again; None while it is connected."""
        rests_since = self.rests_since(session)
        return None if rests_since is None else rests_since + self._rest(session) - now

    def rests_since(self, session: Session) -> float | None:
        """The loop time (s) since which no connect is held and nothing has come; None while the client is connected."""
        if session.held is not None or session.socket is not None:
            return None
        return session.expires_at - (session.grace_ms / 1000 if session.grace_ms is not None else self._rest(session))

    def is_away(self, session: Session, now: float) -> bool:
        """Whether operators see the client as away: it has rested for longer than between two connects, or for half a minute
        where that may be longer."""
        rests_since = self.rests_since(session)
        if rests_since is None:
            return False
        most = min(self._settings.max_interval_ms, _AWAY_MS) + self.pause_ms(session)
        return now - rests_since >= most / 1000

    def _rest(self, session: Session) -> float:
        """How long (s) the client may rest until it counts as gone."""
        return (self.pause_ms(session) + self._settings.max_interval_ms) / 1000


class Outlook(NamedTuple):
    """When the session ends unless its client comes (loop time, s; infinite while it is connected), and why."""

    ends_at: float
    why: str


def outlook(session: Session, times: SessionTimes, now: float) -> Outlook:
    """The session's."""
    gone_in = times.gone_in(session, now)
    if gone_in is None:
        return Outlook(inf, "")
    view = session.mailbox.view()
    gives_up = inf if session.durable is None else view.rules.gives_up
    if gives_up < inf:
        # Once it counts as gone, that is in the time at which it expires.
        ends_at = session.expires_at if view.is_absent else min(session.expires_at, now + gone_in + gives_up)
        return Outlook(ends_at, f"its client is away, which counts as failing: given up after {format_span(gives_up)}")
    if session.grace_ms is not None:
        return Outlook(
            session.expires_at,
            f"its client is away for longer than its timeout, {format_span(session.grace_ms / 1000)}",
        )
    return Outlook(session.expires_at, "no connect comes in time")


def cause(session: Session, event: Event, times: SessionTimes, now: float) -> str:
    """Why the session ends, in words."""
    if (death := session.mailbox.view().death) is not None:
        code, reason = death
        return f"{code}: {reason}" if reason else code
    words = str(event.value)
    return outlook(session, times, now).why or words if event is Event.SILENCE else words
