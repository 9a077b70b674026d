"""What became of the messages of a job: each fact is read once, a bounded number with each call."""

import json
from typing import Any

import pytest

from crewel.storage import job_outcomes
from crewel.storage.job_outcomes import JobOutcomes
from crewel.storage.store import Store

JOE = "client/joe/1"


async def add(store: Store, kind: str, **fields: Any) -> None:
    body = json.dumps(fields, separators=(",", ":"))
    await store.reader.xadd(store.keys.facts, {"t": kind, "d": body})


async def redriven(store: Store, log_id: int, job: str = "7-7", **to: str) -> None:
    await add(store, "redriven", letter=f"{log_id}-1", message=str(log_id - 1), id=log_id, job=job, **to)


async def ended(store: Store, reason: str, *ids: int, session: str = JOE) -> None:
    await add(store, "ended", ended=[{"session": session, "reason": reason, "ids": ids}])


async def test_the_receiver_of_a_redrive_decides_how_its_message_ended(store: Store) -> None:
    for log_id in (1, 2, 3):
        await redriven(store, log_id, session=JOE)
    await redriven(store, 4, session=JOE, job="8-8")
    await redriven(store, 5, channel="/a")
    await ended(store, "dead", 1, session="client/ann/1")
    await ended(store, "settled", 1, 4)
    await ended(store, "dead", 2)
    outcomes = JobOutcomes("7-7", 0)
    await outcomes.read_on(store)
    assert (outcomes.reasons, outcomes.is_partial) == ({1: "settled", 2: "dead", 3: ""}, False)
    await ended(store, "settled", 3)
    await outcomes.read_on(store)
    assert (outcomes.reasons[3], outcomes.is_partial) == ("settled", False)


async def test_a_job_with_more_facts_than_one_call_reads_is_read_to_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_outcomes, "_MOST_READ", 4)
    monkeypatch.setattr(job_outcomes, "_PORTION", 2)
    for log_id in range(1, 6):
        await redriven(store, log_id, session=JOE)
    await ended(store, "settled", *range(1, 6))
    await ended(store, "settled", 9)
    outcomes, seen = JobOutcomes("7-7", 0), []
    for _ in range(2):
        await outcomes.read_on(store)
        seen.append((len(outcomes.reasons), list(outcomes.reasons.values()).count("settled"), outcomes.is_partial))
    assert seen == [(4, 0, True), (5, 5, False)]
    assert outcomes.read_to_ms > 0


async def test_a_job_of_more_messages_than_are_remembered_stays_partial(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_outcomes, "_MOST_KNOWN", 2)
    for log_id in range(1, 4):
        await redriven(store, log_id, session=JOE)
    outcomes = JobOutcomes("7-7", 0)
    await outcomes.read_on(store)
    assert (outcomes.reasons, outcomes.is_partial) == ({1: "", 2: ""}, True)


async def test_the_outcomes_of_a_promoted_replica_are_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await redriven(store, 1, session=JOE)
    outcomes = JobOutcomes("7-7", 0)
    await outcomes.read_on(store)
    await store.reader.delete(store.keys.facts)  # it lacks them
    monkeypatch.setattr(Store, "generation", "another")
    await outcomes.read_on(store)
    assert (outcomes.reasons, outcomes.is_partial) == ({}, False)
