"""Whom a destination of a message means: sessions of this server, of other nodes, or the queue of a subject. Decides, and asks
nothing: what is known of other nodes is given."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from crewel.broker.addressing.session_names import Names
from crewel.broker.session import Session, stored_of
from crewel.qos.names import ANONYMOUS, one_queue, subject_queue
from crewel.qos.publish import Destination, Distribute
from crewel.storage.receivers import Receiver

NextOf = Callable[[Iterable[Session]], Session]

_DENIED: Final = "user.ptp.denied"
_UNKNOWN: Final = "user.ptp.unknownDestination"
_UNKNOWN_SESSION: Final = "user.ptp.unknownDestinationSession"
_NO_STORE: Final = "resource.unavailable"


class Route(NamedTuple):
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
    """Why no receiver gets it."""
    message: str = ""
    remote: tuple[Receiver, ...] = ()
    """Who gets it at other nodes."""


def without_store(one: Route) -> Route:
    """The route on a server without a store: a message that would have to wait is refused."""
    if not one.queue:
        return one
    return Route(one.to, code=_NO_STORE, message="this server has no store in which the message could wait")


def resolve_destination(
    destination: Destination,
    names: Names,
    next_of: NextOf,
    *,
    has_store: bool,
    remote: Sequence[Receiver] = (),
) -> Route:
    """Find out whom the destination means. `next_of` chooses among those with
    equally much, and `remote` are the sessions that it may mean at other nodes."""
    name = destination.to
    takers_there = tuple(each for each in remote if each.takes_ptp)
    if name.number:
        return _route_to_session(name.relative, names, remote, takers_there)
    there = names.of_subject(name.subject) if name.subject != ANONYMOUS else []
    takers = tuple(session for session in there if session.takes_ptp)
    if not (takers or takers_there):
        queue = one_queue if destination.distribute is Distribute.ONE else subject_queue
        return _unreachable(destination, queue(name.subject), is_anybody=bool(there or remote))
    if destination.distribute is Distribute.ONE:
        return _route_to_one(destination, takers, takers_there, next_of, has_store=has_store)
    return Route(name.relative, takers, subject_queue(name.subject), remote=takers_there)


def _route_to_session(to: str, names: Names, remote: Sequence[Receiver], takers_there: tuple[Receiver, ...]) -> Route:
    session = names.find(to)
    if session is None and not remote:
        return Route(to, code=_UNKNOWN_SESSION, message=f"there is no session {to}")
    if session is None:
        return Route(to, remote=takers_there) if takers_there else _denied(to)
    return Route(to, (session,)) if session.takes_ptp else _denied(to)


def _route_to_one(
    destination: Destination,
    takers: tuple[Session, ...],
    takers_there: tuple[Receiver, ...],
    next_of: NextOf,
    *,
    has_store: bool,
) -> Route:
    """The one with the least to do; of those at other nodes that is not known, so each of these is as good. Where the store has
    some of the sessions the message goes through the queue, so that another one can have it when the first fails."""
    to, subject = destination.to.relative, destination.to.subject
    if has_store and (stored_of(takers) or any(each.is_stored for each in takers_there)):
        return Route(to, queue=one_queue(subject))
    chosen = secrets.randbelow(len(takers) + len(takers_there)) if takers_there else 0
    if chosen >= len(takers):
        return Route(to, remote=(takers_there[chosen - len(takers)],))
    least = min(each.mailbox.view().depth for each in takers)
    return Route(to, (next_of(each for each in takers if each.mailbox.view().depth == least),))


def _unreachable(destination: Destination, queue: str, *, is_anybody: bool) -> Route:
    to, subject = destination.to.relative, destination.to.subject
    if subject == ANONYMOUS:
        return Route(to, code=_UNKNOWN, message=f"{ANONYMOUS} is not the name of a subject: give single sessions of it")
    if destination.force_queuing:
        return Route(to, queue=queue)
    if is_anybody:
        return _denied(to)
    return Route(to, code=_UNKNOWN, message=f"{to} has no session, and forceQueuing is not set")


def _denied(to: str) -> Route:
    return Route(to, code=_DENIED, message=f"{to} takes no messages that are addressed to it")
