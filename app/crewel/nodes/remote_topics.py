"""Topics at several nodes: what the others have of one, and that they know what has changed.

The log tells each node of changes; here a node that answers a client waits until the others have read that far. References to
a topic, subscriptions and what waits for sessions, are at each node: they are asked for when they matter.
"""

from __future__ import annotations

import asyncio

from crewel.broker.durability.access import StoreAccess
from crewel.broker.topics.references import TopicShare
from crewel.broker.topics.topic_table import TopicTable
from crewel.errors import StoreUnavailable
from crewel.nodes.calls import Calls, Fields
from crewel.nodes.node_registry import NodeRegistry


class RemoteTopics:
    """The part of one node."""

    def __init__(self, access: StoreAccess, topics: TopicTable, registry: NodeRegistry, calls: Calls) -> None:
        self._access = access
        self._topics = topics
        self._registry = registry
        self._calls = calls
        calls.answers["log"] = self._read_log
        calls.answers["topic"] = self._share
        topics.changes.everywhere = self._everywhere
        topics.views.elsewhere = self._shares

    async def _everywhere(self) -> None:
        """Wait until this node and all others have taken what is in the log now. One that does not answer takes it later."""
        others = (self._calls.ask(each.token, "log", {}) for each in self._registry.others())
        answers = await asyncio.gather(self._access.writing.probe_and_wait(), *others, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, StoreUnavailable):
                raise answer

    async def _read_log(self, _: Fields) -> Fields:
        await self._access.writing.probe_and_wait()
        await self._topics.changes.applied()
        return {}

    async def _shares(self, name: str) -> list[TopicShare]:
        """What the other nodes have of the topic, when they and this one have read what was in the log. Raises
        StoreUnavailable if one of them does not say it."""
        asked = (self._calls.ask(each.token, "topic", {"name": name}) for each in self._registry.others())
        looking = self._access.writing.probe_and_wait()
        told = await asyncio.gather(*asked)
        await looking
        return [TopicShare.read(each) for each in told]

    async def _share(self, asked: Fields) -> Fields:
        await self._access.writing.probe_and_wait()
        return (await self._topics.views.share(asked["name"])).as_json()
