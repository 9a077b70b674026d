"""What became of the messages that a job has redriven, as the facts tell it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import LogId, SessionName
from crewel.event_loop import Turns
from crewel.storage.store import Store

_PORTION: Final = 200
_MOST_READ: Final = 10_000
"""Facts that one call reads."""


class JobOutcomes(NamedTuple):
    """How the messages of one job ended."""

    reasons: dict[LogId, str]
    """By the new id of each message that went to one receiver, the reason for its end; empty while it is open."""
    is_partial: bool
    """Whether there are more facts than one call reads: then later ones may be missing."""


async def outcomes_of_job(store: Store, job_id: str, since_ms: int) -> JobOutcomes:
    """Return how the messages ended that this job redrove to their receivers after this time. Raises StoreError."""
    needle, turns = f'"job":"{job_id}"'.encode(), Turns()
    receivers: dict[LogId, SessionName] = {}
    reasons: dict[LogId, str] = {}
    low, read = f"{since_ms}-0", 0
    while read < _MOST_READ:
        entries: Any = await store.reader.xrange(store.keys.facts, low, count=_PORTION)
        for _, entry in entries:
            kind, text = entry[b"t"], entry[b"d"]
            if kind == b"redriven" and needle in text:
                fields = orjson.loads(text)
                if "session" in fields:
                    receivers[fields["id"]] = fields["session"]
                    reasons[fields["id"]] = ""
            elif kind == b"ended" and receivers:
                for each in orjson.loads(text)["ended"]:
                    for log_id in receivers.keys() & set(each["ids"]):
                        if receivers[log_id] == each["session"]:
                            reasons[log_id] = each["reason"]
            await turns.rest()
        read += len(entries)
        if len(entries) < _PORTION:
            return JobOutcomes(reasons, is_partial=False)
        low = f"({entries[-1][0].decode()}"
    return JobOutcomes(reasons, is_partial=True)
