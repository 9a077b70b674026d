"""The order in which messages wait for one receiver: by priority, and within one priority by age (design, section 4).

Bodies wait in a queue of entries, places in a sorted list of ranks. What is being sent again, at the queue's front, stays
there: whatever comes goes behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId
from crewel.qos.publish import NORMAL

_SPAN: Final = 1 << 56
"""Beyond the places of one priority: microseconds since 1970 stay below it until the year 4253."""


def rank_of(place: LogId, priority: int) -> int:
    """A number by which places sort: what goes first has the lower one. Of the usual priority it is the place itself."""
    return place if priority == NORMAL else (NORMAL - priority) * _SPAN + place


def place_of(rank: int) -> LogId:
    """The place that has this rank."""
    return LogId(rank % _SPAN)


def priority_of(rank: int) -> int:
    """The priority that it tells."""
    return NORMAL - rank // _SPAN


def insert(queue: list[Entry], entry: Entry, front: int) -> None:
    """Put the entry into the queue, behind all that has its priority or a higher one, and behind the `front` ones."""
    position = len(queue)
    while position > front and queue[position - 1].priority < entry.priority:
        position -= 1
    queue.insert(position, entry)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries by their priority; those of one priority stay as they are."""
    return sorted(entries, key=_descending)


def least(queue: list[Entry], front: int) -> int | None:
    """Where the entry lies that gives way first, beyond the `front` ones: the oldest of the lowest priority. None if there is
    none."""
    if len(queue) <= front:
        return None
    return bisect_left(queue, _descending(queue[-1]), front, key=_descending)


def comes_before(place: LogId, priority: int, queue: Iterable[Entry]) -> bool:
    """Whether a message of this place and priority goes before something that is stored and lies in the queue."""
    rank = rank_of(place, priority)
    return any(rank < rank_of(entry.position, entry.priority) for entry in queue if entry.position)


def _descending(entry: Entry) -> int:
    return -entry.priority
