"""The random interleavings of tests/delivery with the real scripts on a real store, and the model of the store compared
with the scripts step by step.

`make test` does as many runs of each kind as fit into a few seconds, `make faults` 300, and CREWEL_RUNS tells any number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator

import pytest
import redis

from crewel.delivery.records import Logged, LogId
from crewel.storage import log
from crewel.storage.shared_queue_store import Sent
from tests.delivery.interleaving import Run, Store
from tests.delivery.ledger import Broken
from tests.delivery.mutations import MUTATIONS, Mutation, SpillsNothing
from tests.delivery.store_model import StoreModel
from tests.storage.compared_store import ComparedStore
from tests.storage.node_order import OrderRun, OrderServer
from tests.storage.real_store import RealStore
from tests.store_process import StoreProcess

RUNS = int(os.environ.get("CREWEL_RUNS") or (300 if os.environ.get("FAULTS") == "full" else 20))
STEPS = 500
PORTION = 4
SLOW = "what has settled leaves the inbox too"
MOST_SEEDS = 2000  # the real store counts its ids by a clock: how soon a seed shows a fault differs from run to run

# Bodies are not compared. What takes hundreds of runs to show is left to the full counts.
OTHERWISE = [
    each
    for each in MUTATIONS
    if each.store not in {StoreModel, SpillsNothing} and (os.environ.get("FAULTS") == "full" or each.rule != SLOW)
]

portions = pytest.mark.parametrize(
    "seeds", [range(each, min(each + PORTION, RUNS)) for each in range(0, RUNS, PORTION)]
)


@pytest.fixture
def client(server: StoreProcess) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@portions
def test_commits_in_parts_lose_nothing_when_the_server_dies_between_them(
    client: redis.Redis, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_OPENED_AT_ONCE", 2)
    for seed in seeds:
        _run(seed, RealStore(client, random.Random(seed)))


@portions
def test_nothing_is_lost_or_crossed_with_the_real_scripts_and_the_model_answers_as_they_do(
    client: redis.Redis, seeds: range
) -> None:
    """The compared store does each step with the scripts, and returns their answer."""
    for seed in seeds:
        _run(seed, ComparedStore(client))


@pytest.mark.parametrize("mutation", OTHERWISE, ids=lambda each: each.rule)
def test_a_model_that_answers_otherwise_is_noticed(client: redis.Redis, mutation: Mutation) -> None:
    with pytest.raises(Broken, match="the model"):
        _run_compared(client, mutation)


def _run_compared(client: redis.Redis, mutation: Mutation) -> None:
    for seed in range(mutation.first, mutation.first + MOST_SEEDS):
        store = ComparedStore(client)
        store.model = mutation.store()
        _run(seed, store)


def _run(seed: int, store: Store) -> None:
    """One run; every fourth has a store that loses what was not synced. Its error tells the seed."""
    try:
        Run(seed, store, loses=seed % 4 == 3).run(STEPS)
    except Broken as broken:
        broken.add_note(f"seed {seed}")
        raise


# Several nodes, and messages to sessions by name


@portions
def test_each_session_gets_all_in_one_order_from_several_nodes(client: redis.Redis, seeds: range) -> None:
    for seed in seeds:
        _run_nodes(seed, client)


class QueuesAtOnce(OrderServer):
    """A message to a session is queued when it is answered, whatever other nodes have appended before it."""

    def sent(self, sent: Sent, arrive: Callable[[], None]) -> None:
        if sent.prev == self.serving.cursor:
            self.serving.skip(sent.id)
        arrive()


class BringsInAtOnce(OrderServer):
    """The sessions of a dead node come with what lies in their inboxes, whatever the log has before it."""

    def catch_up(self, newest: LogId, read: Callable[[LogId], Iterable[Logged]]) -> None:
        pass


@pytest.mark.parametrize("node", [QueuesAtOnce, BringsInAtOnce])
def test_a_node_that_lets_messages_overtake_others_is_noticed(client: redis.Redis, node: type[OrderServer]) -> None:
    with pytest.raises(Broken, match=r"came to .* after"):
        _run_all(client, node)


def _run_all(client: redis.Redis, node: type[OrderServer]) -> None:
    for seed in range(MOST_SEEDS):
        _run_nodes(seed, client, node)


def _run_nodes(seed: int, client: redis.Redis, node: type[OrderServer] = OrderServer) -> None:
    try:
        OrderRun(seed, client, server=node).run(STEPS)
    except Broken as broken:
        broken.add_note(f"seed {seed}")
        raise
