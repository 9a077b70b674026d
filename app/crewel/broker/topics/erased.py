"""What sessions see of a topic that is erased: they are told, literal subscriptions end, and by force also what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import parse
from crewel.broker.sessions import Session
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, LogId
from crewel.delivery.update_qos import Origin

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["ERASED", "end_messages", "end_subscriptions", "tell"]

ERASED: Final = "ERASED"
"""The state in `ext.update` of the notice that a topic was erased."""


def tell(broker: Broker, name: str) -> None:
    """Tell the subscribers who are told the origin of messages, and want to know."""
    channel = parse(name)
    assert channel is not None
    entry = Entry({"channel": name, "data": None})
    entry.origin = Origin(*broker.ids.stamp(), state=ERASED)
    for session in broker.channels.subscribers(channel):
        is_told = session.dispatcher is not None and session.dispatcher.rules.tells
        if is_told and broker.subscribing.wants_notice(session, _subscription(session, channel.patterns)):
            broker.outbound.enqueue(session, entry)


def _subscription(session: Session, patterns: tuple[str, ...]) -> str:
    """The narrowest subscription by which the session hears a channel."""
    return next(pattern for pattern in reversed(patterns) if pattern in session.subscriptions)


def end_subscriptions(broker: Broker, name: str) -> None:
    """End the subscriptions to the very name of the topic; wildcards stay, and hear it when it begins anew."""
    for session in [each for each in broker.sessions.values() if name in each.subscriptions]:
        if session.durable is None or broker.durability is None:
            broker.channels.unsubscribe(session, name)
        else:
            done = broker.durability.membership.unsubscribe(session, session.durable, [name])
            done.add_done_callback(lambda each: each.exception())  # the membership itself goes on asking


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


def _places(durable: Durable, name: str) -> list[LogId]:
    """The places of the messages of this topic that are open for a session."""
    waiting = {**durable.open, **durable.inbox}
    return [place for place, each in waiting.items() if each.channel == name]
