"""What has changed lately, so that a copy of something large can be brought up to date without reading all of it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MAX_CHANGES: Final = 1024
"""Changes that are remembered. A copy that lacks more is made again."""


class Changes(Generic[T]):
    """The items that changed last, oldest first."""

    __slots__ = ("_items", "version")

    def __init__(self) -> None:
        self._items: list[T] = []
        self.version = 0
        """How many changes there ever were."""

    def note(self, item: T) -> None:
        """This item has changed."""
        self.version += 1
        self._items.append(item)
        if len(self._items) > MAX_CHANGES:
            del self._items[: MAX_CHANGES // 2]

    def since(self, version: int) -> Sequence[T] | None:
        """The items that changed after this version, some of them repeatedly; None if not all of them are remembered."""
        missing = self.version - version
        if missing > len(self._items):
            return None
        return self._items[len(self._items) - missing :]
