"""Topics that change at any node: the log notes it, and every node applies it, in the order of the log.

So a message that lies behind a change finds the topic as it is then, at each node. A node applies its own changes when it asks
for them, and once more when the log has them. Of two that cross, the later one in the log counts everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from crewel.broker.runtime import Runtime
from crewel.broker.topics.endings import Endings
from crewel.broker.topics.topic_table import TopicTable
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import Logged
from crewel.storage import histories
from crewel.storage.histories import ChangeKind, TopicChange


@dataclass(eq=False)
class TopicChanges:
    """What one node does about changes of topics."""

    _runtime: Runtime
    _topics: TopicTable
    _endings: Endings
    _partings: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._access = self._runtime.access

    def take(self, logged: Logged) -> None:
        """The log has this change."""
        change = histories.change_of(logged)
        match change.kind:
            case ChangeKind.CONFIGURED | ChangeKind.CLEARED:
                self._topics.learn(change)
            case ChangeKind.ERASED | ChangeKind.FORCED:
                self._erased(change)
            case ChangeKind.ENDED:
                self._ended(change)

    def arrive_late(self, durables: list[DurableSession], logged: Logged) -> None:
        """Sessions of a dead node have come, and the log had this change after the last commit of that node."""
        change = histories.change_of(logged)
        if change.kind not in (ChangeKind.ERASED, ChangeKind.FORCED):
            return
        sessions = [each.connected for each in durables if each.connected is not None and change.id > each.own_cursor]
        if sessions:
            is_forced = change.kind == ChangeKind.FORCED
            self._spawn(self._endings.part_late(change.channel, change.id, sessions, force=is_forced))

    def _spawn(self, parting: Coroutine[Any, Any, None]) -> None:
        task = self._runtime.spawn(parting)
        self._partings.add(task)
        task.add_done_callback(self._partings.discard)

    def _erased(self, change: TopicChange) -> None:
        if change.by != self._access.token:
            is_forced = change.kind == ChangeKind.FORCED
            self._spawn(self._endings.erased_elsewhere(change.channel, change.id, force=is_forced))
            return
        if change.channel in self._topics.erasing:
            self._endings.erased_at[change.channel] = change.id
        topic = self._topics.find(change.channel)
        if topic is not None and 0 < topic.changed_at < change.id:
            self._topics.forget(topic)  # an earlier change of this node had come back after the topic had been erased

    def _ended(self, change: TopicChange) -> None:
        topic = self._topics.find(change.channel)
        if topic is not None and change.by != self._access.token:
            self._endings.ended_elsewhere(topic)

    async def applied(self) -> None:
        """Wait until what has been taken of the log is done."""
        if self._partings:
            await asyncio.wait(self._partings)
