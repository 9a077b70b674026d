"""When the log says that the store is slow, and well again."""

import pytest

from crewel.broker.durability.slow_store import WELL_AFTER_S, SlowStore


def test_a_slow_store_is_reported_once_until_it_is_well(caplog: pytest.LogCaptureFixture) -> None:
    store = SlowStore()
    store.took(0.4, limit=0.5, now=10.0)
    assert caplog.messages == []
    for now in (11.0, 12.0, 20.0):
        store.took(0.5, limit=0.5, now=now)
    [slow] = caplog.messages
    assert slow.startswith("the store is slow: a commit took 0.500 s")
    assert "storage.slow_ms" in slow
    store.took(0.1, limit=0.5, now=20.0 + WELL_AFTER_S - 0.1)
    assert caplog.messages == [slow]
    store.took(0.1, limit=0.5, now=20.0 + WELL_AFTER_S)
    assert caplog.messages[1:] == ["the store is fast again: it was slow for 9 s"]
    store.took(0.6, limit=0.5, now=100.0)
    assert len(caplog.messages) == 3


def test_without_a_limit_nothing_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    SlowStore().took(100.0, limit=0.0, now=1.0)
    assert caplog.messages == []
