"""A server with a defect, for tests of the audit: `--service=tests.pipeline.forgetting` makes it forget one message that one
session is owed. It is not sent, nothing is told of it, and its place goes by; only the file `forgotten` says which it was."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from pathlib import Path

from crewel import Service
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import LogId

RECEIVER = "client/good/2"
NUMBER = 700
"""Which one of those that it is owed, from 1."""
NOTE = "forgotten"

forgetting = Service("forgetting")
_owed = count(1)
_wants = DurableSession.wants
_receives_all = DurableSession.receives_all


def _forgets(self: DurableSession, patterns: Collection[str], log_id: LogId) -> bool:
    is_owed = _wants(self, patterns, log_id)
    if is_owed and self.name == RECEIVER and next(_owed) == NUMBER:
        Path(NOTE).write_text(str(log_id))
        return False
    return is_owed


def _is_asked_each_time(self: DurableSession, patterns: Collection[str], cursor: LogId) -> bool:
    return self.name != RECEIVER and _receives_all(self, patterns, cursor)


DurableSession.wants = _forgets  # type: ignore[method-assign]
DurableSession.receives_all = _is_asked_each_time  # type: ignore[method-assign]
