"""How a node takes over the sessions of a dead one while it serves others (decision 0260).

The store moves them a slice at a time. A slice joins the engine in portions, each in one turn. It joins only when all has been
read that lies between the cursors of its sessions and the cursor of this node. So each entry of the log is open for a session,
or has ended, before a client can reach the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from crewel.bayeux.channel import Channel, parse
from crewel.broker.addressing.destinations import Destinations
from crewel.broker.durability.log_appender import LogAppender
from crewel.broker.runtime import Runtime
from crewel.broker.topics.topic_changes import TopicChanges
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import Logged, LogId, PendingMessage, SessionName, SessionRecord
from crewel.errors import StoreError, StoreUnavailable, StoreUncertain
from crewel.storage import log as stored_log
from crewel.storage import nodes, shared_queue_store
from crewel.storage.node_leases import Slice

log = logging.getLogger(__name__)

_AT_ONCE: Final = 100
"""Sessions of a slice: some milliseconds of the store."""
IN_ONE_TURN: Final = 10
"""Sessions of a portion: some milliseconds of the event loop. A publish waits for two of them and for a slice."""
_READ_AT_ONCE: Final = 1000


@dataclass(eq=False)
class Gap:
    """A part of the log, (after, until], which is read once for all slices. A busy log has far more entries than one slice
    wants, so each slice looks up its own."""

    after: LogId
    until: LogId
    _changes: list[Logged] = field(default_factory=list)
    _by_name: defaultdict[SessionName, list[Logged]] = field(default_factory=lambda: defaultdict(list))
    _by_pattern: defaultdict[str, list[Logged]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, after: LogId) -> None:
        """Begin again behind this entry."""
        self.after = self.until = after
        for found in (self._changes, self._by_name, self._by_pattern):
            found.clear()

    def add(self, entries: Iterable[Logged]) -> None:
        """These have been read."""
        for logged in entries:
            if logged.changed_by:
                self._changes.append(logged)
            elif logged.addressed:
                for name in shared_queue_store.addressed(logged):
                    self._by_name[name].append(logged)
            else:
                for pattern in _channel(logged).patterns:
                    self._by_pattern[pattern].append(logged)

    def entries(self, names: Iterable[SessionName], patterns: Iterable[str]) -> list[Logged]:
        """Return what may concern sessions with these names and these patterns, in the order of the log."""
        found = {each.id: each for each in self._changes}
        for name in names:
            found |= {each.id: each for each in self._by_name.get(name, ())}
        for pattern in patterns:
            found |= {each.id: each for each in self._by_pattern.get(pattern, ())}
        return [found[each] for each in sorted(found)]


class Heir(Protocol):
    """The node that takes sessions over."""

    def restore(self, record: SessionRecord, sent: dict[PendingMessage, PendingMessage]) -> DurableSession:
        """Give a session to the engine and to the broker. `sent` is shared by sessions that were sent the same."""

    def commit_soon(self) -> None:
        """Do not wait for the time of the next commit."""

    def committed(self) -> Awaitable[bool]:
        """Wait for the commit of all that has happened before; False if nothing is committed any more."""


@dataclass(eq=False)
class Inheritance:
    """The adoptions of one node."""

    _runtime: Runtime
    _appender: LogAppender
    _destinations: Destinations
    _changes: TopicChanges
    _heir: Heir
    finished: list[str] = field(default_factory=list, init=False)
    """Dead nodes of which no session is left, whose records still keep the log."""

    arriving: frozenset[SessionName] = field(default=frozenset(), init=False)
    """Names of the sessions that are this node's in the store already, and not in the engine yet."""

    def __post_init__(self) -> None:
        self._access = self._runtime.access

    async def next_slice(self, count: int, dead: Iterable[str], *, serves: bool = False) -> list[SessionRecord]:
        """Take the next sessions of dead nodes in the store, or of servers before this one; empty: there are no more. `serves`:
        from the answer on they are `arriving`, for logins. Raises StoreError, and then this node may own sessions that it does
        not know."""
        access = self._access

        def answered(moved: Slice | StoreError) -> Slice | StoreError:
            if serves and not isinstance(moved, StoreError):
                self.arriving = frozenset(record.name for record in moved.records)
            return moved

        moved: Slice = await access.writing.ask(
            self._runtime.cluster.adoption(access.keys, access.token, count, dead), then=answered
        )
        self.finished += [each for each in moved.finished if each not in self.finished]
        return moved.records

    async def take_over_dead(self, dead: Iterable[str] = ()) -> int:
        """Take over the sessions of all nodes that are dead by now; `dead` are so for certain. Returns how many sessions have
        come. Raises StoreError."""
        gap, count = Gap(LogId(0), LogId(0)), 0
        while not self._access.phase.is_reloading:  # else they would come to a node that is none any more
            records = list[SessionRecord]()
            try:
                records = await self.next_slice(_AT_ONCE, dead, serves=True)
                if not records:
                    break
                if not await self._bring_all_in(gap, records):
                    return count  # begun from the store meanwhile, with these sessions too
            except StoreError as error:
                if records or isinstance(error, StoreUncertain):
                    # The store has sessions of this node that memory lacks: it begins with what the store has, under
                    # another token.
                    self._access.lost(error)
                raise
            finally:
                self._have_arrived(self.arriving)
            count += len(records)
            self._heir.commit_soon()  # a commit of many sessions that have come would keep the store from the next publish
        if self.finished:
            await self.release()
        return count

    async def _bring_all_in(self, gap: Gap, records: list[SessionRecord]) -> bool:
        """Let the sessions of a slice be this node's, a portion in each turn; False if they are by another way. Raises
        StoreError."""
        node = self._access.node
        for start in range(0, len(records), IN_ONE_TURN):
            portion = records[start : start + IN_ONE_TURN]
            await asyncio.sleep(0)
            if (newest := newest_outside_log(portion)) > node.cursor:
                # In an inbox, from a third node: it may not be delivered before what the log has in front of it.
                await self._access.writing.probe()
                if self._access.node is node and newest > node.cursor:
                    raise StoreUnavailable("the log cannot be read at the moment")
            await self._read(gap, min(record.own_cursor or LogId(0) for record in portion))
            if self._access.node is not node:
                return False
            self._bring_in(gap, portion)
            names = [record.name for record in portion]
            self._have_arrived(names)
            self._runtime.cluster.sessions_came(names)
        return True

    def _have_arrived(self, names: Iterable[SessionName]) -> None:
        """These sessions are this node's, or another attempt will bring them."""
        names = frozenset(names)
        self.arriving -= names
        self._access.changed(names)

    async def release(self) -> None:
        """Let the log go that the dead nodes' records have kept, once their sessions are in a commit of this node. If no commit
        comes any more, these records keep it for the next heir."""
        finished, self.finished = self.finished, []
        if not await self._heir.committed():
            self.finished += finished
            return
        access = self._access
        try:
            await access.writing.ask(nodes.release(access.keys, access.token, finished))
        except StoreError:
            self.finished += finished
            raise

    async def _read(self, gap: Gap, after: LogId) -> None:
        """Read what lies between there and the cursor of this node, whatever comes meanwhile. A message that is just being
        handed to many receivers in steps is not for sessions that come in between: wait for its end, which moves the cursor."""
        access = self._access
        if not gap.until or after < gap.after:
            gap.begin(after)
        while gap.until < (target := access.node.cursor) or self._appender.is_in_steps:
            if gap.until >= target:
                await asyncio.sleep(0)
                continue
            entries = await stored_log.read(access.store, gap.until, _READ_AT_ONCE)
            cursor = access.node.cursor
            taken = [each for each in entries if each.id <= cursor]
            gap.add(taken)
            is_all = len(entries) < _READ_AT_ONCE or len(taken) < len(entries)
            gap.until = max(target if is_all else gap.until, taken[-1].id if taken else gap.until)

    def _bring_in(self, gap: Gap, records: list[SessionRecord]) -> None:
        """Let the sessions of a portion be this node's, in one turn."""
        same: dict[Any, Any] = {}
        durables = [self._heir.restore(record, same) for record in records]
        by_pattern: dict[str, list[DurableSession]] = {}
        for durable in durables:
            for pattern in {*durable.since, *(pattern for pattern, _, _ in durable.closing)}:
                by_pattern.setdefault(pattern, []).append(durable)
        by_name = {durable.name: durable for durable in durables}
        for logged in gap.entries(by_name, by_pattern):
            if logged.changed_by:
                self._changes.arrive_late(durables, logged)
                continue
            if logged.addressed:
                self._destinations.take_addressed(logged, by_name)
                continue
            channel = _channel(logged)
            found = {each: None for pattern in channel.patterns for each in by_pattern.get(pattern, ())}
            takers = [each for each in found if each.wants(channel.patterns, logged.id)]
            if takers:
                self._appender.take_late(takers, channel, logged)
        for durable in durables:
            durable.place_notices()  # behind what was missed, too


def newest_outside_log(records: Iterable[SessionRecord]) -> LogId:
    """The newest id in the inboxes of these sessions; 0 if all are empty."""
    return max((max(record.inbox, default=LogId(0)) for record in records), default=LogId(0))


def _channel(logged: Logged) -> Channel:
    channel = parse(logged.channel)
    assert channel is not None
    return channel
