"""Nothing that is sent by name or shared is lost or in two places, whatever happens between any two steps.

`make test` does a few runs, `make faults` 300, and CREWEL_RUNS tells any number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import EndReason, LogId, PendingMessage
from tests.delivery.ledger import Broken
from tests.storage.sharing import SharingRun, SharingStore
from tests.store_process import StoreProcess

RUNS = int(os.environ.get("CREWEL_RUNS") or (300 if os.environ.get("FAULTS") == "full" else 12))
STEPS = 500
PORTION = 4
MOST_SEEDS = 300
"""Runs in which a rule taken out must have been noticed."""


@pytest.fixture
def client(server: StoreProcess) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_shared_message_is_in_one_place_in_any_interleaving(client: redis.Redis, first: int) -> None:
    for seed in range(first, min(first + PORTION, RUNS)):
        _run(client, seed, DurableSession)


# One rule taken out each: a run that finds nothing wrong with these would prove nothing.


class RemembersWhatIsGivenBack(DurableSession):
    def requeue(self, log_id: LogId) -> None:
        waiting = self.inbox.pop(log_id)
        self.applied_size -= waiting.size


class TellsWhatIsGivenBack(DurableSession):
    def requeue(self, log_id: LogId) -> None:
        self.end_message(log_id, EndReason.RETURNED)


class ForgetsWhereItCameFrom(DurableSession):
    def arrived(self, log_id: LogId, waiting: PendingMessage) -> bool:
        return super().arrived(log_id, waiting._replace(source=""))

    def end_message(self, log_id: LogId, reason: EndReason = EndReason.SETTLED) -> bool:
        return super().end_message(log_id, EndReason.RETURNED if reason is EndReason.LAPSED else reason)


@pytest.mark.parametrize("durable", [RemembersWhatIsGivenBack, TellsWhatIsGivenBack, ForgetsWhereItCameFrom])
def test_each_rule_taken_out_is_noticed(client: redis.Redis, durable: type[DurableSession]) -> None:
    with pytest.raises(Broken):
        _run_many(client, durable)


def _run_many(client: redis.Redis, durable: type[DurableSession]) -> None:
    for seed in range(MOST_SEEDS):
        _run(client, seed, durable)


def _run(client: redis.Redis, seed: int, durable: type[DurableSession]) -> None:
    try:
        SharingRun(seed, SharingStore(client), durable=durable, loses=seed % 4 == 3).run(STEPS)
    except Broken as broken:
        broken.add_note(f"seed {seed}")
        raise
