"""Which topics the queues refer to. Nobody counts that while messages come and go: it is looked up when it matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.durability.access import StoreAccess
from crewel.broker.ptp.shared import SharedQueues
from crewel.broker.sessions import Session
from crewel.broker.turns import Turns
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.records import Waiting

_MOST_SHARED: Final = 10_000
"""Messages of one shared queue that are looked at."""
_AT_ONCE: Final = 500


class QueuedTopics:
    """Looks up which topics the queues refer to."""

    def __init__(
        self,
        shared: SharedQueues,
        access: StoreAccess,
        sessions: dict[str, Session],
    ) -> None:
        self._shared = shared
        self._access = access
        self._sessions = sessions

    def queued(self) -> Counter[str]:
        """How many messages of each channel wait for a session: in its queue, with its client, or in the store. Counted once
        for each session. What is for the server, or answers a request, is of no topic."""
        counts: Counter[str] = Counter()
        for _ in self._counting(counts):
            pass
        return _of_topics(counts)

    async def queued_anywhere(self) -> Counter[str]:
        """The same with what waits in shared queues, in the first thousands of each: the store has them. Others have their turn
        meanwhile. Raises StoreError."""
        counts: Counter[str] = Counter()
        turns = Turns()
        for queue in self._shared.names():
            async for entries in self._portions(queue):
                counts.update(entry.channel for entry in entries)
                await turns.rest()
        for _ in self._counting(counts):
            await turns.rest()
        return _of_topics(counts)

    def _counting(self, counts: Counter[str]) -> Iterator[None]:
        """Count session by session."""
        for session in list(self._sessions.values()):
            counts.update(entry.channel for entry in self.in_memory(session) if not entry.is_notice)
            yield
        for durable in self._durables():
            counts.update(waiting.channel for waiting in _open(durable))
            yield

    def _durables(self) -> list[Durable]:
        return list(self._access.node.sessions.values())

    async def is_queued(self, name: str) -> bool:
        """Whether a message of this channel waits for a session, or in a shared queue. Raises StoreError."""
        if not _is_topic(name):
            return False
        turns = Turns()
        for session in list(self._sessions.values()):
            if any(entry.channel == name and not entry.is_notice for entry in self.in_memory(session)):
                return True
            await turns.rest()
        for durable in self._durables():
            if any(waiting.channel == name for waiting in _open(durable)):
                return True
            await turns.rest()
        for queue in self._shared.names():
            if await self.is_in_queue(queue, name):
                return True
        return False

    async def is_in_queue(self, queue: str, name: str) -> bool:
        """Whether a message of this channel waits in the shared queue. Raises StoreError."""
        async for entries in self._portions(queue):
            if any(entry.channel == name for entry in entries):
                return True
        return False

    async def waits_in(self, queue: str, name: str) -> bool:
        """The same, or some session has a message of the channel from that queue, which may come back. Raises StoreError."""
        turns = Turns()
        for durable in self._durables():
            if any(each.source == queue and each.channel == name for each in durable.inbox.values()):
                return True
            await turns.rest()
        return await self.is_in_queue(queue, name)

    async def _portions(self, queue: str) -> AsyncIterator[list[Entry]]:
        """What waits in the shared queue, in portions. Raises StoreError."""
        for start in range(0, _MOST_SHARED, _AT_ONCE):
            entries = await self._shared.peek(queue, _AT_ONCE, start)
            if entries:
                yield entries
            if len(entries) < _AT_ONCE:
                return

    def in_memory(self, session: Session) -> Iterable[Entry]:
        """What waits for this session and is not known by its place in the store."""
        if session.batches is not None or session.dispatcher is not None:
            return session.transients()
        return session.queue


def _open(durable: Durable) -> Iterable[Waiting]:
    yield from durable.open.values()
    yield from durable.inbox.values()


def _of_topics(counts: Counter[str]) -> Counter[str]:
    return Counter({name: count for name, count in counts.items() if _is_topic(name)})


def _is_topic(name: str) -> bool:
    channel = parse(name)
    return channel is not None and channel.is_broadcast and not channel.is_reply


def channel_of(name: str) -> Channel:
    """The channel of a name that has been found valid before."""
    channel = parse(name)
    assert channel is not None
    return channel
