"""How long messages usually take to be acknowledged by a receiver, as the facts tell it."""

from __future__ import annotations

from typing import Any

import orjson

from crewel.storage import session_pace
from crewel.storage.session_pace import usual_times
from crewel.storage.store import Store

AT_MS = 1_800_000_000_000
AFTER_MS = AT_MS + 60_000


async def acknowledged(store: Store, at_ms: int, session: str, *took_ms: int, reason: str = "settled") -> None:
    """At this time the session has acknowledged messages that were published so long before."""
    ids = [str((at_ms - each) * 1000) for each in took_ms]
    fact = {"ended": [{"session": session, "reason": reason, "ids": ids}]}
    await store.reader.xadd(store.keys.facts, {"t": "ended", "d": orjson.dumps(fact)}, id=f"{at_ms}-0")


async def test_the_usual_time_is_the_median_of_what_was_acknowledged_last(store: Store) -> None:
    await acknowledged(store, AT_MS, "client/joe/1", 40, 50, 9000)
    await acknowledged(store, AT_MS + 1, "client/joe/1", 60, 45)
    await acknowledged(store, AT_MS + 2, "client/ann/1", 7, reason="dead")
    await acknowledged(store, AT_MS + 3, "client/sue/1", 3)
    assert await usual_times(store, {"client/joe/1": AFTER_MS, "client/ann/1": AFTER_MS}) == {"client/joe/1": 50}
    assert await usual_times(store, {}) == {}


async def test_a_receiver_that_is_stuck_for_long_is_found_behind_the_facts_of_others(
    store: Store, monkeypatch: Any
) -> None:
    monkeypatch.setattr(session_pace, "_LARGE_PORTION", 3)
    monkeypatch.setattr(session_pace, "_MOST_READ_FOR_ALL", 12)
    await acknowledged(store, AT_MS, "client/old/1", 5)
    await acknowledged(store, AT_MS + 1, "client/joe/1", 20)
    for number in range(11):
        await acknowledged(store, AT_MS + 2 + number, "client/sue/1", 3)
    assert await usual_times(store, {"client/joe/1": AFTER_MS, "client/old/1": AFTER_MS}) == {"client/joe/1": 20}


async def test_what_is_usual_is_from_before_a_receiver_became_slow(store: Store) -> None:
    await acknowledged(store, AT_MS, "client/joe/1", 40, 50, 60)
    await acknowledged(store, AT_MS + 100, "client/ann/1", 7)
    for number in range(20):
        await acknowledged(store, AT_MS + 1000 + number, "client/joe/1", 90_000)
    await acknowledged(store, AT_MS + 3000, "client/sue/1", 90_000)
    slow = {"client/joe/1": AT_MS + 1000, "client/ann/1": AT_MS + 5000, "client/sue/1": AT_MS + 3000}
    assert await usual_times(store, slow) == {"client/joe/1": 50, "client/ann/1": 7}
