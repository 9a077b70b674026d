"""A walk through a stream of the store, in portions and in turns of the event loop, as far as one call may read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from crewel.event_loop import Turns
from crewel.storage.sight import WHOLE, Sight
from crewel.storage.store import Store

Fields = Mapping[bytes, bytes]


@dataclass(eq=False)
class Walk:
    """The entries between two ids, one by one: the number with which its id begins, milliseconds or a log id, and its fields.

    It ends with the last of them, or once about `most` were read; for a sight of some channels, once its time has expired. One
    portion is read in any case, so that walk after walk comes to the end. Raises StoreError.
    """

    store: Store
    stream: str
    low: str = "-"
    high: str = "+"
    after: str = ""
    """The id behind which it begins; then the id of the entry that came last."""
    newest_first: bool = False
    portion: int = 500
    """Entries that the store is asked for at once."""
    most: int = 20_000
    sight: Sight = WHOLE
    is_whole: bool = field(default=False, init=False)
    """Whether it has come to the end."""

    def __post_init__(self) -> None:
        self._turns, self._read = Turns(), 0
        self._entries: Iterator[tuple[bytes, Fields]] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, Fields]:
        await self._turns.rest()
        while (entry := next(self._entries, None)) is None:
            if self.is_whole or (self._read and self.sight.is_spent(self._read, self.most)):
                raise StopAsyncIteration
            await self._read_on()
        self.after = entry[0].decode()
        return int(entry[0].partition(b"-")[0]), entry[1]

    async def _read_on(self) -> None:
        reader, behind = self.store.reader, f"({self.after}"
        found: Any
        if self.newest_first:
            high = behind if self.after else self.high
            found = await reader.xrevrange(self.stream, high, self.low, count=self.portion)
        else:
            low = behind if self.after else self.low
            found = await reader.xrange(self.stream, low, self.high, count=self.portion)
        await self._turns.end()  # the store answers many readers together
        self._entries, self._read, self.is_whole = iter(found), self._read + len(found), len(found) < self.portion
