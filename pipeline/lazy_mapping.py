"""Mappings whose values are made when someone asks for them: a frame that no one asks for costs nothing, not even a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

_T = TypeVar("_T")


class LazyMapping(Mapping[str, _T]):
    """Each value is made once."""

    def __init__(self, makers: Mapping[str, Callable[[], _T]]) -> None:
        self._makers = makers
        self._made: dict[str, _T] = {}

    def __getitem__(self, name: str) -> _T:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
