"""Pages of long lists that are sorted: the first so many behind a place, found in turns of the event loop."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from operator import itemgetter
from typing import Final, TypeVar

from crewel.errors import IllegalArgument

T = TypeVar("T")

Place = tuple[int, str]
"""A number to sort by, and the name."""
_AT_ONCE: Final = 500


async def first(items: AsyncIterator[tuple[Place, T]], count: int) -> tuple[list[tuple[Place, T]], bool]:
    """The first so many of these in the order of their places, and whether there are more. Sorting all of them at once would
    hold the loop."""
    found: list[tuple[Place, T]] = []
    async for item in items:
        found.append(item)
        if len(found) >= count + _AT_ONCE:
            found = heapq.nsmallest(count + 1, found, key=itemgetter(0))
    found = heapq.nsmallest(count + 1, found, key=itemgetter(0))  # one more shows whether there is a next page
    return found[:count], len(found) > count


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
