"""Topics that are erased: what sessions see of it.

Literal subscriptions end, subscribers that asked for it get a notice, and by force the backlog ends as well. All of it is
done in portions: there may be many sessions, and much may wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from crewel.bayeux.channel import Channel
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.topics.references import QueuedTopics, channel_of
from crewel.broker.topics.topic_listeners import TopicsListener
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import EndReason, LogId
from crewel.event_loop import Turns, in_turns
from crewel.qos.names import group_of

log = logging.getLogger(__name__)

_SESSIONS_AT_ONCE: Final = 16
"""Sessions that get the notice before the store has answered for them."""
_ENDS_AT_ONCE: Final = 1000
"""Messages of one session that end in one step."""
_DISCARDED_AT_ONCE: Final = 500
"""Messages of a shared queue that end in one step of the store."""
_UNCOMMITTED: Final = 2000
"""Messages that have ended and are not committed yet."""


@dataclass(eq=False)
class TopicEraser:
    """Parts sessions from topics that are erased."""

    _runtime: Runtime
    _outbound: Outbound
    _addressing: Addressing
    _sessions: dict[str, Session]
    _queued: QueuedTopics
    _listener: TopicsListener

    def __post_init__(self) -> None:
        self._access = self._runtime.access
        self._channels, self._groups = self._addressing.channels, self._addressing.groups
        self._shared_queues = self._addressing.shared_queues

    async def end_subscriptions(
        self, name: str, groups: Iterable[str], until: LogId, among: Collection[Session] | None = None
    ) -> None:
        """End the subscriptions to the very name of the topic, and send a notice to the subscribers that asked for it. Wildcard
        subscriptions stay, and receive the next topic of this name. Members of these groups (by their queues) get the notice
        when the backlog of their group is empty: `leave_group`. Subscriptions that the store has had since a place beyond
        `until` stay: they are to the next topic of this name. `among`: only these sessions, if any are named."""
        await self._outbound.fan_outs.finished(name)  # what was published before the end is received before it
        channel = channel_of(name)
        members = {session for queue in groups for session in self._groups.members(queue)}
        under_way: list[asyncio.Future[None]] = []
        async for session in in_turns(self._channels.subscribers(channel)):
            since = 0 if session.durable is None else session.durable.since.get(name, 0)
            if since > until or (among is not None and session not in among):
                continue
            tells = session not in members and self._wants_notice(session, channel)
            under_way += self._part(session, name, ends=self._is_plain_subscriber(session, name), tells=tells)
            if len(under_way) >= _SESSIONS_AT_ONCE:
                await _answered(name, under_way)
                under_way = []
        await _answered(name, under_way)

    async def leave_group(self, queue: str, name: str) -> None:
        """The group has no backlog of the topic any more: its members get the notice, and if it is a group on this very name,
        they leave it."""
        of, channel = group_of(queue), channel_of(name)
        ends = of is not None and of[0] == name
        under_way: list[asyncio.Future[None]] = []
        for session in self._groups.members(queue):
            under_way += self._part(session, name, ends=ends, tells=self._wants_notice(session, channel))
        await _answered(name, under_way)

    def _is_plain_subscriber(self, session: Session, name: str) -> bool:
        """Whether the session is subscribed to this very name, and not as a member of a group."""
        return name in session.subscriptions and all(pattern != name for pattern, _ in self._groups.of(session))

    def _wants_notice(self, session: Session, channel: Channel) -> bool:
        """Whether the session receives the origin of messages, and asked for the notice that the topic was erased."""
        if not session.mailbox.view().rules.tells:
            return False
        hearing = [each for each in channel.patterns if each in session.subscriptions]
        return any(self._listener.wants_notice(session, each) for each in hearing)

    def _part(self, session: Session, name: str, *, ends: bool, tells: bool) -> list[asyncio.Future[None]]:
        """Part the session from the topic. What has to be waited for, raises StoreError."""
        if not session.is_live or not (ends or tells):
            return []
        waiting = self._listener.part(session, name, ends=ends, tells=tells)
        return [] if waiting is None else [waiting]

    async def end_messages(self, name: str, until: LogId) -> int:
        """End the messages of the topic that wait for a session, wherever they are; of those in the log, no later ones than
        this. Returns how many. Some are committed before others end."""
        await self._outbound.fan_outs.finished(name)
        turns, total, uncommitted = Turns(), 0, 0
        async for session in in_turns(self._sessions.values()):
            total += self._end_transients(session, name)
        async for durable in in_turns(self._access.node.sessions.values()):
            while places := _places(durable, name, until):
                self._end_stored(durable, places)
                total += len(places)
                uncommitted += len(places)
                if uncommitted >= _UNCOMMITTED:
                    await self._listener.committed()
                    uncommitted = 0
                await turns.rest()
        return total

    def _end_transients(self, session: Session, name: str) -> int:
        waiting = [each for each in self._queued.in_memory(session) if each.channel == name and not each.is_notice]
        if waiting:
            Ends(session.mailbox).end_messages((), waiting, EndReason.ERASED)
        return len(waiting)

    def _end_stored(self, durable: DurableSession, places: set[LogId]) -> None:
        session: Session | None = durable.connected
        if session is not None:
            Ends(session.mailbox).end_messages(places, (), EndReason.ERASED)
        else:
            durable.end_messages(places, EndReason.ERASED)
            self._access.node.mark_dirty(durable)

    async def end_shared(self, name: str, until: LogId) -> int:
        """End the messages of the topic up to this one that wait for a subject or a group; returns how many. Raises
        StoreError."""
        count = 0
        for queue in await self._shared_queues.stored():
            start = 0
            while entries := await self._shared_queues.peek(queue, _DISCARDED_AT_ONCE, start):
                places = [entry.position for entry in entries if entry.channel == name and entry.position <= until]
                ended = await self._shared_queues.discard(queue, places, EndReason.ERASED) if places else 0
                count += ended
                start += len(entries) - ended
        return count


async def _answered(name: str, under_way: list[asyncio.Future[None]]) -> None:
    for failure in await asyncio.gather(*under_way, return_exceptions=True):
        if failure is not None:
            log.warning("a subscription to the erased topic %s could not be ended: %s", name, failure)


def _places(durable: DurableSession, name: str, until: LogId) -> set[LogId]:
    """The places of messages of this topic that are open for a session, as many as end in one step."""
    found: set[LogId] = set()
    for waiting in (durable.pending, durable.inbox):
        for place, each in waiting.items():
            if each.channel == name and place <= until:
                found.add(place)
                if len(found) == _ENDS_AT_ONCE:
                    return found
    return found
