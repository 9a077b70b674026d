"""What happened to the servers of a store in the last day: a bounded stream, written by the server that it happened to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store import Store

KEPT_MS: Final = 24 * 3_600_000
"""How long they are kept."""
MOST: Final = 2000
"""Events that are kept; of more, the oldest leave."""


def write(k: Keys, event: Mapping[str, Any]) -> Step[str]:
    """Append an event. Returns its id."""
    return Step("server_event", (k.server_events,), (MOST, KEPT_MS, orjson.dumps(event)), bytes.decode)


async def last_day(store: Store, now_ms: int) -> list[dict[str, Any]]:
    """Return the events of the last day, the oldest first. Raises StoreError."""
    answer: Any = await store.reader.xrange(store.keys.server_events, f"{max(now_ms - KEPT_MS, 0)}-0", "+", count=MOST)
    return [orjson.loads(fields[b"d"]) for _, fields in answer]
