"""The tail of the log: what other nodes append reaches this one.

It waits at the end of the log. What has come is taken in the queue of writes, in its order. So an entry is taken once, and
strictly in the order of the log, from whichever node it comes. It does not wait for steps that have no place in that order,
such as commits.

To be woken costs more than to read a few entries. So while the log is busy, the tail pauses before it asks again, unless a
publish of this node waits for what others have appended before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from crewel.broker.handler_steps import resolve
from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId
from crewel.errors import StoreError
from crewel.metrics import Metrics
from crewel.settings import Settings
from crewel.storage.log_follower import LogFollower, Pause, Unread, id_of
from crewel.storage.log_replica import Replicas

_PAUSE_S: Final = 0.2  # after a read that has failed, and while there is nothing to wait for or too much to take
_MOST: Final = 10_000  # entries that are read and not taken yet
_PASSED_AT_ONCE: Final = 1000
_BUSY_S: Final = 0.05
"""Seconds between two answers with entries within which the log is busy. At 20 messages a second nothing waits."""
_MANY: Final = 64
"""Entries in one answer that are worth to be woken for: after so many, a pause would only be one more time to be woken."""


@dataclass(eq=False)
class ReadAhead:
    """The entries that lie between the cursor of a node and `read_to`, as far as they have been read and not taken."""

    node: LogConsumer | None = field(default=None, init=False)
    """The node; None while nothing is read ahead."""
    read_to: LogId = field(default=LogId(0), init=False)
    """All entries up to here have been read, or taken."""
    pause: Pause = field(default_factory=Pause, init=False)
    """Before the tail asks for more."""
    taken: int = field(default=0, init=False)
    """How many entries beyond the cursor were taken or passed over: those of other nodes."""
    _entries: deque[Unread] = field(default_factory=deque, init=False)
    _added: asyncio.Future[None] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, node: LogConsumer) -> None:
        """Begin at the cursor of this node. What has been read is forgotten: it counts no more, or will be read again."""
        self._entries.clear()
        self.node, self.read_to = node, node.cursor

    def add(self, entries: list[Unread]) -> None:
        """These follow."""
        self._entries += entries
        self.read_to = id_of(entries[-1])
        added, self._added = self._added, None
        if added is not None:
            resolve(added, None)

    def until_added(self) -> asyncio.Future[None]:
        """Done when more entries have been read."""
        if self._added is None:
            self._added = asyncio.get_running_loop().create_future()
        return self._added

    def next(self, last: LogId) -> Unread | None:
        """The next entry beyond the cursor and not beyond `last`; None if none has been read."""
        self._forget_taken()
        entries = self._entries
        if not entries or id_of(entries[0]) > last:
            return None
        self.taken += 1
        return entries.popleft()

    def pass_over(self, unheard: Mapping[bytes, str], last: LogId, passed: set[str]) -> LogId:
        """Leave out the next entries, not beyond `last`, as long as they are messages on channels of `unheard`, a thousand at
        most; `passed` gets the names of their channels. Returns the id of the last one, 0 if there was none."""
        self._forget_taken()
        entries, is_all, left = self._entries, self.read_to <= last, None
        count = len(entries)
        for _ in range(min(count, _PASSED_AT_ONCE)):
            entry = entries[0]
            fields = entry[1]
            name = unheard.get(fields[1])
            # A message that has b"w" as a value is looked at like any other: that is rare.
            if name is None or fields[0] != b"c" or b"w" in fields or not (is_all or id_of(entry) <= last):
                break
            passed.add(name)
            left = entries.popleft()
        self.taken += count - len(entries)
        return LogId(0) if left is None else id_of(left)

    def _forget_taken(self) -> None:
        """Leave out what the cursor has passed: entries of this node, most of them."""
        assert self.node is not None
        entries, cursor = self._entries, self.node.cursor
        while entries and id_of(entries[0]) <= cursor:
            entries.popleft()


class Pace:
    """When the log is asked again: after a pause if it is busy, and at once otherwise."""

    def __init__(self) -> None:
        self._answered_at = -inf

    def answered(self, now: float, count: int, pause_s: float) -> float:
        """An answer has come now, with so many entries. Returns the seconds until the next question: `pause_s`, or 0."""
        before, self._answered_at = self._answered_at, now
        return pause_s if now - before < _BUSY_S and count < _MANY else 0.0


@dataclass(eq=False)
class LogTail:
    """Follows the log while `is_wanted` is set: a server that has its store to itself knows all that is appended."""

    _access: StoreAccess
    _settings: Settings
    _ahead: ReadAhead
    _take: Callable[[LogId], Awaitable[None] | None]
    """Takes what has been read ahead up to an id; what it returns must be waited for."""
    _metrics: Metrics
    is_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _is_queued: bool = field(default=False, init=False)
    _pace: Pace = field(default_factory=Pace, init=False)

    async def run_forever(self) -> None:
        """Follow the log until cancelled."""
        follower: LogFollower | None = None
        try:
            while True:
                await self.is_wanted.wait()
                access = self._access
                if access.trouble is not None or len(self._ahead) > _MOST:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                follower = follower or self._follower()
                if self._ahead.node is not access.node or self._ahead.read_to < access.node.cursor:
                    self._ahead.begin(access.node)
                try:
                    await follower.follow(self._after, self._add)
                except StoreError:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            if follower is not None:
                follower.close()

    def _follower(self) -> LogFollower:
        store, replicas = self._access.store, None
        if self._settings.cluster.tails == "replica":
            replicas = Replicas(store, self._access.token, self._metrics.tail_replicas_left)
            self._metrics.gauge("tail_on_replica", lambda: replicas.current is not None)
        return LogFollower(store, self._ahead.pause, replicas)

    def _after(self) -> LogId | None:
        """After which entry to ask: what this node has appended and taken meanwhile need not come."""
        access, ahead = self._access, self._ahead
        if access.node is not ahead.node or access.trouble is not None or not self.is_wanted.is_set():
            return None
        ahead.read_to = max(ahead.read_to, access.node.cursor)
        return None if len(ahead) > _MOST else ahead.read_to

    def _add(self, entries: list[Unread]) -> float:
        access, ahead = self._access, self._ahead
        if access.node is not ahead.node or not entries:
            return 0.0
        ahead.add(entries)
        if not self._is_queued and ahead.read_to > access.node.cursor:
            self._is_queued = True
            access.writing.in_turn(self._reached, self._take)
        return self._pace.answered(
            asyncio.get_running_loop().time(), len(entries), self._settings.cluster.tail_ms / 1000
        )

    def _reached(self) -> LogId:
        self._is_queued = False
        return self._ahead.read_to
