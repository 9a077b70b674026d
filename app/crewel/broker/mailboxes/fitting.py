"""How much of a queue one response carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crewel.delivery.entry import Entry
    from crewel.qos.connect import Burst


def fitting(queue: list[Entry], burst: Burst, max_bytes: int) -> tuple[int, int]:
    """How many entries from the front of the queue fit, at least one, and their bytes."""
    size, most = 0, burst.max_entries or len(queue)
    if burst.max_bytes is not None and burst.max_bytes < max_bytes:
        max_bytes = burst.max_bytes
    for count, entry in enumerate(queue):
        more = len(entry.wire)
        if count and (count >= most or size + more + count + 1 > max_bytes):  # a comma behind each
            return count, size
        size += more
    return len(queue), size
