"""The tail of the log: what other nodes append reaches this one.

It waits at the end of the log. What has come is taken in the queue of writes, in its order: so an entry is taken once, and
strictly in the order of the log, from whichever node it comes. It does not wait for steps that have no place in that order,
such as commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from crewel.broker.handler_steps import resolve
from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId
from crewel.errors import StoreError
from crewel.storage.log_follower import LogFollower, Unread

_PAUSE_S: Final = 0.2  # after a read that has failed, and while there is nothing to wait for or too much to take
_MOST: Final = 10_000  # entries that are read and not taken yet


@dataclass(eq=False)
class ReadAhead:
    """The entries that lie between the cursor of a node and `read_to`, as far as they have been read and not taken."""

    node: LogConsumer | None = field(default=None, init=False)
    """The node; None while nothing is read ahead."""
    read_to: LogId = field(default=LogId(0), init=False)
    """All entries up to here have been read, or taken."""
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
        self.read_to = entries[-1].id
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
        assert self.node is not None
        entries, cursor = self._entries, self.node.cursor
        while entries and entries[0].id <= cursor:
            entries.popleft()
        return entries.popleft() if entries and entries[0].id <= last else None


@dataclass(eq=False)
class LogTail:
    """Follows the log while `is_wanted` is set: a server that has its store to itself knows all that is appended."""

    _access: StoreAccess
    _ahead: ReadAhead
    _take: Callable[[LogId], Awaitable[None] | None]
    """Takes what has been read ahead up to an id; what it returns must be waited for."""
    is_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _is_queued: bool = field(default=False, init=False)

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
                follower = follower or LogFollower(access.store)
                if self._ahead.node is not access.node or self._ahead.read_to < access.node.cursor:
                    self._ahead.begin(access.node)
                try:
                    await follower.follow(self._ahead.read_to, self._add)
                except StoreError:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            if follower is not None:
                follower.close()

    def _add(self, entries: list[Unread]) -> LogId | None:
        access, ahead = self._access, self._ahead
        if access.node is not ahead.node or access.trouble is not None or not self.is_wanted.is_set():
            return None
        if entries:
            ahead.add(entries)
            if not self._is_queued and ahead.read_to > access.node.cursor:
                self._is_queued = True
                access.writing.in_turn(self._reached, self._take)
        return None if len(ahead) > _MOST else ahead.read_to

    def _reached(self) -> LogId:
        self._is_queued = False
        return self._ahead.read_to
