"""How many of the messages that a receiver has rejected other receivers have taken, as the newest facts have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import EndReason
from crewel.storage.message_facts import EARLIER_MS
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

_PORTION: Final = 200
_MOST_READ: Final = 4000
"""Facts that one call reads: some 50 ms of this process, with turns for others."""


class Taken(NamedTuple):
    """What other receivers did with so many messages."""

    taken: int
    refused: int
    """Messages that became dead letters of others, and that none of them took."""
    of: int


async def taken_elsewhere(store: Store, rejected: Mapping[str, Iterable[str]]) -> dict[str, Taken]:
    """Return for each receiver what others did with these messages, by id. Those that are not stored are left out, and so is a
    receiver of which there are no others. Raises StoreError."""
    wanted = {name: {int(each) for each in ids if each.isdecimal()} for name, ids in rejected.items()}
    wanted = {name: ids for name, ids in wanted.items() if ids}
    if not wanted:
        return {}
    every = set[int]().union(*wanted.values())
    low = f"{max(min(every) // 1000 - EARLIER_MS, 0)}-0"  # nothing has ended before it was published
    ends = _Ends(every)
    async for _, entry in Walk(store, store.keys.facts, low, newest_first=True, portion=_PORTION, most=_MOST_READ):
        if entry[b"t"] == b"ended":
            ends.note(orjson.loads(entry[b"d"]))
    return {name: ends.beside(name, ids) for name, ids in wanted.items()}


class _Ends:
    """Which sessions have taken these messages, and of which they are dead letters."""

    def __init__(self, ids: set[int]) -> None:
        self._ids = ids
        self._by_reason: dict[str, dict[int, set[str]]] = {
            reason.value: {each: set() for each in ids} for reason in (EndReason.SETTLED, EndReason.DEAD)
        }

    def note(self, fields: Mapping[str, Any]) -> None:
        for each in fields["ended"]:
            found = self._by_reason.get(each["reason"])
            if found is not None:
                for message in self._ids.intersection(each["ids"]):
                    found[message].add(each["session"])

    def beside(self, name: str, ids: set[int]) -> Taken:
        taken, refused = (
            {each for each in ids if self._by_reason[reason][each] - {name}}
            for reason in (EndReason.SETTLED, EndReason.DEAD)
        )
        return Taken(len(taken), len(refused - taken), len(ids))
