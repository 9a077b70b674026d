"""The first of a large number in their order; and pages of lists that are sorted, found in turns of the event loop."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterable, Callable, Mapping
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from crewel.admin.request_fields import PAGE
from crewel.errors import IllegalArgument

T = TypeVar("T")

Place = tuple[int, str]
"""A number to sort by, and the name."""
_AT_ONCE: Final = 500
_NEVER_MS: Final = 10**14
"""Later than any message."""


class First(Generic[T]):
    """The first so many of what is added, in their order. What cannot be among them goes now and then, so that there is never
    much to sort: to sort all of it at once would hold the loop."""

    def __init__(self, count: int, key: Callable[[T], Any] = lambda item: item) -> None:
        """`key`: by what they are compared; the items unless given."""
        self._count, self._key = count, key
        self._found: list[T] = []
        self._beaten: Any = None  # what only better ones can replace
        self.added = 0
        """How many there were."""

    def admits(self, key: Any) -> bool:
        """Whether an item with this key can be among the first. If not, there were more than those already."""
        return self._beaten is None or bool(key < self._beaten)

    def add(self, item: T) -> None:
        """Take one more into account."""
        self._found.append(item)
        self.added += 1
        if len(self._found) >= self._count + _AT_ONCE:
            self._found = self.items()
            self._beaten = self._key(self._found[-1])

    def items(self) -> list[T]:
        """The first of those so far."""
        return heapq.nsmallest(self._count, self._found, key=self._key)


async def sorted_page(
    fields: Mapping[str, Any],
    items: AsyncIterable[T],
    ranked: Callable[[T], tuple[Any, str]],
    is_wanted: Callable[[T], bool] = lambda item: True,
) -> tuple[list[T], str]:
    """The items of the page that these fields ask for, and the cursor of the next page, empty if this is the last. `ranked`:
    what an item is sorted by, unless by name, and its name. It is asked of all items, and `is_wanted` only of those that
    could be on the page: most of very many could not. Raises IllegalArgument."""
    sort = fields.get("sort", "name")
    after = place_of(fields.get("after"), sort)
    found: First[tuple[Place, T]] = First(fields.get("count", PAGE), key=itemgetter(0))
    async for item in items:
        place = place_in_order(sort, *ranked(item))
        if (after is None or place > after) and found.admits(place) and is_wanted(item):
            found.add((place, item))
    page = found.items()
    return [item for _, item in page], cursor(page[-1][0], sort) if found.added > len(page) else ""


def place_in_order(sort: str, value: Any, name: str) -> Place:
    """The place of a row with this value of what the list is sorted by: the largest first, of times the oldest; rows that are
    equal in that, by name."""
    if sort == "name":
        return 0, name
    return ((value or _NEVER_MS) - _NEVER_MS if sort == "oldest" else -(value or 0)), name


def cursor(place: Place, sort: str) -> str:
    """What the next page is asked for with: it begins behind this place."""
    return place[1] if sort == "name" else f"{-place[0]}:{place[1]}"


def place_of(text: str | None, sort: str) -> Place | None:
    """The place that a cursor stands for. Raises IllegalArgument."""
    if text is None or sort == "name":
        return None if text is None else (0, text)
    number, colon, name = text.partition(":")
    if not (colon and number.isascii() and number.isdigit()):
        raise IllegalArgument("after", "must be the `next` of a page with the same `sort`")
    return -int(number), name
