"""Servers and stores are killed while messages are scheduled, published when they are due, and cancelled: each of them is
published once or cancelled, whichever came first, and its receivers get it once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.admin.desk import TOKEN, Desk
from tests.conftest import StartServer
from tests.faults.at_work import AtWork
from tests.faults.audit import Audit
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.health import Health, store_pid
from tests.faults.load import wait_for
from tests.faults.nodes import LEASE_S, PREFIX, Nodes
from tests.faults.random_publisher import CHANNELS, RandomPublisher
from tests.faults.random_receivers import Habits, RandomReceiver
from tests.faults.test_ledger import everybody
from tests.faults.test_server_killed import store_of
from tests.functional.bayeux import Client
from tests.functional.wire import Address
from tests.patience import patience
from tests.ports import free_ports
from tests.store_process import StoreProcess

SEEDS = range(1, 21) if IS_FULL else range(1, 3)  # one of each kind of store
STORE_SEEDS = range(1, 21) if IS_FULL else range(1, 2)
NODE_SEEDS = range(1, 21) if IS_FULL else range(1, 2)
MESSAGES: Final = 400 if IS_FULL else 150
KILLS: Final = 6 if IS_FULL else 3
LATEST_MS: Final = 4000
LIMIT_S: Final = 30.0
READY_S: Final = 10.0
SETS = (f"admin.token={TOKEN}", "bayeux.timeout_ms=1000", "bayeux.max_interval_ms=60000", "bayeux.sweep_ms=100")
ONE_BY_ONE = {"update": True, "settle": "message"}
MEMBERS = Habits(("/x/**",), None, ONE_BY_ONE, asks={"/x/**": {"group": "workers"}})
KINDS = (Habits(("/x/**",), "joe/1", ONE_BY_ONE), Habits(("/x/**",), "ann/1", cuts=0.05), MEMBERS, MEMBERS)


def later(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """The channel of a message, and when it is to be published."""
    return rng.choice(CHANNELS), {"deliverAfter": rng.randrange(1, LATEST_MS)}


class Regretful(AtWork):
    """Cancels some of what it has published: its session is another one of the same account, also after a kill."""

    def __init__(self, server: Address, rng: random.Random, publisher: RandomPublisher) -> None:
        super().__init__()
        self.cancelled = 0
        self._server, self._rng, self._publisher = server, rng, publisher
        self._client: Client | None = None

    def work(self) -> None:
        while not self.is_ending:
            self.pause(0.05)
            if known := list(self._publisher.answered):
                self._cancel(self._rng.choice(known))

    def _cancel(self, message_id: str) -> None:
        try:
            if self._client is None:
                self._client = Client(self._server).start()
            (reply,) = self._client.send(self._client.message("/service/cancelScheduled", data=message_id))
        except (OSError, EOFError):
            self._client = None
            return
        self.cancelled += reply["successful"]
        if reply.get("error", "").startswith("402:"):
            self._client = None


class Schedule:
    """The publisher of what is to be published later, the receivers, and the operator and the publisher, who cancel some."""

    def __init__(self, server: Address, rng: random.Random, desk: Callable[[], Desk]) -> None:
        self.receivers = [RandomReceiver(server, habits, random.Random(rng.random())) for habits in KINDS]
        self.publisher = RandomPublisher(server, random.Random(rng.random()), MESSAGES, choose=later)
        self._rng, self._desk = random.Random(rng.random()), desk
        self.regretful = Regretful(server, random.Random(rng.random()), self.publisher)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Let them work as long as this lasts; it begins when all receivers are subscribed."""
        async with everybody(self.receivers):
            await wait_for(lambda: all(each.subscribed.is_set() or each.trouble for each in self.receivers), 20)
            cancelling = asyncio.create_task(self._cancel())
            try:
                async with everybody([self.publisher]), everybody([self.regretful]):
                    yield
            finally:
                cancelling.cancel()
                await asyncio.wait([cancelling])

    async def _cancel(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            known = list(self.publisher.answered)
            ids = self._rng.sample(known, min(len(known), 2))
            with suppress(OSError, EOFError):
                await asyncio.to_thread(self._desk().ask, "POST", "/scheduled-messages/cancel", {"ids": ids})


async def finished(schedule: Schedule, take: Callable[[], Audit]) -> Audit:
    """The ledger when nothing is scheduled any more, and all that was published has been acknowledged."""
    audit = take()

    async def is_done() -> bool:
        nonlocal audit
        audit = await asyncio.to_thread(take)
        audit.check()
        return schedule.publisher.is_done and not (
            audit.due or any(audit.waiting.values()) or any(audit.queues.values())
        )

    deadline = monotonic() + LIMIT_S * patience()
    while not await is_done():
        assert monotonic() < deadline, (audit.due, audit.waiting, audit.queues)
        await asyncio.sleep(0.2)
    return audit


def check_once(schedule: Schedule, audit: Audit) -> None:
    """All that was answered was published once or cancelled, and nothing else; each receiver, and the group, has got it."""
    workers: list[Any] = [*schedule.receivers, schedule.publisher, schedule.regretful]
    assert schedule.regretful.cancelled > 0
    assert not [each.trouble for each in workers if each.trouble is not None]
    assert audit.scheduled == set(map(int, schedule.publisher.answered))
    assert len(schedule.publisher.answered) == MESSAGES
    published = {str(new): str(old) for old, new in audit.published_as.items()}
    *alone, first, second = schedule.receivers
    for heard in (*(each.memory.heard for each in alone), [*first.memory.heard, *second.memory.heard]):
        assert {each.id for each in heard} == published.keys()
        for each in heard:
            assert schedule.publisher.answered[published[each.id]].data == each.data


def told(schedule: Schedule, audit: Audit) -> str:
    copies = sum(len(each.memory.heard) for each in schedule.receivers)
    return (
        f"of {MESSAGES} scheduled messages {len(audit.published_as)} were published once and {len(audit.cancelled)} cancelled,"
        f" {copies - 3 * len(audit.published_as)} copies came twice"
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_is_published_once_after_kills_of_the_server(
    seed: int, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(5000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *store_of(seed, tmp_path))
    schedule = Schedule(server, rng, lambda: Desk(server))
    async with schedule.at_work():
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0, 1.5))
            server.kill()
            if seed % 2 == 0:  # the store is still there
                Audit(server).check()
            server = await asyncio.to_thread(start_server, *SETS, *server.store_sets, port=server.port)
        audit = await finished(schedule, lambda: Audit(server))
    check_once(schedule, audit)
    tell(
        f"seed {seed}: {KILLS} kills of the server, store {'its own' if seed % 2 else 'separate'}; {told(schedule, audit)}"
    )


@pytest.mark.parametrize("seed", STORE_SEEDS)
async def test_each_is_published_once_after_kills_of_the_store(
    seed: int, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(6000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *store_of(1, tmp_path))
    schedule = Schedule(server, rng, lambda: Desk(server))
    async with Health(server) as health, schedule.at_work():
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0, 1.5))
            killed = monotonic()
            os.kill(store_pid(server), signal.SIGKILL)
            await health.becomes(503, killed, READY_S)
            await health.is_well(READY_S)
            (await asyncio.to_thread(Audit, server)).check()
        audit = await finished(schedule, lambda: Audit(server))
    check_once(schedule, audit)
    tell(f"seed {seed}: {KILLS} kills of the store; {told(schedule, audit)}")


