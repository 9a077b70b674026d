"""What the store has put past the log, into inboxes, and has given ids of the log: each is taken in its place there.

The log does not show these messages to the node whose sessions have them. So a node that has been answered about one keeps it
here until all that lies before it in the log was taken. Otherwise it would overtake what other nodes have appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from crewel.delivery.records import LogId

T = TypeVar("T")


class BesideLog(Generic[T]):
    """The messages that wait for their places. It is true while anything does."""

    def __init__(self) -> None:
        self._waiting: list[tuple[LogId, int, T]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log_id: LogId, what: T) -> None:
        """Keep this until its place has come; of one place what was added first comes first."""
        heappush(self._waiting, (log_id, next(self._numbers), what))

    def take(self, last: LogId) -> Iterator[tuple[LogId, T]]:
        """Yield what has its place at or before this id, in order, and forget it. The caller has taken what the log has before
        each of them."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            log_id, _, what = heappop(waiting)
            yield log_id, what
