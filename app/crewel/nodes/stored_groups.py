"""The groups of consumers of all nodes, as the store has them (decision 0261).

A persistent message goes into the queues of the groups that its publisher's node knows. Nodes report their groups to each other
by their links. But a link may be broken while both nodes reach the store, and then a message would pass a group by. So each
node notes its groups in the store, and looks at those of the others several times in a lease. A subscribe to a group that the
links have not confirmed is answered when a node that has not looked should have lost its lease.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.errors import StoreError
from crewel.event_loop import in_turns
from crewel.nodes.bus import Bus
from crewel.nodes.node_registry import NodeRegistry
from crewel.storage import node_groups
from crewel.storage.node_groups import MOST_NOTED

_LOOKS: Final = 3  # in the time that a lease lasts
_LONGEST_PAUSE_S: Final = 1.0
_LEAST_S, _MOST_S = 2 * _LONGEST_PAUSE_S, 5.0
"""How long a subscribe waits for the looks of other nodes: at least twice the longest pause, whatever their lease is. It is not
very long where the lease is: they look every second as well."""

_NOTHING: Final = 0, frozenset[str]()


class StoredGroups:
    """The part of one node."""

    def __init__(
        self, runtime: Runtime, groups: ConsumerGroups, registry: NodeRegistry, bus: Bus, lease_s: float
    ) -> None:
        self._runtime, self._access, self._loop = runtime, runtime.access, runtime.loop
        self._groups = groups
        self._registry = registry
        self._bus = bus
        self._pause_s, self._looked_s = min(lease_s / _LOOKS, _LONGEST_PAUSE_S), max(min(lease_s, _MOST_S), _LEAST_S)
        self._changed: dict[str, bool] = {}  # queue: whether it has a member here; what the store does not know yet
        self._writing: asyncio.Task[None] | None = None
        self._known_at = 0.0  # loop time (s) at which all nodes that live know what the store knows
        self._version = 0  # of the bus, which has the last group
        # By token, the number of that node's groups, and what was read.
        self._seen: dict[str, tuple[int, frozenset[str]]] = {}

    # Those of this node

    def wants(self, queue: str) -> None:
        """The group with this queue has a member here, and had none. The bus has announced it."""
        self._version = self._bus.version
        self._note(queue, is_wanted=True)

    def gives_up(self, queue: str) -> None:
        """It has none any more."""
        self._note(queue, is_wanted=False)

    def _note(self, queue: str, *, is_wanted: bool) -> None:
        self._changed[queue] = is_wanted
        if self._writing is None:
            self._writing = self._runtime.spawn(self._write())

    async def _write(self) -> None:
        try:
            while self._changed:
                await self._write_some()
        finally:
            self._writing = None

    async def _write_some(self) -> None:
        some = dict(list(self._changed.items())[:MOST_NOTED])
        for queue in some:
            del self._changed[queue]
        keys, token = self._access.keys, self._access.token
        wanted = [queue for queue, is_wanted in some.items() if is_wanted]
        others = [queue for queue, is_wanted in some.items() if not is_wanted]
        steps = [(node_groups.note, wanted), (node_groups.forget, others)]
        # Superseded, this node ends, or reads all its sessions again: then it notes their groups under its new token.
        with suppress(StoreError):
            for step, queues in steps:
                if queues:
                    await self._access.writing.ask(step(keys, token, queues), retries=True)
        if wanted:
            self._known_at = self._loop.time() + self._looked_s

    def known_everywhere(self, session: Session) -> asyncio.Task[None] | None:
        """A task that ends when all nodes that live know the groups of this one; None if they do, or the session is a member
        of none."""
        if self._is_known or not self._groups.count(session):
            return None
        return self._loop.create_task(self._until_known())

    @property
    def _is_known(self) -> bool:
        is_noted = self._writing is None and self._loop.time() >= self._known_at
        return is_noted or self._bus.is_confirmed(self._version)

    async def _until_known(self) -> None:
        end = self._loop.time() + 2 * self._looked_s  # without its store, it is answered whatever is known
        while not self._is_known and self._loop.time() < end:
            until, waited = min(self._known_at, end), [self._bus.change()]
            if self._writing is not None:
                until, waited = end, [*waited, self._writing]
            await asyncio.wait(waited, timeout=until - self._loop.time(), return_when=asyncio.FIRST_COMPLETED)

    # Those of others

    async def run_forever(self) -> None:
        """Look at the groups of the other nodes, until cancelled."""
        while True:
            with suppress(StoreError):
                await self.look()
            await asyncio.sleep(self._pause_s)

    async def look(self) -> None:
        """Read the groups of the nodes where they have changed. Raises StoreError."""
        # Of a dead one too, until its sessions have all come to others.
        tokens = [token for token in self._registry.members.nodes if token != self._registry.own]
        self._seen = {token: self._seen.get(token, _NOTHING) for token in tokens}
        if not tokens:
            return
        found = await node_groups.changes(self._access.store, tokens)
        for token, number in zip(tokens, found, strict=True):
            before, known = self._seen[token]
            if number == before:
                continue
            queues = frozenset(await node_groups.of(self._access.store, token))
            # Most came by a link long before; and one that this node has forgotten is here again.
            async for queue in in_turns(
                each for each in queues if each not in known or each not in self._groups.elsewhere
            ):
                self._groups.add_elsewhere(queue)
            self._seen[token] = number, queues
