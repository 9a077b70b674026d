"""The last hour: samples of the figures, and percentiles from buckets."""

from __future__ import annotations

from math import isnan

import pytest

from crewel.admin.administration import Administration
from crewel.admin.metrics_history import COLUMNS, KEPT, percentile
from crewel.storage.streams import BUCKETS_MS
from tests.broker.stored_world import Receiver, StoredWorld, store
from tests.broker.world import Client, Socket


def buckets(**counts: int) -> list[int]:
    """Counts by bucket: `b0=3`."""
    return [counts.get(f"b{place}", 0) for place in range(len(BUCKETS_MS) + 1)]


@pytest.mark.parametrize(
    ("counted", "share", "expected"),
    [
        (buckets(b0=10), 0.5, 0.5),
        (buckets(b3=10), 0.5, 7.5),  # from 5 to 10 ms
        (buckets(b0=99, b6=1), 0.99, 1.0),
        (buckets(b0=90, b6=10), 0.95, 75.0),
        (buckets(b15=10), 0.99, 60_000),  # somewhere from 1 to 5 minutes: not a guess that looks like a measurement
        (buckets(b0=1, b16=99), 0.5, 300_000),
        (buckets(b17=4), 0.99, BUCKETS_MS[-1]),
    ],
)
def test_percentile_lies_in_its_bucket(counted: list[int], share: float, expected: float) -> None:
    assert percentile(counted, share) == pytest.approx(expected)


def test_percentile_of_nothing_is_unknown() -> None:
    assert isnan(percentile(buckets(), 0.5))


@pytest.mark.store
def test_sample_has_rates_gauges_and_the_backlog(stored: StoredWorld) -> None:
    history = Administration(stored.broker).metrics_history
    Receiver(stored).started("/a/*")
    store(stored, "/a/b", 1, 2, 3)
    stored.wait(history.count_sessions())
    stored.broker.metrics.letters["user"] += 2
    history.sample()
    found = history.since(0)
    assert tuple(found) == COLUMNS
    assert (found["waiting"], found["sessions"]) == ([3], [len(stored.broker.sessions.by_id)])
    assert found["published"][0] > 0
    assert found["deadLetters"][0] > 0
    assert history.since(found["at"][0]) == {name: [] for name in COLUMNS}


@pytest.mark.store
def test_a_session_is_connected_once_and_a_socket_without_one_is_not(stored: StoredWorld) -> None:
    history = Administration(stored.broker).metrics_history
    for socket in (Socket(), Socket(), None):
        person = Client(stored, socket)
        person.handshake()
        kind = "websocket" if socket else "long-polling"
        person.send(person.message("/meta/connect", connectionType=kind, advice={"timeout": 0}))
        person.send(person.message("/meta/connect", connectionType=kind))
    away = Client(stored)
    away.handshake()
    away.connect(advice={"timeout": 0})
    stored.broker.metrics.gauge("sockets", lambda: 3)  # one has not shaken hands
    stored.advance(stored.broker.settings.bayeux.max_interval_ms / 1000 + 1)
    stored.wait(history.count_sessions())
    history.sample()
    found = history.since(0)
    assert stored.broker.metrics.value("held_connects") == 3
    assert (found["sessions"], found["connected"]) == ([4], [3])


@pytest.mark.store
def test_only_messages_that_are_in_no_dead_letter_count_as_dropped(stored: StoredWorld) -> None:
    dropped = stored.broker.metrics.dropped
    dropped["noLetter"] += 5
    history = Administration(stored.broker).metrics_history
    dropped.update(deadMessage=3, noLetter=2, dropOldest=1, disconnect=1)
    assert history.lost == 3
    stored.advance(1.0)
    history.sample()
    assert history.since(0)["dropped"] == [pytest.approx(3, rel=0.1)]
    for _ in range(KEPT):
        history.sample()
    assert history.lost == 0


@pytest.mark.store
def test_samples_of_an_hour_are_kept(stored: StoredWorld) -> None:
    history = Administration(stored.broker).metrics_history
    for _ in range(KEPT + 5):
        history.sample()
    assert len(history.since(0)["at"]) == KEPT


@pytest.mark.store
def test_backlog_is_counted_more_seldom_the_longer_it_takes(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((0.0, 0.02))
    monkeypatch.setattr("crewel.admin.metrics_history.process_time", lambda: next(clock))
    history = Administration(stored.broker).metrics_history
    stored.wait(history.count_sessions())
    stored.wait(history.count_sessions())  # too early: the clock is not asked again
    assert next(clock, None) is None
