"""What will become of a session, and when: for operators before it happens, and for the log when it has."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from crewel.broker.sessions import Event, Session
from crewel.broker.timing import Timing


class Outlook(NamedTuple):
    """When the session ends unless its client comes (loop time, s; infinite while it is connected), and why."""

    ends_at: float
    why: str


def outlook(session: Session, timing: Timing, now: float) -> Outlook:
    """The session's."""
    gone_in = timing.gone_in(session, now)
    if gone_in is None:
        return Outlook(inf, "")
    gives_up = session.dispatcher.rules.gives_up if session.dispatcher is not None else inf
    if session.durable is not None and gives_up < inf:
        # Once it counts as gone, that is in the time at which it expires.
        ends_at = session.expires_at if session.is_absent else min(session.expires_at, now + gone_in + gives_up)
        return Outlook(ends_at, f"its client is away, which counts as failing: given up after {gives_up:g} s")
    if session.grace_ms is not None:
        return Outlook(
            session.expires_at, f"its client is away for longer than its timeout, {session.grace_ms / 1000:g} s"
        )
    return Outlook(session.expires_at, "no connect comes in time")


def cause(session: Session, event: Event, timing: Timing, now: float) -> str:
    """Why the session ends, in words."""
    if session.durable is not None and session.durable.death is not None:
        code, reason = session.durable.death
        return f"{code}: {reason}" if reason else code
    words = str(event.value)
    return outlook(session, timing, now).why or words if event is Event.SILENCE else words
