"""Which topics the queues refer to. Nobody counts that while messages come and go: it is looked up when it matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.sessions import Session
from crewel.delivery.entry import Entry

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["MOST_SHARED", "channel_of", "queued", "queued_anywhere"]

MOST_SHARED: Final = 10_000
"""Messages of one shared queue that are looked at."""


def queued(broker: Broker) -> Counter[str]:
    """How many messages of each channel wait for a session: in its queue, with its client, or in the store. Counted once for
    each session. What is for the server, or answers a request, is of no topic."""
    counts: Counter[str] = Counter()
    for session in broker.sessions.values():
        for entry in _in_memory(broker, session):
            if not entry.is_notice:
                counts[entry.channel] += 1
    if broker.durability is not None:
        for durable in broker.durability.node.sessions.values():
            counts.update(waiting.channel for waiting in durable.open.values())
            counts.update(waiting.channel for waiting in durable.inbox.values())
    return Counter({name: count for name, count in counts.items() if _is_topic(name)})


async def queued_anywhere(broker: Broker) -> Counter[str]:
    """The same with what waits in shared queues, in the first thousands of each: the store has them. Raises StoreError."""
    counts: Counter[str] = Counter()
    for queue in broker.shared.names():
        counts.update(entry.channel for entry in await broker.shared.peek(queue, MOST_SHARED))
    return queued(broker) + Counter({name: count for name, count in counts.items() if _is_topic(name)})


def _is_topic(name: str) -> bool:
    channel = parse(name)
    return channel is not None and channel.is_broadcast and not channel.is_reply


def _in_memory(broker: Broker, session: Session) -> Iterable[Entry]:
    """What waits for this session and is not known by its place in the store."""
    if session.batches is not None or session.dispatcher is not None:
        return broker.dispatching.unsettled.transients(session)
    return session.queue


def channel_of(name: str) -> Channel:
    """The channel of a name that has been found valid before."""
    channel = parse(name)
    assert channel is not None
    return channel