@pytest.mark.parametrize("seed", NODE_SEEDS)
async def test_each_is_published_once_by_some_node(
    seed: int, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    """Nodes are killed, and hang for longer than a lease: also the first one, which publishes what is due."""
    rng = random.Random(7000 + seed)
    (port,) = free_ports(1)
    store = StoreProcess(tmp_path, port=str(port), appendfsync="always")
    sets = (f"admin.token={TOKEN}", "bayeux.sweep_ms=100")
    try:
        async with Nodes(start_server, 3, rng, *sets) as nodes:
            await nodes.begin(store)
            await check_nodes(nodes, store, rng, tell)
    finally:
        store.close()


async def check_nodes(nodes: Nodes, store: StoreProcess, rng: random.Random, tell: Tell) -> None:
    common = SimpleNamespace(store_sets=(f"storage.url={store.url}", f"storage.prefix={PREFIX}"))

    def running() -> Address:
        return next(each.server for each in nodes.all if each.is_up)

    schedule = Schedule(nodes, rng, lambda: Desk(running()))
    async with schedule.at_work():
        for number in range(KILLS):
            await asyncio.sleep(rng.uniform(0, 1))
            node = nodes.any()
            if number % 2:
                await nodes.stop(node, LEASE_S + 1)
                await wait_for(lambda node=node: node.is_up, READY_S)
                continue
            nodes.kill(node)
            await asyncio.sleep(rng.uniform(0, 1))
            await nodes.start(node)
        audit = await finished(schedule, lambda: Audit(common))
    check_once(schedule, audit)
    tell(f"{KILLS} kills and stops of three nodes; {told(schedule, audit)}")
