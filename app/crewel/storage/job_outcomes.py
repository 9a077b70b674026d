"""How the messages ended that a job has redriven, by the facts."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import orjson

from crewel.delivery.records import LogId, SessionName
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

_PORTION: Final = 200
_MOST_READ: Final = 10_000
"""Facts that one call reads."""
_MOST_KNOWN: Final = 100_000
"""Messages of one job that are remembered, with some 150 bytes each."""


class JobOutcomes:
    """How the messages of one job ended. The facts are read a part at a time and each once, so that asking again costs little,
    and comes to the end however many facts there are."""

    def __init__(self, job_id: str, since_ms: int) -> None:
        """`since_ms`: no fact of the job is older."""
        self.reasons: dict[LogId, str] = {}
        """By the new id of each message that went to one receiver, the reason for its end; empty while it is open."""
        self.is_partial = True
        """Whether there are more facts than have been read, or more messages than are remembered."""
        self.read_to_ms = since_ms
        """When the last fact was written that has been read, by the store's clock: milliseconds since 1970."""
        self._needle, self._since_ms = f'"job":"{job_id}"'.encode(), since_ms
        self._receivers: dict[LogId, SessionName] = {}  # of those that are open
        self._after = ""
        self._has_left_out = False
        self._generation: object = None
        self._lock = asyncio.Lock()

    async def read_on(self, store: Store) -> None:
        """Read the facts that have come since, as many as one call may read. Raises StoreError."""
        async with self._lock:
            if self._generation != store.generation:
                self._begin_again(store.generation)
            self.is_partial = not await self._read_to_end(store) or self._has_left_out

    def _begin_again(self, generation: object) -> None:
        """The store is another, or has lost its end: what was read may not be what it has."""
        self.reasons, self._receivers = {}, {}
        self._generation, self._after, self._has_left_out = generation, "", False
        self.read_to_ms = self._since_ms

    async def _read_to_end(self, store: Store) -> bool:
        """Whether there are no more facts."""
        low = f"{self._since_ms}-0"
        facts = Walk(store, store.keys.facts, low, after=self._after, portion=_PORTION, most=_MOST_READ)
        async for at_ms, entry in facts:
            self._take(entry[b"t"], entry[b"d"])
            self._after, self.read_to_ms = facts.after, at_ms
        return facts.is_whole

    def _take(self, kind: bytes, text: bytes) -> None:
        if kind == b"redriven" and self._needle in text:
            fields = orjson.loads(text)
            if "session" not in fields:
                return
            if len(self.reasons) >= _MOST_KNOWN:
                self._has_left_out = True
                return
            self._receivers[fields["id"]] = fields["session"]
            self.reasons[fields["id"]] = ""
        elif kind == b"ended" and self._receivers:
            for each in orjson.loads(text)["ended"]:
                for log_id in self._receivers.keys() & set(each["ids"]):
                    if self._receivers[log_id] == each["session"]:
                        del self._receivers[log_id]
                        self.reasons[log_id] = sys.intern(each["reason"])
