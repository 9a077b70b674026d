"""Timelines of receivers: bounded rings, made only for receivers with trouble."""

from __future__ import annotations

import tracemalloc

import pytest

from crewel.admin import timeline
from crewel.admin.timeline import MOST_EVENTS, Timelines

NAME = "client/joe/1"


def test_the_same_again_is_counted() -> None:
    now = 1.0
    lines = Timelines(lambda: now)
    lines.add("failed", NAME, {"code": "x", "id": "1"})
    now = 2.0
    lines.add("failed", NAME, {"code": "x", "id": "2"})
    now = 3.0
    lines.add("failed", NAME, {"code": "y", "id": "3"})
    assert lines.of(NAME) == (
        [
            {"code": "y", "id": "3", "what": "failed", "since": 3000, "at": 3000, "count": 1},
            {"code": "x", "id": "2", "what": "failed", "since": 1000, "at": 2000, "count": 2},
        ],
        0,
    )


def test_a_receiver_without_trouble_has_none() -> None:
    lines = Timelines()
    for what in ("opened", "back", "closed"):
        lines.add(what, NAME, {})
    assert lines.of(NAME) is None
    lines.add("held", NAME, {"who": "ann"})
    lines.add("closed", NAME, {})
    told = lines.of(NAME)
    assert told is not None
    assert [event["what"] for event in told[0]] == ["closed", "held"]


def test_rings_and_receivers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_RECEIVERS", 2)
    lines = Timelines()
    for number in range(MOST_EVENTS + 3):
        lines.add("failed", "client/a/1", {"code": str(number)})
    told = lines.of("client/a/1")
    assert told is not None
    assert (len(told[0]), told[1], told[0][-1]["code"]) == (MOST_EVENTS, 3, "3")
    lines.add("held", "client/b/1", {})
    lines.add("released", "client/a/1", {})
    lines.add("held", "client/c/1", {})
    assert [lines.of(f"client/{name}/1") is not None for name in "abc"] == [True, False, True]


def test_events_in_a_row_share_the_subscriptions_of_their_receiver() -> None:
    channels = [f"/orders/{number}" for number in range(100)]
    lines = Timelines(channels_of=lambda name, message_id: (frozenset(channels), "/orders/1"))
    tracemalloc.start()
    try:
        for number in range(MOST_EVENTS):
            lines.add("failed", NAME, {"code": str(number)})
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 60_000  # a set of 100 has 8 kB
    told, _ = lines.of(NAME, lambda channel: channel.startswith("/orders")) or ([], 0)
    assert len(told) == MOST_EVENTS
    assert lines.of(NAME, lambda channel: channel != "/orders/1") == ([], 0)
