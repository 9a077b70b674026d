"""Long work in portions, so that everything else has its turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

LONGEST_S: Final = 0.01
"""Seconds of the event loop that one portion takes, and what a single step of it takes longer."""


class Turns:
    """The turns of one piece of long work. Call `rest` after each short step."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def rest(self) -> None:
        """Let others work, if this turn has been long enough."""
        if perf_counter() - self._began >= LONGEST_S:
            await asyncio.sleep(0)
            self._began = perf_counter()


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one, with a turn for others whenever this one has been long enough. What there is to be had is
    looked up before the first, so the items may come and go meanwhile."""
    turns = Turns()
    for item in list(items):
        yield item
        await turns.rest()
