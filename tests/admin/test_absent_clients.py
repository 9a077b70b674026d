"""A client that is not there is away, however long its session may live: no advice is given to a program that does not run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from crewel.admin import receiver_facts
from crewel.admin.receiver_facts import standing_of
from tests.admin.test_rejecting_receivers import JOE, Operator
from tests.broker.stored_world import Receiver, StoredWorld, ok, store

pytestmark = pytest.mark.store

LONG = "bayeux.max_interval_ms=600000"
"""A session lives for ten minutes without a connect, as those of telephones do."""


@pytest.fixture
def long_lived() -> Iterator[StoredWorld]:
    world = StoredWorld(LONG)
    yield world
    world.close()


@pytest.fixture
def operator(long_lived: StoredWorld) -> Operator:
    return Operator(long_lived)


def stands(operator: Operator, receiver: Receiver) -> dict[str, Any]:
    return standing_of(operator.admin, receiver.session)


def test_a_client_without_a_connect_for_half_a_minute_is_away_and_not_slow(
    long_lived: StoredWorld, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    joe = Receiver(long_lived).started("/a", name="joe/1", settle="message", maxOpen=1)
    store(long_lived, "/a", 1, 2, 3)
    assert joe.take()
    assert stands(operator, joe)["conditions"] == ["connected"]
    last_seen = joe.session.last_seen
    long_lived.advance(29)
    assert stands(operator, joe)["conditions"] == ["connected"]
    long_lived.advance(2)
    real = time.time
    monkeypatch.setattr(receiver_facts, "time", lambda: real() + 90)  # its oldest message has waited for so long
    view = stands(operator, joe)
    assert (view["conditions"], view["cause"]) == (["away"], "its client is away")
    assert view["since"] == pytest.approx(operator.admin.clock_ms(last_seen), abs=1500)
    found = operator.findings()
    assert "behind" not in found
    assert found["away"]["title"] == f"{JOE} is away, 3 messages waiting"
    joe.take(*map(ok, joe.take()))
    assert "away" not in stands(operator, joe)["conditions"]


def test_a_client_that_has_asked_for_a_long_pause_is_there_during_it(
    long_lived: StoredWorld, operator: Operator
) -> None:
    joe = Receiver(long_lived).started("/a", name="joe/1")
    joe.session.advise(interval_ms=120_000)
    joe.take()
    long_lived.advance(149)
    assert stands(operator, joe)["conditions"] == ["connected"]
    long_lived.advance(2)
    assert stands(operator, joe)["conditions"] == ["away"]


def test_a_queue_that_was_drained_does_not_bring_its_client_back(long_lived: StoredWorld, operator: Operator) -> None:
    joe = Receiver(long_lived).started("/a", name="joe/1", queue={"maxEntries": 3})
    store(long_lived, "/a", 1, 2, 3)
    long_lived.advance(60)
    assert stands(operator, joe)["conditions"] == ["full", "away"]
    long_lived.wait(long_lived.broker.mailboxes.dispatchers.drain(joe.session))
    assert stands(operator, joe)["conditions"] == ["away"]
