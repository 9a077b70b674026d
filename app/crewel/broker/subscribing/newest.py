"""Subscriptions that want the newest message of a channel only: what still waits gives way to it."""

from __future__ import annotations

from crewel.broker.outbox.unsettled import Unsettled
from crewel.broker.sessions import Session
from crewel.delivery.durable import Durable
from crewel.delivery.records import EndReason, LogId


def outdate(unsettled: Unsettled, session: Session, channel: str, newest: LogId) -> None:
    """Take out of what waits for the session all earlier messages of this channel. What its client has got stays; `newest`
    is the place of the one that comes now, 0 if it has none."""
    durable = session.durable
    if not session.queue and (durable is None or not durable.open):
        return
    if durable is not None:
        for place in _waiting(session, durable, channel, newest):
            unsettled.drop_stored(session, place, EndReason.FILTERED)
    is_stored = durable is not None
    for entry in [each for each in session.queue if each.channel == channel and not each.to]:
        if is_stored and entry.position:
            continue  # settled above, or redriven
        unsettled.end(session, entry, EndReason.FILTERED)
        session.drop(entry)


def _waiting(session: Session, durable: Durable, channel: str, newest: LogId) -> list[LogId]:
    """The places of the stored ones: open, and not at the client."""
    sent = {each.position for each in session.batches.unacknowledged} if session.batches is not None else set()
    if session.dispatcher is not None:
        sent |= {entry.position for entry, _ in session.dispatcher.open.values()}
    sent -= {entry.position for entry in session.queue}  # those go out again
    return [
        place
        for place, waiting in durable.open.items()
        if waiting.channel == channel and place != newest and place not in sent
    ]
