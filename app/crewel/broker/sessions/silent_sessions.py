"""Ends sessions whose clients have been silent for too long, and lets the messages of those that are away leave memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from time import time
from typing import Final

from crewel.broker.durability.durability import Durability
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session
from crewel.broker.sessions.logins import Logins
from crewel.broker.sessions.session_table import SessionTable
from crewel.broker.sessions.sign_outs import SignOuts
from crewel.event_loop import Rounds

_LOOKED_AT: Final = 64
"""Sessions that a sweep looks at before it asks for the time."""
_SOON_S: Final = 60.0
"""Seconds until each session is looked at again at the latest: a clock that was set, or a setting, is obeyed by then."""
_WORKS_S: Final = 120.0
"""Seconds for which a request that is being worked on shows that its client is there."""


@dataclass(eq=False)
class SilentSessions:
    """Looks at the sessions of one server."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _table: SessionTable
    _durability: Durability
    _logins: Logins
    _sign_outs: SignOuts

    def __post_init__(self) -> None:
        self._rounds = Rounds(self._runtime.loop, self._sweep_portions)

    def sweep(self) -> None:
        """End the sessions whose time has ended."""
        self._mailboxes.times.renew()
        self._rounds.begin()

    def _sweep_portions(self) -> Iterator[None]:
        sessions = self._mailboxes.times.wheel.due(self._runtime.loop.time())
        while some := list(islice(sessions, _LOOKED_AT)):
            self._sweep_some(some)
            yield

    def _sweep_some(self, sessions: list[Session]) -> None:
        times, now = self._mailboxes.times, self._runtime.loop.time()
        silence = self._runtime.settings.bayeux.max_processing_ms / 1000
        are_excused = times.are_excused(now)
        waiting = []
        for session in sessions:
            if session.held is not None and session.grants is None and session.grace_ms is None and silence <= 0:
                waiting.append(session)  # as most: nothing can have happened to it, and its time has not begun
                continue
            if session.is_live:
                self._look_at(session, now, silence, are_excused=are_excused)
            if session.is_live:
                times.wheel.put(session, self._due_at(session, now, silence))
        if waiting:
            times.wheel.put_all(waiting, self._due_at(waiting[0], now, silence))

    def _look_at(self, session: Session, now: float, silence: float, *, are_excused: bool) -> None:
        if session.requests and now < session.last_seen + _WORKS_S:
            pass  # a request of its client is being worked on: it is there
        elif are_excused:
            pass  # it may be unable to come
        elif session.expires_at <= now or (0 < silence < now - session.last_seen and session.held is not None):
            self._runtime.metrics.sessions_expired += 1
            self._table.remove(session, Event.SILENCE)
        elif (
            session.held is None
            and session.durable is not None
            and not session.mailbox.view().is_absent
            and self._mailboxes.times.is_gone(session, now)
        ):
            session.go_away()
            self._mailboxes.dispatchers.await_client(session, now)
            self._durability.note_away(session, session.expires_at - now)
        if session.grants is not None:
            self._logins.check_token(session)
            if session.grants.page:
                self._sign_outs.watch(session)

    def _due_at(self, session: Session, now: float, silence: float) -> float:
        """When a sweep has to look at it next (loop time, s), whatever comes from its client until then."""
        grants, at = session.grants, self._mailboxes.times.is_safe_until(session, now)
        if at > now + _SOON_S:
            at = now + _SOON_S
        if silence > 0:
            at = min(at, (now if session.held is None else session.last_seen) + silence)
        if grants is None or grants.page:
            return at if grants is None else now
        expires_at = grants.expires_at
        return at if expires_at is None or session.verdict is not None else min(at, now + expires_at - time())
