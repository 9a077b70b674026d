"""How long a session's connect is held, how long it may stay away, and how its client is told."""

from __future__ import annotations

from crewel.bayeux import advice
from crewel.bayeux.advice import Advice
from crewel.bayeux.replies import Reply
from crewel.broker.peer import Peer
from crewel.broker.sessions import Session, State
from crewel.errors import BayeuxCode
from crewel.settings import Settings


class Timing:
    """The server's times, or a session's own where it has any. Milliseconds as on the wire; deadlines in seconds of loop
    time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.bayeux
        self._usual_rest = (self._settings.interval_ms + self._settings.max_interval_ms) / 1000

    def hold_ms(self, session: Session) -> float:
        """How long the connect being processed may be held: what it asked for, or what the session was advised."""
        if session.transient_timeout_ms is not None:
            return session.transient_timeout_ms
        return self._settings.timeout_ms if session.timeout_ms is None else session.timeout_ms

    def pause_ms(self, session: Session) -> float:
        """How long the client may pause before its next connect."""
        if session.transient_interval_ms is not None:
            return session.transient_interval_ms
        return self._settings.interval_ms if session.interval_ms is None else session.interval_ms

    def advice(self, session: Session) -> Advice:
        """The full advice of this session. A client's own wish for this one connect is not told back as the time-out."""
        timeout = self._settings.timeout_ms if session.timeout_ms is None else session.timeout_ms
        grace = self._settings.max_interval_ms if self._settings.handshake_reconnect else None
        return advice.retry(int(self.pause_ms(session)), timeout, grace)

    def tell_multiple_clients(self, session: Session, reply: Reply, *, with_timeout: bool) -> None:
        """Make this the reply to a connect that is not held because its browser holds enough of them."""
        interval = self._settings.multi_session_interval_ms
        reply["advice"] = advice.multiple_clients(interval, self._settings.timeout_ms if with_timeout else None)
        if interval > 0:
            session.transient_interval_ms = interval
        else:
            reply["successful"] = False

    def tell_released(self, session: Session, reply: Reply, transport: str) -> None:
        """Put the advice into the reply to a connect that was held, or what has become of the session meanwhile."""
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

    def rest(self, session: Session, now: float) -> None:
        """Start the time within which the next connect must come."""
        if session.transient_interval_ms is None and session.interval_ms is None and session.grace_ms is None:
            session.expires_at = now + self._usual_rest
        elif session.grace_ms is not None:
            session.expires_at = now + session.grace_ms / 1000
        else:
            session.expires_at = now + (self.pause_ms(session) + self._settings.max_interval_ms) / 1000

    def saw(self, session: Session, now: float, peer: Peer | None = None) -> None:
        """Something came from the session: it is not idle, and a deadline that runs is at least the grace away."""
        if peer is not None:
            session.peer = peer
        session.last_seen = now
        away = self._settings.max_interval_ms if session.grace_ms is None else session.grace_ms
        grace = now + away / 1000
        if session.expires_at < grace:
            session.expires_at = grace

    def is_gone(self, session: Session, now: float) -> bool:
        """Whether the client has been away for longer than between two connects: it is not ALIVE, however long its
        session may live."""
        left = self.gone_in(session, now)
        return left is not None and left <= 0

    def gone_in(self, session: Session, now: float) -> float | None:
        """Seconds until the client counts as gone unless it connects again; None while it is connected."""
        if session.held is not None or session.socket is not None:
            return None
        away = (self.pause_ms(session) + self._settings.max_interval_ms) / 1000
        rested_at = session.expires_at - (session.grace_ms / 1000 if session.grace_ms is not None else away)
        return rested_at + away - now
