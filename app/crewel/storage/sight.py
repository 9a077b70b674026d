"""What one reader may see of the store's streams, and how far one call reads for them.

Entries of channels that a reader does not see do not count: neither in a page, nor as the reason why it is short. So for a
reader of some channels the bound is a time, not a number of entries.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

READING_S: Final = 3.0
"""How long one request reads for a reader of some channels, in turns of the event loop."""


class Sight:
    """What a reader sees, while one request lasts."""

    def __init__(self, covers: Callable[[str], bool] | None = None) -> None:
        """`covers`: whether the reader sees this channel; without it, all."""
        self._covers = covers
        self._known: dict[str, bool] = {}
        self._until = perf_counter() + READING_S

    def has(self, channel: str) -> bool:
        """Whether the reader sees messages of this channel."""
        if self._covers is None:
            return True
        known = self._known.get(channel)
        if known is None:
            known = self._known[channel] = self._covers(channel)
        return known

    @property
    def is_whole(self) -> bool:
        """Whether the reader sees all there is."""
        return self._covers is None

    def is_spent(self, read: int, most: int) -> bool:
        """Whether a call has read enough: so many entries of `most`, or for as long as it may."""
        return read >= most if self._covers is None else perf_counter() >= self._until


WHOLE: Final = Sight()
"""That of a reader who sees all."""
