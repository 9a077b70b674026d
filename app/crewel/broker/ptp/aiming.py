"""Whom a destination means at this moment (design, 3.7; seed 001): sessions that are there, a queue where the message waits, or
nobody, and then why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from crewel.broker.names import Names
from crewel.broker.ptp.naming import one_queue, subject_queue
from crewel.broker.sessions import Session
from crewel.qos.names import ANONYMOUS
from crewel.qos.publish import Destination, Distribute

Load = Callable[[Session], int]
NextOf = Callable[[Iterable[Session]], Session]

_DENIED: Final = "user.ptp.denied"
_UNKNOWN: Final = "user.ptp.unknownDestination"
_UNKNOWN_SESSION: Final = "user.ptp.unknownDestinationSession"


class Aim(NamedTuple):
    """What one destination comes to."""

    to: str
    """The name, without a node."""
    sessions: tuple[Session, ...] = ()
    """Who gets the message now."""
    source: str = ""
    """The queue of the subject, to which it goes back if all these sessions end before one has settled it."""
    queue: str = ""
    """Where it waits instead."""
    code: str = ""
    """Why nobody gets it."""
    message: str = ""


def aim(destination: Destination, names: Names, load: Load, next_of: NextOf, *, has_store: bool) -> Aim:
    """Find out whom the destination means. `load` tells how much waits for a session, `next_of` chooses among those with
    equally much."""
    name = destination.to
    if name.number:
        return _at_session(name.relative, names)
    there = names.of_subject(name.subject) if name.subject != ANONYMOUS else []
    takers = tuple(session for session in there if session.takes_ptp)
    if destination.distribute is Distribute.ONE:
        return _at_one(destination, takers, load, next_of, is_anybody=bool(there), has_store=has_store)
    if takers:
        return Aim(name.relative, takers, subject_queue(name.subject))
    return _at_nobody(destination, subject_queue(name.subject), is_anybody=bool(there))


def _at_session(to: str, names: Names) -> Aim:
    session = names.find(to)
    if session is None:
        return Aim(to, code=_UNKNOWN_SESSION, message=f"there is no session {to}")
    if not session.takes_ptp:
        return _denied(to)
    return Aim(to, (session,))


def _at_one(
    destination: Destination,
    takers: tuple[Session, ...],
    load: Load,
    next_of: NextOf,
    *,
    is_anybody: bool,
    has_store: bool,
) -> Aim:
    """The one with the least to do. Where the store has some of the sessions the message goes through the queue, so that
    another one can have it when the first fails."""
    name = destination.to
    if not takers:
        return _at_nobody(destination, one_queue(name.subject), is_anybody=is_anybody)
    if has_store and any(session.durable is not None for session in takers):
        return Aim(name.relative, queue=one_queue(name.subject))
    least = min(map(load, takers))
    return Aim(name.relative, (next_of(each for each in takers if load(each) == least),))


def _at_nobody(destination: Destination, queue: str, *, is_anybody: bool) -> Aim:
    to, subject = destination.to.relative, destination.to.subject
    if subject == ANONYMOUS:
        return Aim(to, code=_UNKNOWN, message=f"{ANONYMOUS} is nobody's name: only single sessions of it can be meant")
    if destination.force_queuing:
        return Aim(to, queue=queue)
    if is_anybody:
        return _denied(to)
    return Aim(to, code=_UNKNOWN, message=f"no session of {subject} is there, and the message is not to be queued")


def _denied(to: str) -> Aim:
    return Aim(to, code=_DENIED, message=f"{to} takes no messages that are addressed to it")
