"""How topics end: by time, when nothing refers to them any more, or because an operator erases them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, Final

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.handler_steps import resolve
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.topic import Topic
from crewel.broker.topic_view import Shares
from crewel.broker.topics.erasure import TopicEraser
from crewel.broker.topics.references import QueuedTopics, channel_of
from crewel.broker.topics.topic_table import TopicTable
from crewel.broker.topics.topic_views import TopicViews
from crewel.delivery.records import LogId
from crewel.errors import StoreError, StoreUncertain
from crewel.event_loop import in_turns
from crewel.storage import histories
from crewel.storage.histories import Expired, History
from crewel.topics import State, state_of

log = logging.getLogger(__name__)

_LOOKED_AT: Final = 10_000
"""Topics that one sweep looks at; the next one looks at the others."""
_EXPIRED_AT_ONCE: Final = 1000
"""Messages in one step: others of the store's come in between."""
_ENDED_AT_ONCE: Final = 500
"""Topics about which other nodes are asked at the same time."""
_REST: Final = 50
"""Looking through the queues is rested from this many times as long as it took."""


@dataclass(eq=False)
class Endings:
    """Watches the topics of one server, and ends them."""

    _runtime: Runtime
    _topics: TopicTable
    _views: TopicViews
    _queued: QueuedTopics
    _addressing: Addressing
    eraser: TopicEraser
    """Parts sessions from topics that are erased."""
    _suspects: dict[Topic, None] = field(default_factory=dict, init=False)  # that may be without any reference
    _rests_until: float = field(default=0.0, init=False)
    _is_looking: bool = field(default=False, init=False)
    _is_expiring: bool = field(default=False, init=False)
    _ending: dict[Topic, None] = field(default_factory=dict, init=False)
    """Topics about which other nodes are asked now, or next."""
    _is_ending: bool = field(default=False, init=False)
    erased_at: dict[str, LogId] = field(default_factory=dict, init=False)
    """Where the log has the erasures of topics by this node that it has applied, until they are asked for."""

    def __post_init__(self) -> None:
        self._access, self._clock = self._runtime.access, self._runtime.clock
        self._channels, self._groups = self._addressing.channels, self._addressing.groups
        self._shared_queues = self._addressing.shared_queues
        self._erasing, self._parting = self._topics.erasing, self._topics.parting
        self._round: Iterator[Topic] = iter(())

    # By time

    def sweep(self) -> None:
        """Take what has expired out of histories, and look for topics that nothing refers to any more."""
        self._expire()
        now = self._runtime.loop.time()
        for topic in self._next():
            if self._is_suspect(topic, now):
                self._suspects[topic] = None
        if (self._suspects or self._parting) and self._rests_until <= now and not self._is_looking:
            self._is_looking = True
            self._runtime.spawn(self._sweep())

    async def _sweep(self) -> None:
        began = perf_counter()
        try:
            for name in list(self._parting):
                if name not in self._erasing:
                    await self._part_from_groups(name)
            if self._suspects:
                await self._check_topics(await self._queued.queued_anywhere())
        except StoreError as error:
            log.warning("messages in shared queues cannot be read: %s", error)
        finally:
            self._rests_until = self._runtime.loop.time() + (perf_counter() - began) * _REST
            self._is_looking = False

    async def _check_topics(self, counts: Mapping[str, int]) -> None:
        now = self._runtime.loop.time()
        suspects, self._suspects = self._suspects, {}
        async for topic in in_turns(suspects):
            if not topic.is_fresh:  # else a message has come since the queues were looked through
                self._check(topic, counts, now)

    def _next(self) -> Iterator[Topic]:
        """The next topics of the round; a new one begins when all have been looked at."""
        looked_at = list(islice(self._round, _LOOKED_AT))
        if not looked_at:
            self._round = iter(list(self._topics.known.values()))
            looked_at = list(islice(self._round, _LOOKED_AT))
        return iter(looked_at)

    def _is_suspect(self, topic: Topic, now: float) -> bool:
        """Whether only a queue can still refer to it, and that has to be found out now."""
        if topic.is_fresh:
            topic.is_fresh = False
            topic.unreferenced_at = None
            return False
        if topic.is_erased:
            return True
        if topic.history_count or self._channels.count(topic.name):
            topic.unreferenced_at = None
            return False
        return topic.unreferenced_at is None or topic.is_due(now)

    def _check(self, topic: Topic, counts: Mapping[str, int], now: float) -> None:
        if self._topics.known.get(topic.name) is not topic:
            return  # it has ended, or was made again
        facts = self._views.facts(topic.name, is_queued=counts.get(topic.name, 0) > 0)
        state = state_of(facts)
        if state is State.DEAD:
            self._topics.forget(topic)  # it was erased, and the last queue has let go of it
        elif state is not State.UNREFERENCED:
            topic.unreferenced_at = None
        else:
            if topic.unreferenced_at is None:
                topic.unreferenced_at = now
            if topic.is_due(now):
                self._end(topic)

    def _end(self, topic: Topic) -> None:
        """End a topic whose time has ended. Where there may be a history, the store says whether it is empty: a publish of
        which the answer was lost is not counted here."""
        access = self._access
        if not access.has_store or not (topic.is_stored or topic.epoch or topic.settings.history_max):
            self._topics.forget(topic)
        elif access.trouble is None and self._runtime.cluster.is_single:
            self._ask_to_end(topic)
        elif access.trouble is None:
            self._ending[topic] = None
            if not self._is_ending:
                self._is_ending = True
                self._runtime.spawn(self._end_all())

    async def _end_all(self) -> None:
        """End the topics whose time has ended, as far as no other node needs them. It does a portion of them at a time, for
        each node looks through all its queues to answer."""
        try:
            while self._ending:
                portion = list(islice(self._ending, _ENDED_AT_ONCE))
                try:
                    await asyncio.gather(*map(self._end_if_unreferenced, portion))
                finally:
                    for topic in portion:
                        del self._ending[topic]
        finally:
            self._is_ending = False

    async def _end_if_unreferenced(self, topic: Topic) -> None:
        asked = self._runtime.cluster.shares(topic.name)
        shares = Shares() if asked is None else await asked
        # If a node cannot say it, the next sweep asks again. If the topic came back meanwhile, its time begins again.
        is_free = not shares.unreached and all(share.lets_go for share in shares.found)
        if is_free and topic.is_due(self._runtime.loop.time()):
            self._ask_to_end(topic)

    def _ask_to_end(self, topic: Topic) -> None:
        access = self._access
        step = histories.history(access.keys, access.token, topic.name, newest=0)
        access.writing.submit(step, partial(self._end_stored, topic))

    def _end_stored(self, topic: Topic, answer: History | StoreError) -> None:
        if isinstance(answer, StoreError):
            return  # the next sweep asks again
        topic.history_count = answer.total
        is_referenced = answer.total or topic.is_fresh or self._channels.count(topic.name)
        if self._topics.known.get(topic.name) is topic and not is_referenced:
            access = self._access
            kind, author = histories.ChangeKind.ENDED, self._runtime.cluster.author(access.token)
            step = histories.erase(access.keys, access.token, topic.name, access.facts_max, kind, author)
            access.writing.submit(step, lambda _: None, retries=True)
            self._topics.forget(topic)

    def ended_elsewhere(self, topic: Topic) -> None:
        """Another node has ended the topic, because nothing referred to it. If something does here by now, it begins again."""
        topic.is_stored = False
        topic.emptied()
        if topic.is_fresh or self._channels.count(topic.name):
            self._topics.store(topic)
        else:
            self._topics.forget(topic)

    def _expire(self) -> None:
        access = self._access
        if self._is_expiring or access.trouble is not None or access.writing.is_closed:
            return
        self._is_expiring = True
        now_ms = int(self._clock() * 1000)
        step = histories.expire(access.keys, access.token, now_ms, _EXPIRED_AT_ONCE, access.facts_max)
        access.writing.submit(step, self._expired, unordered=True)

    def _expired(self, answer: Expired | StoreError) -> None:
        self._is_expiring = False
        if isinstance(answer, StoreError):
            log.warning("expired messages could not be removed: %s", answer)
            return
        for name, removed, left in answer.shortened:
            if not name.startswith("/"):
                self._shared_queues.swept(name, removed, left)
            elif (topic := self._topics.find(name)) is not None:
                topic.history_count = left
        if answer.looked_at == _EXPIRED_AT_ONCE:
            self._expire()  # there may be more

    # By an operator, or an entitled client

    async def erase(self, name: str, *, force: bool) -> bool:
        """Erase a topic, False if there is none: its history goes, subscribers that asked for it receive a notice, and
        subscriptions to its very name end. The messages in queues are delivered, unless `force`: then it ends as well. Raises
        StoreError: if the store could not be asked at all, nothing was done."""
        if await self._views.state(name) is State.DEAD:
            return False
        topic = self._topics.known.get(name)
        if topic is not None:
            topic.is_erased = True  # what is published from now on makes it again
        self._erasing[name] += 1
        try:
            await self._erase(name, topic, force=force)
        finally:
            self._erasing -= Counter([name])
        return True

    async def _erase(self, name: str, topic: Topic | None, *, force: bool) -> None:
        try:
            until = await self._erase_stored(name, topic, force=force)
        except StoreError:
            if topic is not None and self._topics.known.get(name) is topic:
                topic.is_erased = False
            raise
        if (caught_up := self._runtime.cluster.caught_up()) is not None:
            await caught_up
            until = self.erased_at.pop(name, until)
        await self._part(name, topic, until, force=force)
        if (known := self._runtime.cluster.everywhere()) is not None:
            await known

    def erased_elsewhere(self, name: str, until: LogId, *, force: bool) -> Coroutine[Any, Any, None]:
        """Another node has erased the topic in the store, at this place of the log. What is returned does here what is left to
        do."""
        topic = self._topics.known.get(name) or self._remembered(name)
        topic.is_erased = True
        topic.emptied()
        topic.is_fresh, topic.is_marked = False, not force
        self._erasing[name] += 1
        return self._part_elsewhere(name, topic, until, force=force)

    async def _part_elsewhere(self, name: str, topic: Topic, until: LogId, *, force: bool) -> None:
        try:
            await self._part(name, topic, until, force=force)
        except StoreError as error:
            log.warning("the subscriptions to the erased topic %s could not all be ended: %s", name, error)
        finally:
            self._erasing -= Counter([name])

    def _remembered(self, name: str) -> Topic:
        """An erased topic that this node did not know, for its queued messages."""
        topic = self._topics.known[name] = Topic(name)
        topic.is_erased, topic.is_fresh = True, False
        return topic

    def part_late(
        self, name: str, until: LogId, sessions: Collection[Session], *, force: bool
    ) -> Coroutine[Any, Any, None]:
        """Part sessions from an erased topic that have come from a dead node, which may not have done it."""
        if name not in self._topics.known:
            self._remembered(name)
        return self._part_late(name, until, sessions, force=force)

    async def _part_late(self, name: str, until: LogId, sessions: Collection[Session], *, force: bool) -> None:
        if force:
            await self.eraser.end_messages(name, until)
        await self.eraser.end_subscriptions(name, self._groups.on(channel_of(name)), until, sessions)

    async def _part(self, name: str, topic: Topic | None, until: LogId, *, force: bool) -> None:
        """Part the sessions of this node from a topic that the store does not have any more."""
        self._parting[name] = set(self._groups.on(channel_of(name)))
        if force:
            # What one of these finds nowhere may be on its way to where the other has looked.
            while await self.eraser.end_shared(name, until) + await self.eraser.end_messages(name, until):
                pass
        await self.eraser.end_subscriptions(name, self._parting.get(name, ()), until)
        await self._part_from_groups(name)
        if topic is not None and not await self._queued.is_queued(name):
            self._topics.forget(topic)

    async def _part_from_groups(self, name: str) -> None:
        """Let the groups that receive the topic know that it was erased, when nothing of it waits for them any more."""
        for queue in list(self._parting.get(name, ())):
            if await self._queued.waits_in(queue, name):
                continue
            if queue in self._parting.get(name, ()):  # and it was not made again
                await self.eraser.leave_group(queue, name)
                self.stays_in(queue)
        if not self._parting.get(name):
            self._parting.pop(name, None)

    def stays_in(self, queue: str) -> None:
        """The group has parted, or has a new member: it is not about to part any more."""
        for queues in self._parting.values():
            queues.discard(queue)

    def _erase_stored(self, name: str, topic: Topic | None, *, force: bool) -> asyncio.Future[LogId]:
        """Erase what the store has. The future has the place up to which all that was published before has been taken when the
        store answers, and nothing that is published after; it raises StoreError."""
        done: asyncio.Future[LogId] = self._runtime.loop.create_future()
        access = self._access
        if not access.has_store:
            self._emptied(name, topic)
            resolve(done, LogId(0))
            return done
        kind = histories.ChangeKind.FORCED if force else histories.ChangeKind.ERASED
        author = self._runtime.cluster.author(access.token)
        step = histories.erase(access.keys, access.token, name, access.facts_max, kind, author)

        def answered(answer: int | StoreError) -> None:
            if isinstance(answer, StoreUncertain):
                access.writing.submit(step, answered, retries=True)  # it may be half done
            elif isinstance(answer, StoreError):
                resolve(done, answer)
            else:
                if not force and topic is not None:
                    topic.is_marked = True
                    if self._topics.known.get(name) is not topic:
                        self._topics.unmark(topic)
                self._emptied(name, topic)
                resolve(done, access.node.cursor)

        access.writing.submit(step, answered)
        return done

    def _emptied(self, name: str, topic: Topic | None) -> None:
        if topic is not None and self._topics.known.get(name) is topic:
            topic.emptied()
            topic.is_fresh = False
