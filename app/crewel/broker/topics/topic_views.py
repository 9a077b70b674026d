"""What a topic is at the moment of a request: its state, and what refers to it, at this node and at the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from crewel.broker.addressing.channels import Channels
from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.runtime import Runtime
from crewel.broker.topic import Topic
from crewel.broker.topic_view import Shares, TopicShare, TopicView, joined_groups
from crewel.broker.topics.references import QueuedTopics, channel_of
from crewel.broker.topics.topic_table import TopicTable
from crewel.errors import StoreError, StoreUnavailable
from crewel.event_loop import in_turns, sorted_in_turns
from crewel.topics import Facts, State, joined, state_of

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
            self._lets_go(name, queued),
        )

    def _lets_go(self, name: str, queued: int) -> bool:
        """Whether the topic, of which so many messages wait for sessions here, may end as far as this node knows. It may if
        nothing has referred to it for as long as its `destroyDelay`. What its history holds, the store tells the node that ends
        it."""
        topic = self._topics.find(name)
        if queued or self._channels.count(name) or (topic is not None and topic.is_fresh):
            return False
        return topic is None or topic.history_count > 0 or topic.is_due(self._runtime.loop.time())

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
        is_subscribed = name not in self._topics.erasing and self._is_subscribed(name)
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
        parting = self._topics.parting.values()
        return any(all(queue not in each for each in parting) for queue in queues)

    async def of(self, name: str) -> TopicView | None:
        """All there is to say of this topic, its history as the store has it at this moment; None if there is no topic. Raises
        StoreUnavailable if another node, which has not answered, may have one."""
        shares = await self._shares(name)
        counts = await self._counts()
        topic = self._topics.find(name)
        if topic is not None and (topic.history_count or topic.settings.history_max):
            await self._topics.count(topic)
        view = self._view(name, counts)
        if shares is not None:
            view = _with(view, shares, is_known=topic is not None)
        if view.state is not State.DEAD:
            return view
        if view.unreached:
            raise StoreUnavailable(f"this node has no topic {name}, and {view.unreached} other nodes did not answer")
        return None

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
            topic.dies_in_ms(self._runtime.loop.time()) if state is State.UNREFERENCED else None,
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
