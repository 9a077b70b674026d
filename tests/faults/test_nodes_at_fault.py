"""Several nodes behind a balancer without stickiness, each of which may die, hang, or lose its lines: what was answered reaches
its receivers and no others, and no client has to shake hands or subscribe again.

SHOTS in the environment is another number of shots for a full run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Final

import pytest
import redis

from tests.conftest import StartServer
from tests.cutting_proxy import Way
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import Load
from tests.faults.nodes import BASE, LEASE_S, Node, Nodes, own, owner, token_of
from tests.functional.bayeux import Client
from tests.functional.people import Person
from tests.functional.wire import Connection, figures, until
from tests.patience import patience
from tests.ports import free_ports
from tests.store_group import info
from tests.store_process import StoreProcess

GOES_ON_S: Final = 60.0
HERD: Final = 2000 if IS_FULL else 250
STOPPED_S: Final = 20.0 if IS_FULL else LEASE_S + 1
CUT_S: Final = 8.0
"""Longer than a lease lasts, and than a link may be silent."""


@contextmanager
def store_with_port(directory: Path, **options: str) -> Iterator[StoreProcess]:
    """A store of our own in this new directory, which syncs before it answers."""
    directory.mkdir()
    (port,) = free_ports(1)
    store = StoreProcess(directory, port=str(port), appendfsync="always", **options)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    with store_with_port(tmp_path / "store") as store:
        yield store


@contextmanager
def replica_of(store: StoreProcess, directory: Path) -> Iterator[StoreProcess]:
    """A replica of the store in this new directory, which has everything."""
    follows = f"127.0.0.1 {store.option('port')}"
    with store_with_port(directory, replicaof=follows, repl_ping_replica_period="1") as replica:
        until(lambda: info(replica).get("master_link_status") == "up")
        yield replica


@dataclass(frozen=True)
class World:
    """What a fault may do something to. `replica` is that of the store, where the nodes follow the log on it."""

    nodes: Nodes
    store: StoreProcess
    replica: StoreProcess | None
    rng: random.Random


@dataclass(frozen=True)
class Shot:
    """A fault that has been injected: when, and which nodes it made clients wait for."""

    at: float
    hit: frozenset[str]


Fault = Callable[[World], Awaitable[Shot]]


async def killed(world: World) -> Shot:
    """`kill -9` of a node; another one comes in its place."""
    node = world.nodes.any()
    at = world.nodes.kill(node)
    await asyncio.sleep(world.rng.uniform(0, 2))
    await world.nodes.start(node)
    return Shot(at, frozenset({node.name}))


async def stopped(world: World) -> Shot:
    """SIGSTOP for longer than the lease lasts, and SIGCONT: what has come meanwhile is read by a node that is none any more."""
    node, at = world.nodes.any(), monotonic()
    await world.nodes.stop(node, STOPPED_S)
    return Shot(at, frozenset({node.name}))


async def store_killed(world: World) -> Shot:
    """`kill -9` of the store, which comes back."""
    at = monotonic()
    world.store.kill()
    await asyncio.sleep(world.rng.uniform(0, 2))
    await asyncio.to_thread(world.store.start)
    await world.nodes.have_leases(world.store)
    return Shot(at, frozenset(each.name for each in world.nodes.all))


async def replica_stopped(world: World) -> Shot:
    """SIGSTOP of the replica that the nodes follow, which must confirm what is published, too."""
    assert world.replica is not None
    at = monotonic()
    world.replica.stop()
    await asyncio.sleep(CUT_S)
    world.replica.go_on()
    return Shot(at, frozenset(each.name for each in world.nodes.all))


async def cut_from_store(world: World) -> Shot:
    """A node cannot reach the store, or does not get its answers, and its clients still reach the node."""
    node, at = world.nodes.any(), monotonic()
    assert node.to_store is not None
    node.to_store.silence(*world.rng.choice(((), (Way.BACK,), (Way.TO,))))
    await asyncio.sleep(CUT_S)
    node.to_store.heal()
    return Shot(at, frozenset({node.name}))


async def cut_from_each_other(world: World) -> Shot:
    """All reach the store and their clients, and none another one."""
    at = monotonic()
    for node in world.nodes.all:
        node.to_it.silence()
    await asyncio.sleep(CUT_S)
    for node in world.nodes.all:
        node.to_it.heal()
    return Shot(at, frozenset(each.name for each in world.nodes.all))


async def cut_one_way(world: World) -> Shot:
    """The others do not reach a node, or do not get its answers; it reaches them."""
    node, at = world.nodes.any(), monotonic()
    node.to_it.silence(world.rng.choice((Way.TO, Way.BACK)))
    await asyncio.sleep(CUT_S)
    node.to_it.heal()
    return Shot(at, frozenset({node.name}))


async def slow_lines(world: World) -> Shot:
    """30 % of all that nodes and store send each other is lost and sent again, and takes 200 ms."""
    at = monotonic()
    lines = [line for node in world.nodes.all for line in (node.to_it, node.to_store) if line is not None]
    for line in lines:
        line.degrade(0.2, 0.3)
    await asyncio.sleep(CUT_S)
    for line in lines:
        line.heal()
    return Shot(at, frozenset(each.name for each in world.nodes.all))


async def restarted(world: World) -> Shot:
    """All end by SIGTERM and come back, one after another: a rolling restart."""
    at = monotonic()
    for node in world.nodes.all:
        assert await asyncio.to_thread(node.server.terminate) == 0
        await world.nodes.start(node)
    return Shot(at, frozenset(each.name for each in world.nodes.all))


@dataclass(frozen=True)
class Row:
    """How often a fault is injected into how many nodes: by `make test`, and by `make faults`."""

    fault: Fault
    nodes: int
    shots: int
    of_full: int
    tails: str = "primary"

    def __str__(self) -> str:
        return f"{self.fault.__name__}-{self.nodes}" + "-replica" * (self.tails == "replica")


ROWS: Final = (
    Row(killed, 2, 0, 50),
    Row(killed, 3, 2, 100),
    Row(stopped, 2, 0, 5),
    Row(stopped, 3, 0, 5),
    Row(store_killed, 2, 1, 20),
    Row(cut_from_store, 2, 0, 10),
    Row(cut_from_store, 3, 0, 10),
    Row(cut_from_each_other, 2, 0, 10),
    Row(cut_from_each_other, 3, 0, 5),
    Row(cut_one_way, 2, 0, 10),
    Row(cut_one_way, 3, 0, 5),
    Row(slow_lines, 2, 0, 5),
    Row(restarted, 2, 0, 2),
    Row(restarted, 3, 0, 2),
    Row(killed, 3, 0, 20, "replica"),
    Row(stopped, 3, 0, 2, "replica"),
    Row(store_killed, 2, 0, 10, "replica"),
    Row(replica_stopped, 2, 0, 5, "replica"),
    Row(cut_from_store, 3, 0, 5, "replica"),
    Row(restarted, 2, 0, 2, "replica"),
)


@pytest.mark.parametrize("row", [each for each in ROWS if IS_FULL or each.shots], ids=str)
async def test_what_was_answered_survives(
    row: Row, store: StoreProcess, start_server: StartServer, load: Load, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(str(row))
    shots = int(os.environ.get("SHOTS", row.of_full)) if IS_FULL else row.shots
    of_hit: list[float] = []
    of_others: list[float] = []
    sets = f"cluster.tails={row.tails}", f"storage.replicas={int(row.tails == 'replica')}"
    async with AsyncExitStack() as stack:
        replica = stack.enter_context(replica_of(store, tmp_path / "replica")) if row.tails == "replica" else None
        nodes = await stack.enter_async_context(Nodes(start_server, row.nodes, rng, *sets))
        await nodes.begin(store)
        load.log = nodes.logs
        await load.begin(nodes.port, subscribers=2 if IS_FULL else 1, publishers=3)
        world = World(nodes, store, replica, rng)
        for _ in range(shots):
            await load.answers(20, GOES_ON_S)
            await asyncio.sleep(rng.uniform(0, 0.5))
            with store.client() as client:
                at_node = {each.name: owner(client, each.client_id) for each in load.clients}
            load.watch_gaps()
            with load.history.fault():
                shot = await row.fault(world)
                await load.goes_on(monotonic(), GOES_ON_S)
            await load.answers(20, GOES_ON_S)
            for each in load.subscribers:  # messages come to them all the time: no answer of theirs is waited for long
                (of_hit if at_node[each.name] in shot.hit else of_others).append(each.longest_gap)
        await load.settle(GOES_ON_S)
        if row.tails == "replica":
            await asyncio.to_thread(until, lambda: all(is_on_replica(each) for each in nodes.all), GOES_ON_S)
        verdict = await asyncio.to_thread(load.judge, tmp_path)
        unexpected = {error for error in load.ledger.refusals if error and "resource." not in error}
        assert not unexpected, unexpected
        for each in nodes.all:  # it syncs before it answers, and what another node has taken over is there
            assert "the store has lost" not in each.server.stderr, each.server.stderr
    ledger = load.ledger
    tell(
        f"{shots} x {row.fault.__name__} of {row.nodes} nodes with tails on the {row.tails};"
        f" {ledger.answered_count} publishes answered, {ledger.refusals.total()} refused, {len(ledger.received)} subscribers,"
        f" {ledger.duplicates} duplicates; without an answered connect: clients of the nodes that were hit {spread(of_hit)},"
        f" others {spread(of_others)}{verdict}"
    )


async def test_a_node_without_its_store_forwards_to_those_that_have_it(
    store: StoreProcess, start_server: StartServer
) -> None:
    async with Nodes(start_server, 2, random.Random(1), "cluster.lease_ms=1000") as nodes:
        await nodes.begin(store)
        first, second = nodes.all
        person = await asyncio.to_thread(lambda: Person(first.server).be())
        assert second.to_store is not None
        second.to_store.silence()

        def has_no_lease() -> bool:
            return Connection(second.server).get("/health/ready").status == 503

        deadline = monotonic() + GOES_ON_S
        while not await asyncio.to_thread(has_no_lease):
            assert monotonic() < deadline, nodes.logs()
            await asyncio.sleep(0.05)
        person.server = second.server
        person.forget_connections()
        assert await asyncio.to_thread(person.take) == []
        assert await asyncio.to_thread(has_no_lease)


@pytest.mark.parametrize("fault", ["killed", "stopped"] if IS_FULL else ["killed"])
async def test_an_heir_fails_between_two_slices(
    fault: str, store: StoreProcess, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    """The third node continues, and each session is there once, with its own messages only."""
    rng = random.Random(fault)
    patient = "bayeux.max_interval_ms=600000", "http.keepalive_ms=600000"  # most are idle while the others come
    async with Nodes(start_server, 3, rng, *patient) as nodes:
        await nodes.begin(store)
        first, *others = nodes.all
        people = await asyncio.to_thread(herd, first, others[0])
        for each in others:
            assert each.to_store is not None
            each.to_store.degrade(0.05, 0)  # so that there is time between two slices
        with store.client() as client:
            token = token_of(client, first)
            nodes.kill(first)
            heir = await between_slices(client, nodes, token)
            left = client.scard(own(token))
        at = monotonic()
        if fault == "killed":
            nodes.kill(heir)
        else:
            await nodes.stop(heir, LEASE_S + 1)
        for each in others:
            assert each.to_store is not None
            each.to_store.heal()
        last = next(each for each in others if each is not heir)
        # In a thread: the figures are also about the store, and this loop forwards what the server asks it.
        await asyncio.to_thread(until, partial(has_inherited, last), GOES_ON_S * patience())
        took = monotonic() - at
        if fault == "killed":
            await nodes.start(heir)
        await nodes.start(first)
        await asyncio.to_thread(all_have_theirs, people, nodes)
    tell(
        f"the heir {fault} with {left} of {HERD} sessions to come; all were at the third node {took:.1f} s later, with"
        " their own messages"
    )


def is_on_replica(node: Node) -> bool:
    """Whether it reads from a replica what other nodes publish."""
    return bool(figures(node.server)["crewel_tail_on_replica"] == 1)


def has_inherited(node: Node) -> bool:
    """Whether the node has taken over the whole herd."""
    return bool(figures(node.server)["crewel_inherited_sessions_total"] >= HERD)


def herd(first: Node, second: Node) -> list[Person]:
    """Sessions of the first node, half of which have a message."""
    people = [Person(first.server).be() for _ in range(HERD)]
    publisher = Client(second.server).start()
    for number, person in enumerate(people):
        person.subscribe(f"/herd/{number}")
        person.forget_connections()
        if number % 2:
            publisher.publish(f"/herd/{number}", number, ext={"publish": {"persistent": True}})
    return people


def all_have_theirs(people: list[Person], nodes: Nodes) -> None:
    """Each gets what it has not acknowledged, and then nothing, wherever it asks."""
    for number, person in enumerate(people):
        person.server = nodes.any().server
        person.forget_connections()
        expected = [number] if number % 2 else []
        assert [each["data"] for each in person.take(timeout=5000 if expected else 0)] == expected
        assert not person.take()
        person.forget_connections()


async def between_slices(client: redis.Redis, nodes: Nodes, token: str) -> Node:
    """Wait until some sessions of the node with this token have come to an heir, and others have not; return the heir."""
    heirs = {token_of(client, each): each for each in nodes.all if each.is_up}
    deadline = monotonic() + GOES_ON_S
    while not 0 < client.scard(own(token)) < HERD:
        assert monotonic() < deadline, nodes.logs()
        await asyncio.sleep(0.002)
    heir = client.hget(f"{BASE}left:{token}", "heir")
    assert isinstance(heir, bytes)
    return heirs[heir.decode()]


def spread(seconds: list[float]) -> str:
    """Median, 99th percentile and maximum."""
    if len(seconds) < 2:
        return f"{seconds}"
    cuts = quantiles(seconds, n=100, method="inclusive")
    return f"p50 {cuts[49]:.1f} s, p99 {cuts[98]:.1f} s, max {max(seconds):.1f} s ({len(seconds)})"
