"""Which nodes share the store, and what to do when one of them dies: its sessions are taken over (decision 0260).

What is known is as old as the last look: a third of a lease, or a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Final

from crewel import processes
from crewel.broker.durability.durability import Durability
from crewel.broker.ids import elapsed
from crewel.broker.node_tags import tag_of
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import StoreError
from crewel.event_loop import woken
from crewel.metrics import Metrics
from crewel.storage import nodes
from crewel.storage.nodes import Members, Node

log = logging.getLogger(__name__)

_LOOKS: Final = 3  # in the time that a lease lasts
_SHORTEST_PAUSE_S: Final = 0.02  # however many are in a hurry
_HEIR_FIRST_S: Final = 0.3  # the heir takes over at once, unless it has ended or hangs
_LONGEST_PAUSE_S: Final = 1.0  # a process that has ended on this machine is seen before its lease ends


class NodeRegistry:
    """What one node knows of the others."""

    def __init__(self, access: StoreAccess, durability: Durability, metrics: Metrics, lease_s: float) -> None:
        self._access = access
        self._durability = durability
        self.lease = durability.lease
        self._metrics = metrics
        metrics.gauge("nodes", lambda: len(self.others()) + 1)
        self._looked_at = -inf
        self._dead: frozenset[str] = frozenset()  # tokens of those whose process has ended for certain
        self._gave_up: frozenset[str] = frozenset()  # tokens of those that serve no more, until the next look
        self._left: frozenset[str] = frozenset()  # tokens of those that said that they end, while the store knows them
        self._pause_s = min(lease_s / _LOOKS, _LONGEST_PAUSE_S)
        self._hurry = asyncio.Event()
        self._processes = processes.Watch()
        self._told: set[str] = set()
        self.members = Members({}, {})
        self.steady: Mapping[str, Node] = {}
        """The other nodes that live, by each tag whose sessions they have."""
        self.leaving: frozenset[int] = frozenset()
        """Processes of this machine that have ended or are about to, and whose sessions will be taken over."""
        self.gives_way = False
        """Whether another node is to be the heir of those that leave: this one takes over only what that one has not begun."""
        self.heir: Node | None = None
        """The node that has the sessions of this one, which has lost its lease and has not begun again."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each look."""
        self.on_take_over: list[Callable[[int, list[str], bool], None]] = []
        """Called when this node has taken over so many sessions of dead nodes, whose names these are; and whether all of them
        ended as planned."""

    @property
    def own(self) -> str:
        """The token of this node."""
        return self._access.token

    def owner(self, tag: str) -> Node | None:
        """The node that has the sessions with this tag; None if there is none. It may be dead."""
        return self.members.nodes.get(self.members.tags.get(tag, ""))

    def others(self) -> list[Node]:
        """The other nodes that live."""
        return [each for each in self.members.nodes.values() if self.lives(each) and each.token != self.own]

    def lives(self, node: Node) -> bool:
        """Whether this node lives, as far as is known."""
        return node.lives and node.token not in self._dead

    def stays(self, node: Node) -> bool:
        """Whether it lives, and is not about to end."""
        return self.lives(node) and not (self.leaving and self.leaves(node))

    def has_gone(self, token: str) -> bool:
        """Whether no node with this token is known to live. The heir of this node is known to another node only, which can
        reach the store."""
        if self.heir is not None and token == self.heir.token:
            return False
        node = self.members.nodes.get(token)
        return node is None or not self.lives(node)

    def heir_of(self, token: str) -> Node | None:
        """The node that has the sessions of a node that is dead, or has been; None if that one may live, as far as is known."""
        node = self.members.nodes.get(token)
        if node is None:
            return self.owner(tag_of(token))
        return self.members.nodes.get(node.heir) if node.heir else None

    def has_looked(self, since: float) -> bool:
        """Whether what is known was asked for after this moment, by `elapsed`."""
        return self._looked_at > since

    def leaves(self, node: Node) -> bool:
        """Whether the node is known to end, so that its sessions will soon be another one's."""
        process = node.process
        return process is not None and process.pid in self.leaving and process.is_here

    def hurry(self) -> None:
        """Look at once: a node may have died."""
        self._hurry.set()

    def gave_up(self, token: str) -> None:
        """The node with this token reports that it serves its sessions no more: the next look takes them over."""
        self._gave_up |= {token}

    def left(self, token: str) -> None:
        """The node with this token reports that it ends, and has given up its sessions: the next look takes them over."""
        self._left |= {token}
        self.hurry()

    async def run_forever(self) -> None:
        """Look again and again, until cancelled."""
        try:
            while True:
                with suppress(StoreError):
                    await self.refresh()
                pause = self._pause()
                until = elapsed() + pause
                await woken(self._hurry, pause)
                if elapsed() < until:
                    await asyncio.sleep(_SHORTEST_PAUSE_S)
        finally:
            self._processes.keep(())

    def _pause(self) -> float:
        """Seconds until the next look: not later than the first lease of another node ends, unless it is renewed."""
        since = elapsed() - self._looked_at
        left = [each.lasts - since for each in self.others()]
        return min([self._pause_s, *(each for each in left if each > 0)])  # what is past was looked at, or cannot be

    async def refresh(self) -> None:
        """Ask the store which nodes there are, and take over the sessions of dead ones. Raises StoreError."""
        access, durability = self._access, self._durability
        if access.phase.is_reloading:
            return
        asked = elapsed()
        self.know(await access.writing.ask(nodes.members(access.keys), unordered=True))
        self._log_changes()
        follows = durability.tail.is_wanted
        if self.others():
            follows.set()
        gave_up, self._gave_up = self._gave_up.intersection(each.token for each in self.others()), frozenset()
        dead = await self._ended()
        self.know(self.members, dead)
        dead |= gave_up
        has_dead = dead or any(not each.lives and each.token != self.own for each in self.members.nodes.values())
        if has_dead:
            if self.gives_way:
                await asyncio.sleep(_HEIR_FIRST_S)
            gone = [each for each in self.members.nodes.values() if not self.lives(each) or each.token in dead]
            count = await durability.inheritance.take_over_dead(dead)
            if count:
                self._took_over(count, gone)
            self.know(await access.writing.ask(nodes.members(access.keys), unordered=True))
        if not self.others() and (has_dead or follows.is_set()):
            follows.clear()
            access.writing.probe()  # for the last that they have appended, which the tail may not have read
        self._left &= self.members.nodes.keys()
        self._looked_at = asked
        self.changed()

    def _took_over(self, count: int, gone: list[Node]) -> None:
        """So many sessions have come from these nodes, or from one that died after the last look."""
        names = sorted({each.name for each in gone})
        is_planned = bool(gone) and self._left.issuperset(each.token for each in gone)
        for taken in self.on_take_over:
            taken(count, names, is_planned)
        self._metrics.inherited_sessions += count
        if is_planned:  # which needs no operator
            log.info("took over %d sessions of a node that has ended", count)
        else:
            log.warning("took over %d sessions of a dead node", count)

    def changed(self) -> None:
        """Something is known that was not."""
        for changed in self.on_change:
            changed()

    def know(self, members: Members, dead: frozenset[str] = frozenset()) -> None:
        """The store has these nodes, and the processes of those with the tokens in `dead` have ended for certain."""
        self.members, self._dead = members, self._dead | dead
        lives = {each.token for each in self.others()}
        self.steady = {tag: members.nodes[token] for tag, token in members.tags.items() if token in lives}

    def _log_changes(self) -> None:
        lives = {each.token for each in self.others()}
        for each in self.others():
            if each.token not in self._told:
                log.info("the node %s shares the store", each.name)
        self._told = lives

    async def _ended(self) -> frozenset[str]:
        """The tokens of those whose process has ended for certain."""
        here = {
            each.token: each.process.process
            for each in self.others()
            if each.process is not None and each.process.is_here
        }
        unknown = self._processes.keep(set(here.values()))
        ended = self._processes.ended()
        if unknown:
            dead, descriptors = await asyncio.to_thread(processes.met, unknown)
            self._processes.add(descriptors)
            ended |= dead
        return frozenset(token for token, process in here.items() if process in ended)
