"""The messages in the queues of all sessions, and what one queue may have of the memory for them."""

from __future__ import annotations

from typing import Final

from crewel.delivery.entry import Entry
from crewel.settings.access import Limits

OVERHEAD: Final = 400
"""Bytes that an entry takes in addition to its body, about."""


class Backlog:
    """The messages in the queues of all sessions, each body once however many queues have it; `size` in bytes.

    A body is weighed when the first queue takes it, and counts until the last reference to its entry is gone. So nothing has to
    be said when an entry leaves a queue, which happens in many places.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.size = 0
        self.is_full = False
        """Whether all queues together have more than they may."""
        self.sessions = 0
        """Sessions that share the room; the sweep sets it, so it may be a little old."""

    def weigh(self, entry: Entry) -> None:
        """Count the body of this entry from now on."""
        size = len(entry.wire) + OVERHEAD
        entry.weight = _Weight(self, size)
        self.change(size)

    def change(self, size: int) -> None:
        """So many bytes wait more, or less."""
        self.size += size
        self.is_full = 0 < self._limits.max_queued_bytes < self.size

    def share(self, most: int) -> int:
        """The bytes that one queue may have whose own limit is `most`: less, if all together have too much. So those
        with little still accept messages, and those that have filled the memory make room."""
        if not self.is_full:
            return most
        return min(most, self._limits.max_queued_bytes // max(self.sessions, 1))


class _Weight:
    """The bytes of one body, for as long as an entry refers to it."""

    __slots__ = ("_backlog", "_size")

    def __init__(self, backlog: Backlog, size: int) -> None:
        self._backlog = backlog
        self._size = size

    def __del__(self) -> None:
        self._backlog.change(-self._size)
