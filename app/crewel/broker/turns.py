"""Long work in portions, so that everything else has its turn in between."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

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
