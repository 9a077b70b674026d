"""How old what waits for a session is."""

from __future__ import annotations

from crewel.broker.session import Session


def oldest_of(session: Session) -> int | None:
    """When the oldest of its stored messages was published: milliseconds since 1970; None without one."""
    place = None if session.durable is None else session.durable.oldest()
    return None if place is None else place // 1000
