"""Which topics the queues refer to.

References are not counted while messages come and go: they are looked up when it matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import PendingMessage
from crewel.event_loop import Turns, in_turns

_MOST_SHARED: Final = 10_000
"""Messages of one shared queue that are looked at."""
_AT_ONCE: Final = 500


@dataclass(eq=False)
class QueuedTopics:
    """Looks up which topics the queues refer to, session by session with turns for others: each may have many messages."""

    _runtime: Runtime
    _shared_queues: SharedQueues
    _sessions: dict[str, Session]

    async def queued(self) -> Counter[str]:
        """How many messages of each channel wait for a session: in its queue, with its client, or in the store. Counted once
        for each session. What is for the server, or answers a request, is of no topic."""
        counts: Counter[str] = Counter()
        async for session in in_turns(self._sessions.values()):
            for entry in self.in_memory(session):
                if not entry.is_notice:
                    counts[entry.channel] += 1
        async for durable in in_turns(self._durables()):
            for waiting in _open(durable):
                counts[waiting.channel] += 1
        return _of_topics(counts)

    async def queued_anywhere(self) -> Counter[str]:
        """How many messages of each channel wait for sessions or in shared queues; of each shared queue only the first
        thousands count, because the store has them. Raises StoreError."""
        counts: Counter[str] = Counter()
        turns = Turns()
        for queue in await self._shared_queues.stored():
            async for entries in self._portions(queue):
                counts.update(entry.channel for entry in entries)
                await turns.rest()
        return _of_topics(counts) + await self.queued()

    def _durables(self) -> list[DurableSession]:
        return list(self._runtime.access.node.sessions.values())

    async def is_queued(self, name: str) -> bool:
        """Whether a message of this channel waits for a session, or in a shared queue. Raises StoreError."""
        if not _is_topic(name):
            return False
        async for session in in_turns(self._sessions.values()):
            if any(entry.channel == name and not entry.is_notice for entry in self.in_memory(session)):
                return True
        async for durable in in_turns(self._durables()):
            if any(waiting.channel == name for waiting in _open(durable)):
                return True
        for queue in await self._shared_queues.stored():
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
        """Whether a message of this channel waits in the shared queue, or some session has one that may come back to it.
        Raises StoreError."""
        async for durable in in_turns(self._durables()):
            if any(each.source == queue and each.channel == name for each in durable.inbox.values()):
                return True
        return await self.is_in_queue(queue, name)

    async def _portions(self, queue: str) -> AsyncIterator[list[Entry]]:
        """The messages in the shared queue, in portions. Raises StoreError."""
        for start in range(0, _MOST_SHARED, _AT_ONCE):
            entries = await self._shared_queues.peek(queue, _AT_ONCE, start)
            if entries:
                yield entries
            if len(entries) < _AT_ONCE:
                return

    def in_memory(self, session: Session) -> Iterable[Entry]:
        """The messages that wait for this session and are not known by a place in the store."""
        return session.mailbox.view().in_memory()


def _open(durable: DurableSession) -> Iterable[PendingMessage]:
    yield from durable.pending.values()
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
