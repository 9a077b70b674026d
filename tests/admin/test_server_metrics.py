"""A figure that is declared is kept or read by something, and only declared ones are: else `/metrics` would say 0 for ever."""

from __future__ import annotations

import pytest

from crewel import metrics
from crewel.admin.administration import Administration
from crewel.metrics import GAUGES, Declared, Metrics
from tests.broker.stored_world import StoredWorld

ELSEWHERE = {"tasks", "connections", "sockets", "nodes", "forwarded_open", "tail_on_replica"}
"""Gauges of what a broker alone does not have: transports, and other nodes."""


@pytest.mark.parametrize("label", [None, "code"])
def test_a_counter_that_nothing_keeps_is_an_error(label: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    misspelt = Declared("crewel_publishs_total", "counter", "Publishes.", label)
    monkeypatch.setattr(metrics, "DECLARED", (*metrics.DECLARED, misspelt))
    with pytest.raises(AttributeError, match="publishs"):
        Metrics().exposition()


def test_a_gauge_that_is_not_declared_is_an_error() -> None:
    async def count() -> float:
        return 1.0

    with pytest.raises(ValueError, match="helds is not the name of a declared gauge"):
        Metrics().gauge("helds", lambda: 1.0)
    with pytest.raises(ValueError, match="publishes is not the name of a declared gauge"):
        Metrics().count("publishes", count)


@pytest.mark.store
def test_each_gauge_is_read_by_something(stored: StoredWorld) -> None:
    Administration(stored.broker)
    known = stored.broker.metrics
    assert GAUGES - known._gauges.keys() - known._counts.keys() == ELSEWHERE
