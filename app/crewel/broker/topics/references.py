"""Which topics the queues refer to, and what a topic is at the moment of a request.

References are not counted while messages come and go: they are looked up when it matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.addressing.channels import Channels
from crewel.broker.addressing.consumer_groups import ConsumerGroups, joined_groups
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.handler_steps import resolve
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.topics.shares import Shares, TopicShare
from crewel.broker.topics.topic import Topic, TopicView
from crewel.delivery.batches import NO_BATCHES
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId, PendingMessage
from crewel.errors import StoreError, StoreUnavailable
from crewel.event_loop import Turns, in_turns, sorted_in_turns
from crewel.storage import histories
from crewel.storage.histories import History
from crewel.topics import Facts, State, joined, state_of

if TYPE_CHECKING:
    from crewel.broker.topics.topic_table import TopicTable


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
            counts.update(entry.channel for entry in self.in_memory(session) if not entry.is_notice)
        async for durable in in_turns(self._durables()):
            counts.update(waiting.channel for waiting in _open(durable))
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
        if session.mailbox.batches is not NO_BATCHES or session.mailbox.dispatcher is not NO_DISPATCHER:
            return session.mailbox.transients()
        return session.mailbox.queue


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


log = logging.getLogger(__name__)


@dataclass(eq=False)
class TopicViews:
    """What topics are at the moment of a request: their state, and what refers to them."""

    _runtime: Runtime
    _topics: TopicTable
    _queued: QueuedTopics
    _channels: Channels
    _groups: ConsumerGroups

    async def state(self, name: str) -> State:
        """The state of this topic, at all nodes."""
        shares = await self._shares(name)  # by then this node has read what others had answered before
        found = [] if shares is None else shares.found
        return joined([await self._state_here(name), *(share.state for share in found)])

    async def _shares(self, name: str) -> Shares | None:
        asked = self._runtime.cluster.shares(name)
        shares = None if asked is None else await asked
        if shares is not None and shares.unreached:
            log.warning("the references of %d other nodes to %s are not known", shares.unreached, name)
        return shares

    async def queued_here(self) -> Counter[str]:
        """How many messages of each topic wait for sessions of this node."""
        return await self._queued.queued()

    def share(self, name: str, counts: Mapping[str, int]) -> TopicShare:
        """What this node has of the topic, where so many messages of each topic wait for its sessions."""
        queued = counts.get(name, 0)
        topic, view = self._topics.find(name), self._view(name, {name: queued})
        return TopicShare(
            view.state,
            None if topic is None else topic.settings,
            queued,
            view.subscribers,
            view.receivers,
            view.groups,
            self._topics.endings.lets_go(name, queued),
        )

    async def _state_here(self, name: str) -> State:
        try:
            waits = await self._queued.is_queued(name)
        except StoreError as error:
            log.warning("messages in shared queues cannot be read: %s", error)
            waits = (await self._queued.queued())[name] > 0
        return state_of(self.facts(name, is_queued=waits))

    async def _counts(self) -> Counter[str]:
        try:
            return await self._queued.queued_anywhere()
        except StoreError as error:
            log.warning("messages in shared queues cannot be read: %s", error)
            return await self._queued.queued()

    def facts(self, name: str, *, is_queued: bool) -> Facts:
        """What the state of a topic follows from. A message in a queue brings back the topic that it is of, and so does a
        subscription to the name of one that was erased gently."""
        topic = self._topics.known.get(name)
        is_subscribed = name not in self._topics.endings.erasing and self._is_subscribed(name)
        if is_queued and (topic is None or (topic.is_erased and is_subscribed)):
            channel = channel_of(name)
            topic = self._topics.begin(channel, self._topics.usual(channel))
            topic.claims += 1
        is_visible = topic is not None and not topic.is_erased
        has_history = topic is not None and is_visible and topic.history_count > 0
        return Facts(is_visible, has_history, is_queued, is_subscribed)

    def _is_subscribed(self, name: str) -> bool:
        if self._channels.count(name):
            return True
        # A group's queue is named after its pattern; here only such groups are found whose pattern matches.
        queues = [queue for queue in self._groups.on(channel_of(name)) if queue.startswith(f"group:{name} ")]
        return any(not self._topics.endings.is_parting(queue) for queue in queues)

    async def of(self, name: str) -> TopicView | None:
        """All there is to say of this topic, its history as the store has it at this moment; None if there is no topic. Raises
        StoreUnavailable if another node, which has not answered, may have one."""
        shares = await self._shares(name)
        counts = await self._counts()
        topic = self._topics.find(name)
        if topic is not None and (topic.history_count or topic.settings.history_max):
            await self.count(topic)
        view = self._view(name, counts)
        if shares is not None:
            view = _with(view, shares, is_known=topic is not None)
        if view.state is not State.DEAD:
            return view
        if view.unreached:
            raise StoreUnavailable(f"this node has no topic {name}, and {view.unreached} other nodes did not answer")
        return None

    def count(self, topic: Topic) -> asyncio.Future[None]:
        """Let the store say what the history holds; what it has answered is known when the future is done."""
        done: asyncio.Future[None] = self._runtime.loop.create_future()

        def answered(answer: History | StoreError) -> None:  # at once, so that what was published after it counts too
            if isinstance(answer, StoreError):
                log.warning("the history of %s cannot be read: %s", topic.name, answer)
            else:
                topic.history_count, topic.epoch = answer.total, answer.epoch
                topic.newest = answer.entries[-1].id if answer.entries else topic.newest if answer.total else LogId(0)
            resolve(done, None)

        access, now = self._runtime.access, self._runtime.clock.microseconds()
        if not access.has_store:
            resolve(done, None)
        else:
            step = histories.history(access.keys, access.token, topic.name, newest=1, now=now)
            access.writing.submit(step, answered)
        return done

    async def all(self, *, with_shared: bool = True) -> list[TopicView]:
        """The views of all topics, by name; their histories as far as this server knows. `with_shared`: with messages in shared
        queues counts."""
        counts = await (self._counts() if with_shared else self._queued.queued())
        channels = self._channels
        subscribed = {name async for name in in_turns(channels) if channels.count(name) and _is_literal(name)}
        names = await sorted_in_turns({*self._topics.known, *subscribed, *counts})
        views = (self._view(name, counts) async for name in in_turns(names))
        return [view async for view in views if view.state is not State.DEAD]

    def _view(self, name: str, counts: Mapping[str, int]) -> TopicView:
        count = counts.get(name, 0)
        state = state_of(self.facts(name, is_queued=count > 0))
        topic, channel = self._topics.find(name) or Topic(name), channel_of(name)
        return TopicView(
            name,
            state,
            topic.settings,
            topic.epoch,
            topic.newest,
            topic.history_count,
            count,
            self._channels.count(name),
            len(self._channels.subscribers(channel)),
            [group for group in self._groups.states() if group.pattern in channel.patterns],
            self._topics.endings.dies_in_ms(topic) if state is State.UNREFERENCED else None,
        )


def _with(view: TopicView, answers: Shares, *, is_known: bool) -> TopicView:
    """The view, with what other nodes have. `is_known`: this node knows the settings."""
    shares = answers.found
    told = next((share.settings for share in shares if share.settings is not None), None)
    return replace(
        view,
        state=joined([view.state, *(share.state for share in shares)]),
        settings=view.settings if is_known or told is None else told,
        queued=view.queued + sum(share.queued for share in shares),
        subscribers=view.subscribers + sum(share.subscribers for share in shares),
        receivers=view.receivers + sum(share.receivers for share in shares),
        groups=joined_groups([view.groups, *(share.groups for share in shares)]),
        unreached=answers.unreached,
        failed=answers.failed,
    )


def _is_literal(name: str) -> bool:
    channel = channel_of(name)
    return not (channel.is_wildcard or channel.is_reply)
