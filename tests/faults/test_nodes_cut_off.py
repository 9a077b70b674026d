"""A node that is cut off from the store, hangs or dies takes no reliable session with it: with the default settings, whatever
the balancer knows, no client has to shake hands again.

SHOTS in the environment is another number of shots for a full run, CUT_S another length of the cuts.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Final

import pytest
import redis

from tests.conftest import StartServer
from tests.cutting_proxy import Way
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.herd import Herd
from tests.faults.nodes import BASE, DEFAULTS, LEASE_S, Node, Nodes, token_of
from tests.faults.test_nodes_at_fault import spread
from tests.lines import Balancer, CheckedBalancer
from tests.patience import patience
from tests.ports import free_ports
from tests.store_process import StoreProcess

COUNT: Final = 30
GOES_ON_S: Final = 60.0
CUT_S: Final = float(os.environ.get("CUT_S", "15"))
"""Longer than a session lives without a connect."""
STOPPED_S: Final = 20.0
BALANCERS: Final = {"blind": Balancer, "checked": CheckedBalancer}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store of our own with a port, which syncs before it answers."""
    directory = tmp_path / "store"
    directory.mkdir()
    (port,) = free_ports(1)
    store = StoreProcess(directory, port=str(port), appendfsync="always")
    yield store
    store.close()


Fault = Callable[[Nodes, Node], Awaitable[None]]


async def _cut(node: Node, *ways: Way) -> None:
    assert node.to_store is not None
    node.to_store.silence(*ways)
    await asyncio.sleep(CUT_S)
    node.to_store.heal()


async def cut(_: Nodes, node: Node) -> None:
    """Nothing passes between a node and the store."""
    await _cut(node)


async def cut_to(_: Nodes, node: Node) -> None:
    """The store gets nothing of what a node sends."""
    await _cut(node, Way.TO)


async def cut_back(_: Nodes, node: Node) -> None:
    """A node gets no answer of the store."""
    await _cut(node, Way.BACK)


async def delayed(_: Nodes, node: Node) -> None:
    """30 % of all between a node and the store is lost and sent again, and takes half a second in each direction."""
    assert node.to_store is not None
    node.to_store.degrade(0.5, 0.3)
    await asyncio.sleep(CUT_S)
    node.to_store.heal()


async def stopped(nodes: Nodes, node: Node) -> None:
    """SIGSTOP, and SIGCONT. A blind balancer leaves clients with the process that hangs, whose kernel still acknowledges what
    they send: they wait until it continues."""
    await nodes.stop(node, STOPPED_S)


async def killed(nodes: Nodes, node: Node) -> None:
    """`kill -9` of a node; another one comes in its place."""
    nodes.kill(node)
    await asyncio.sleep(nodes.rng.uniform(0, 2))
    await nodes.start(node)


@dataclass(frozen=True)
class Row:
    """How often a fault is injected: by `make test`, and by `make faults`."""

    fault: Fault
    balancer: str
    shots: int
    of_full: int

    @property
    def longest_s(self) -> float:
        """How long a client may be without an answered connect, in 99 of 100 cases."""
        is_left_alone = self.fault is stopped and self.balancer == "blind"
        return (LEASE_S + 2 + (STOPPED_S if is_left_alone else 0.0)) * patience()

    def __str__(self) -> str:
        return f"{self.fault.__name__}-{self.balancer}"


ROWS: Final = (
    Row(cut, "blind", 1, 10),
    Row(cut, "checked", 0, 10),
    Row(cut_to, "blind", 0, 10),
    Row(cut_to, "checked", 0, 10),
    Row(cut_back, "blind", 1, 10),
    Row(cut_back, "checked", 0, 10),
    Row(delayed, "blind", 0, 10),
    Row(delayed, "checked", 0, 10),
    Row(stopped, "blind", 0, 10),
    Row(stopped, "checked", 0, 10),
    Row(killed, "blind", 0, 50),
    Row(killed, "checked", 0, 50),
)


@pytest.mark.parametrize("row", [each for each in ROWS if IS_FULL or each.shots], ids=str)
async def test_no_reliable_session_ends_with_a_node(
    row: Row, store: StoreProcess, start_server: StartServer, tell: Tell
) -> None:
    rng = random.Random(str(row))
    shots = int(os.environ.get("SHOTS", row.of_full)) if IS_FULL else row.shots
    gaps: list[float] = []
    too_long: list[str] = []
    async with Nodes(start_server, 3, rng, common=DEFAULTS) as nodes:
        await nodes.begin(store, BALANCERS[row.balancer])
        hit: list[Node] = []
        herd = Herd(lambda: [each.port for each in nodes.all if each.is_up and each not in hit], rng)
        herd.log = nodes.logs
        try:
            await herd.begin(nodes.port, COUNT)
            for shot in range(shots):
                await herd.served(monotonic(), GOES_ON_S)
                await asyncio.sleep(rng.uniform(0, 1))
                hit[:] = [nodes.any()]
                herd.watch_gaps()
                await row.fault(nodes, hit[0])
                await herd.served(monotonic(), GOES_ON_S)
                hit_name = hit[0].name
                hit.clear()
                await nodes.know_each_other()
                gaps += [each.longest_gap for each in herd.members]
                too_long += [
                    f"shot {shot}, {hit_name}: {each.name} {each.longest_gap:.1f} s, {[what for _, what in each.refusals[-4:]]}"
                    for each in herd.members
                    if each.longest_gap > row.longest_s
                ]
            await herd.settle(GOES_ON_S)
        finally:
            await herd.stop()
    tell(
        f"{shots} x {row.fault.__name__} of 3 nodes behind a {row.balancer} balancer, default settings; {COUNT} reliable"
        f" anonymous clients, {len(herd.answered)} publishes answered, {herd.handshakes} handshakes after the first;"
        f" without an answered connect {spread(gaps)}"
    )
    assert quantiles(gaps, n=100, method="inclusive")[98] <= row.longest_s, "\n".join([spread(gaps), *too_long])


async def test_a_node_without_lease_gives_up_its_sessions_before_the_store_knows(
    store: StoreProcess, start_server: StartServer
) -> None:
    """On a slow line, renewals reach the store whose answers come late or never: its lease ends at the node first."""
    rng = random.Random(5)
    async with Nodes(start_server, 3, rng, common=DEFAULTS) as nodes:
        await nodes.begin(store)
        herd = Herd(lambda: [each.port for each in nodes.all if each.is_up and each is not hit], rng)
        hit, herd.log = nodes.any(), nodes.logs
        try:
            await herd.begin(nodes.port, COUNT)
            await herd.served(monotonic() + LEASE_S, GOES_ON_S)  # for so long the others must have had their leases
            herd.watch_gaps()
            assert hit.to_store is not None
            hit.to_store.silence()
            with closing(redis.Redis(port=int(store.option("port")))) as client:
                lease = f"{BASE}lease:{token_of(client, hit)}"
                assert client.pexpire(lease, 60_000)
            await herd.served(monotonic() + LEASE_S, GOES_ON_S)
            gaps = [each.longest_gap for each in herd.members]
            hit.to_store.heal()
            await nodes.know_each_other()
            await herd.settle(GOES_ON_S)
        finally:
            await herd.stop()
    assert max(gaps) <= (LEASE_S + 2) * patience(), spread(gaps)
