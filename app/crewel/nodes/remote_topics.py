"""Topics at several nodes: what the others have of one, and that they know what has changed.

The log tells each node of changes; here a node that answers a client waits until the others have read that far. References to
a topic, subscriptions and the queues of sessions, are at each node: they are asked for when they matter.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from crewel.broker.handler_steps import resolve
from crewel.broker.runtime import Runtime
from crewel.broker.topic_view import Shares, TopicShare
from crewel.broker.topics.topic_changes import TopicChanges
from crewel.broker.topics.topic_views import TopicViews
from crewel.errors import NodeFailed, StoreUnavailable
from crewel.nodes.calls import Calls
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.node_requests import LOG, TOPIC, Nothing, OfTopic, TopicAnswer
from crewel.topics import USUAL

T = TypeVar("T")


class Looks(Generic[T]):
    """A look that takes long, for all that ask for it: one that begins answers all questions that came before."""

    def __init__(self, runtime: Runtime, look: Callable[[], Awaitable[T]]) -> None:
        self._runtime = runtime
        self._look = look
        self._next: asyncio.Future[T] | None = None
        self._is_looking = False

    async def ask(self) -> T:
        """What a look finds that begins from now on. Raises what it raises."""
        if self._next is None:
            self._next = self._runtime.loop.create_future()
        if not self._is_looking:
            self._is_looking = True
            self._runtime.spawn(self._go_on())
        return await asyncio.shield(self._next)  # one that asks no more does not end it for others

    async def _go_on(self) -> None:
        try:
            while (asked := self._next) is not None:
                self._next = None
                (found,) = await asyncio.gather(self._look(), return_exceptions=True)
                resolve(asked, found)
        finally:
            self._is_looking = False


class RemoteTopics:
    """The part of one node."""

    def __init__(
        self, runtime: Runtime, views: TopicViews, changes: TopicChanges, registry: NodeRegistry, calls: Calls
    ) -> None:
        self._runtime, self._access = runtime, runtime.access
        self._views, self._changes = views, changes
        self._registry = registry
        self._calls = calls
        self._reading = Looks(runtime, self._access.writing.probe)
        self._looking = Looks(runtime, self._queued)
        calls.serve(LOG, self._read_log)
        calls.serve(TOPIC, self._share)

    def caught_up(self) -> asyncio.Future[None]:
        """Wait until this node has taken all that others had published before."""
        return self._access.writing.probe()

    async def everywhere(self) -> None:
        """Wait until this node and all others have taken what is in the log now. One that does not answer takes it later."""
        others = (self._calls.ask(each.token, LOG, Nothing()) for each in self._registry.others())
        answers = await asyncio.gather(self._access.writing.probe(), *others, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, StoreUnavailable):
                raise answer

    def known_everywhere(self, done: asyncio.Future[Any], *, raises: bool) -> asyncio.Future[None]:
        """Done when this is done, and all nodes know what it was about. Raises what it raises, or nothing."""
        known: asyncio.Future[None] = self._runtime.loop.create_future()

        def answered(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is None:
                self._runtime.spawn(self._wait_for_all(known))
            else:
                resolve(known, error if raises else None)

        done.add_done_callback(answered)
        return known

    async def _wait_for_all(self, known: asyncio.Future[None]) -> None:
        try:
            await self.everywhere()
        finally:
            resolve(known, None)

    async def _read_log(self, _: Nothing) -> Nothing:
        await self._access.writing.probe()
        await self._changes.applied()
        return Nothing()

    async def shares(self, name: str) -> Shares:
        """What the other nodes have of the topic, when they and this one have read what was in the log."""
        asked = (self._calls.ask(each.token, TOPIC, OfTopic(name)) for each in self._registry.others())
        reading = self._reading.ask()
        shares = Shares()
        looked, *answers = list[Any](await asyncio.gather(reading, *asked, return_exceptions=True))
        if isinstance(looked, BaseException):
            raise looked
        for answer in answers:
            if isinstance(answer, TopicAnswer):
                shares.found.append(_share(answer))
            elif isinstance(answer, StoreUnavailable):
                shares.unreached += 1
                shares.failed += isinstance(answer, NodeFailed)
            else:
                raise answer
        return shares

    async def _queued(self) -> Counter[str]:
        await self._access.writing.probe()
        return await self._views.queued_here()

    async def _share(self, asked: OfTopic) -> TopicAnswer:
        share = self._views.share(asked.name, await self._looking.ask())
        settings = None if share.settings is None else share.settings.differing(USUAL)
        counts = share.queued, share.subscribers, share.receivers
        return TopicAnswer(share.state, settings, *counts, share.groups, share.lets_go)


def _share(answer: TopicAnswer) -> TopicShare:
    settings = None if answer.settings is None else USUAL.with_stored(answer.settings)
    counts = answer.queued, answer.subscribers, answer.receivers
    return TopicShare(answer.state, settings, *counts, answer.groups, answer.lets_go)
