"""The first of very many, found without sorting all of them at once; and pages of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from operator import itemgetter

import pytest

from crewel.admin.paging import First, sorted_page


@pytest.mark.parametrize("count", [1, 5, 1000])
@pytest.mark.parametrize("many", [0, 4, 499, 506, 3000])
def test_the_first_of_many_are_those_that_sorting_all_gives(many: int, count: int) -> None:
    numbers = random.Random(many + count).choices(range(2000), k=many)
    found = First[int](count)
    for number in numbers:
        found.add(number)
    assert found.items() == sorted(numbers)[:count]
    assert found.added == many


def test_what_is_not_admitted_is_not_among_the_first() -> None:
    numbers = random.Random(1).choices(range(2000), k=3000)
    found, admitted = First[int](5), list[int]()
    for number in numbers:
        if found.admits(number):
            admitted.append(number)
            found.add(number)
    assert found.items() == sorted(numbers)[:5]
    assert len(admitted) < len(numbers) / 5


def test_what_is_equal_by_its_key_stays_in_the_order_in_which_it_came() -> None:
    found: First[tuple[int, int]] = First(3, key=itemgetter(0))
    for number in range(2000):
        found.add((number % 2, number))
    assert found.items() == [(0, 0), (0, 2), (0, 4)]


def test_no_more_is_kept_than_one_sorting_takes() -> None:
    found = First[int](5)
    for number in range(10_000):
        found.add(number)
        assert len(found._found) <= 5 + 500


@pytest.mark.parametrize(
    ("sort", "order"), [("name", ["a", "b", "c", "d", "e"]), ("waiting", ["c", "a", "d", "b", "e"])]
)
@pytest.mark.parametrize("count", [1, 2, 5, 6])
async def test_pages_have_each_row_once_in_their_order(sort: str, order: list[str], count: int) -> None:
    waiting = {"e": 0, "d": 7, "c": 9, "b": 5, "a": 7}

    async def rows() -> AsyncIterator[str]:
        for name in waiting:
            yield name

    found: list[str] = []
    fields = {"sort": sort, "count": count}
    while True:
        page, following = await sorted_page(fields, rows(), lambda name: (waiting[name], name))
        assert len(page) <= count
        found += page
        if not following:
            break
        fields = {**fields, "after": following}
    assert found == order


@pytest.mark.parametrize("count", [1, 100])
async def test_of_very_many_rows_few_are_looked_at(count: int) -> None:
    """A list of all sessions costs little more than to read their names."""
    names = [f"{number:05}" for number in range(20_000)]
    even, looked = set(names[::2]), list[str]()
    random.Random(count).shuffle(names)

    async def rows() -> AsyncIterator[str]:
        for name in names:
            yield name

    def is_even(name: str) -> bool:
        looked.append(name)
        return name in even

    found: list[str] = []
    fields: dict[str, object] = {"count": count}
    for _ in range(3):
        page, following = await sorted_page(fields, rows(), lambda name: (None, name), is_even)
        found += page
        fields["after"] = following
    assert found == sorted(even)[: 3 * count]
    assert len(looked) < 3 * len(names) / 5
