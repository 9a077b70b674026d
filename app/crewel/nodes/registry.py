"""Which nodes share the store, and what to do when one of them dies: its sessions are taken over (decision 0260).

What is known is as old as the last look: a third of a lease, or a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Final

from crewel.broker.durability.access import StoreAccess
from crewel.broker.durability.durability import Durability
from crewel.broker.ids import elapsed
from crewel.errors import StoreError
from crewel.metrics import Metrics
from crewel.storage import nodes
from crewel.storage.nodes import Members, Node

log = logging.getLogger(__name__)

_LOOKS: Final = 3  # in the time that a lease lasts
_LONGEST_PAUSE_S: Final = 1.0  # a process that has ended on this machine is seen before its lease ends


class NodeRegistry:
    """What one node knows of the others."""

    def __init__(self, access: StoreAccess, durability: Durability, metrics: Metrics, lease_s: float) -> None:
        self._access = access
        self._durability = durability
        self._metrics = metrics
        metrics.gauge("nodes", lambda: len(self.others()) + 1)
        self._lease_s = lease_s
        self._alive_at: dict[str, float] = {}  # token: when the node lived for certain, by `elapsed`
        self._pause_s = min(lease_s / _LOOKS, _LONGEST_PAUSE_S)
        self._hurry = asyncio.Event()
        self._told: set[str] = set()
        self.members = Members({}, {})
        self.leaving: frozenset[int] = frozenset()
        """Processes of this machine that have ended or are about to, and whose sessions will be taken over."""
        self.looked_at = -inf
        """When the store was asked last for what is known here, by `elapsed`."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each look."""

    @property
    def own(self) -> str:
        """The token of this node."""
        return self._access.token

    def owner(self, tag: str) -> Node | None:
        """The node that has the sessions with this tag; None if there is none. It may be dead."""
        return self.members.nodes.get(self.members.tags.get(tag, ""))

    def others(self) -> list[Node]:
        """The other nodes that live."""
        return [each for each in self.members.nodes.values() if each.lives and each.token != self.own]

    def has_renewed(self, node: Node, since: float) -> bool:
        """Whether the node lives, and is known to have lived after this moment: so it did not die just before."""
        return node.lives and self._alive_at.get(node.token, -inf) > since

    def leaves(self, node: Node) -> bool:
        """Whether the node is known to end, so that its sessions will soon be another one's."""
        process = node.process
        return process is not None and process.pid in self.leaving and process.is_here

    def hurry(self) -> None:
        """Look at once: a node may have died."""
        self._hurry.set()

    async def run_forever(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            with suppress(StoreError):
                await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._hurry.wait()
            self._hurry.clear()

    async def look(self) -> None:
        """Ask the store which nodes there are, and take over the sessions of dead ones. Raises StoreError."""
        access, durability = self._access, self._durability
        if access.is_reloading:
            return
        asked = elapsed()
        self.members = await access.writing.ask(nodes.members(access.keys))
        self.looked_at = asked
        self._tell()
        if self.others():
            durability.tail.is_wanted.set()
        else:
            durability.tail.is_wanted.clear()
        others = self.others()
        dead = await asyncio.to_thread(_dead, others)
        for each in others:
            # Nodes have the same lease, so what is left of it says when it was renewed.
            is_seen = each.process is not None and each.process.is_here and each.token not in dead
            self._alive_at[each.token] = asked if is_seen else asked + each.lasts - self._lease_s
        if dead or any(not each.lives and each.token != self.own for each in self.members.nodes.values()):
            count = await durability.inheritance.look(dead)
            if count:
                self._metrics.inherited_sessions += count
                log.warning("took over %d sessions of a node that is dead", count)
            self.members = await access.writing.ask(nodes.members(access.keys))
        for changed in self.on_change:
            changed()

    def _tell(self) -> None:
        lives = {each.token for each in self.others()}
        for each in self.others():
            if each.token not in self._told:
                log.info("the node %s shares the store", each.name)
        self._told = lives


def _dead(others: Iterable[Node]) -> list[str]:
    """The tokens of those whose process has ended for certain."""
    return [each.token for each in others if each.process is not None and each.process.is_dead]
