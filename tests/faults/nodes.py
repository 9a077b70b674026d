"""Nodes on one store behind a balancer without stickiness, with a line to the store and one between the nodes that can fail."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final, Self

import redis

from tests.conftest import StartServer
from tests.functional.wire import figures
from tests.lines import Balancer, Line
from tests.ports import free_ports
from tests.server_process import Server
from tests.store_process import StoreProcess

PREFIX: Final = "nodes:"
LEASE_S: Final = 3.0
KNOWN_S: Final = 30.0
_NAMES: Final = "abcdef"
DEFAULTS: Final = ("cluster.enabled=true", f"storage.prefix={PREFIX}")
"""With these alone, all times are the defaults."""
SETS: Final = (
    *DEFAULTS,
    f"cluster.lease_ms={LEASE_S * 1000:.0f}",
    "bayeux.timeout_ms=1000",
    "bayeux.max_interval_ms=60000",  # a client whose node hangs comes back when its own limit has passed
    "delivery.queue_max_entries=1000000",  # no queue overflows while its client is cut off: that would look like a loss
)


@dataclass(eq=False)
class Node:
    """One node, and the lines that lead from it to the store, and from the others to it."""

    name: str
    server: Server
    to_store: Line | None
    to_it: Line
    sets: tuple[str, ...]

    @property
    def port(self) -> int:
        """Where it serves clients."""
        assert self.server.port is not None
        return self.server.port

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.server.returncode is None


class Nodes:
    """The nodes of a test. `port` is the balancer's."""

    def __init__(
        self, start_server: StartServer, count: int, rng: random.Random, *sets: str, common: tuple[str, ...] = SETS
    ) -> None:
        """`sets` are settings beyond those in `common`."""
        self.rng = rng
        self.all: list[Node] = []
        self._start_server = start_server
        self._count = count
        self._sets = (*common, *sets)
        self._stack = AsyncExitStack()

    async def begin(
        self,
        store: StoreProcess | str,
        balancer: type[Balancer] = Balancer,
        each: Sequence[tuple[str, ...]] = ((),) * len(_NAMES),
    ) -> Self:
        """Start them. `store` is one with a port, so that each node gets a line of its own, or a `storage.url`. `each` has the
        settings of one node alone."""
        self.balancer = await self._stack.enter_async_context(
            balancer(lambda: [each.port for each in self.all if each.is_up], self.rng)
        )
        for name, own_sets in zip(_NAMES[: self._count], each, strict=False):
            (listens,) = free_ports(1)
            to_it = await self._stack.enter_async_context(Line(listens, self.rng))
            to_store, url = None, store
            if isinstance(store, StoreProcess):
                to_store = await self._stack.enter_async_context(Line(int(store.option("port")), self.rng))
                url = f"redis://127.0.0.1:{to_store.port}"
            sets = (
                *self._sets,
                f"node.name={name}",
                f"storage.url={url}",
                f"cluster.listen=127.0.0.1:{listens}",
                f"cluster.advertise=127.0.0.1:{to_it.port}",
                *own_sets,
            )
            server = await asyncio.to_thread(self._start_server, *sets)
            self.all.append(Node(name, server, to_store, to_it, sets))
        await self.know_each_other()
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.all:  # so that they end well
            node.to_it.heal()
            if node.to_store is not None:
                node.to_store.heal()
        await asyncio.gather(*(asyncio.to_thread(each.server.close) for each in self.all))
        await self._stack.aclose()

    @property
    def port(self) -> int:
        """The balancer's."""
        return self.balancer.port

    def any(self) -> Node:
        """One of them at random."""
        return self.rng.choice(self.all)

    async def start(self, node: Node) -> None:
        """Start this one again, which has ended, and wait until all know each other."""
        node.server = await asyncio.to_thread(self._start_server, *node.sets)
        await self.know_each_other()

    def kill(self, node: Node) -> float:
        """End it as a power cut would; returns when that was."""
        killed = monotonic()
        node.server.kill()
        return killed

    async def stop(self, node: Node, seconds: float) -> None:
        """Let it hang for so long."""
        os.kill(node.server.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(node.server.pid, signal.SIGCONT)

    async def know_each_other(self) -> None:
        """Wait until each that runs serves and knows all others that run."""
        running = [each for each in self.all if each.is_up]

        def do() -> bool:
            return all(figures(each.server)["crewel_nodes"] == len(running) for each in running)

        await self._wait_for(do)

    async def have_leases(self, store: StoreProcess) -> None:
        """Wait until the store, which was away, has fresh leases of all of them and of no others. Until then one may be taken
        for dead, and what was acknowledged there just before may come again."""
        running = sum(each.is_up for each in self.all)

        def do() -> bool:
            with store.client() as client:
                tokens = [each.decode() for each in client.smembers(f"{BASE}nodes") if isinstance(each, bytes)]
                ends = [int(client.pttl(f"{BASE}lease:{each}")) for each in tokens]
            return len(ends) == running and min(ends) > LEASE_S * 1000 / 2

        await self._wait_for(do)

    async def _wait_for(self, do: Callable[[], bool]) -> None:
        deadline = monotonic() + KNOWN_S
        while not await asyncio.to_thread(do):
            assert monotonic() < deadline, self.logs()
            await asyncio.sleep(0.05)

    def logs(self) -> str:
        """The last that each has logged."""
        return "\n".join(f"--- {each.name}\n{each.server.stderr[-1500:]}" for each in self.all)


BASE: Final = f"{PREFIX}{{crewel}}:"
"""What all keys begin with."""


def own(token: str) -> str:
    """The key of the sessions that the node with this token has."""
    return f"{BASE}own:{token}"


def owner(client: redis.Redis, client_id: str) -> str:
    """The name of the node that has this session."""
    token = client.hget(f"{BASE}tags", client_id.rpartition("-")[2])
    assert isinstance(token, bytes)
    name = client.hget(f"{BASE}node:{token.decode()}", "name")
    return name.decode() if isinstance(name, bytes) else ""


def token_of(client: redis.Redis, node: Node) -> str:
    """The token that a node has now."""
    tokens = [each.decode() for each in client.smembers(f"{BASE}nodes") if isinstance(each, bytes)]
    return next(each for each in tokens if client.hget(f"{BASE}node:{each}", "name") == node.name.encode())
