"""What sessions see of a topic that is erased: they are told, literal subscriptions end, and by force also what waits."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crewel.broker.sessions import Session
from crewel.broker.topics.references import MOST_SHARED, channel_of
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, LogId
from crewel.delivery.update_qos import Origin
from crewel.storage.shared_queues import MOST_DISCARDED

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["ERASED", "end_messages", "end_shared", "end_subscriptions", "tell"]

ERASED: Final = "ERASED"
"""The state in `ext.update` of the notice that a topic was erased."""


def tell(broker: Broker, name: str) -> None:
    """Tell the subscribers who are told the origin of messages, and want to know."""
    patterns = channel_of(name).patterns
    entry = Entry({"channel": name, "data": None})
    entry.origin = Origin(*broker.ids.stamp(), state=ERASED)
    for session in list(broker.sessions.values()):
        if session.dispatcher is not None and session.dispatcher.rules.tells and _wants(broker, session, patterns):
            broker.outbound.enqueue(session, entry)


def _wants(broker: Broker, session: Session, patterns: Iterable[str]) -> bool:
    hearing = [each for each in patterns if each in session.subscriptions]
    return any(broker.subscribing.wants_notice(session, each) for each in hearing)


def end_subscriptions(broker: Broker, name: str) -> list[Future[None]]:
    """End the subscriptions to the very name of the topic; wildcards stay, and hear it when it begins anew. Those of stored
    sessions have ended when the futures are done; they raise StoreError."""
    under_way = []
    for session in [each for each in broker.sessions.values() if name in each.subscriptions]:
        if session.durable is None or broker.durability is None:
            broker.subscribing.leave(session, name)
        else:
            under_way.append(broker.durability.membership.unsubscribe(session, session.durable, [name]))
    return under_way


def end_messages(broker: Broker, name: str) -> None:
    """End all messages of the topic that wait for a session, wherever they are."""
    for session in list(broker.sessions.values()):
        unsettled = broker.dispatching.unsettled
        waiting = [each for each in unsettled.transients(session) if each.channel == name and not each.is_notice]
        for entry in waiting:
            unsettled.end(session, entry, EndReason.ERASED)
        session.queue = [entry for entry in session.queue if entry not in waiting]
        if session.durable is not None:
            for place in _places(session.durable, name):
                unsettled.drop_stored(session, place, EndReason.ERASED)
        unsettled.note_retained(session)
    if broker.durability is not None:
        node = broker.durability.node
        for durable in [each for each in node.sessions.values() if each.holder is None]:
            for place in _places(durable, name):
                durable.settle(place, EndReason.ERASED)
                node.touch(durable)


async def end_shared(broker: Broker, name: str) -> None:
    """End the messages of the topic that wait for a subject or a group. Raises StoreError."""
    for queue in broker.shared.names():
        waiting = await broker.shared.peek(queue, MOST_SHARED)
        places = [entry.position for entry in waiting if entry.channel == name]
        for start in range(0, len(places), MOST_DISCARDED):
            await broker.shared.discard(queue, places[start : start + MOST_DISCARDED], EndReason.ERASED)


def _places(durable: Durable, name: str) -> list[LogId]:
    """The places of the messages of this topic that are open for a session."""
    waiting = {**durable.open, **durable.inbox}
    return [place for place, each in waiting.items() if each.channel == name]
