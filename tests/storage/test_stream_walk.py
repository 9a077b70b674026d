"""Walks through a stream: whole, bounded, and one behind the other."""

from __future__ import annotations

import pytest

from crewel.storage import sight
from crewel.storage.sight import Sight
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk


async def filled(store: Store, count: int) -> str:
    """A stream of so many entries, which begin with the numbers from 1."""
    name = f"{store.keys.base}walked"
    for number in range(1, count + 1):
        await store.reader.xadd(name, {"n": number}, f"{number}-0")
    return name


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("portion", [1, 3, 7, 8])
async def test_all_entries_of_a_range_come_in_order(store: Store, newest_first: bool, portion: int) -> None:
    walk = Walk(store, await filled(store, 9), "2-0", "8-0", newest_first=newest_first, portion=portion)
    found = [(at, int(fields[b"n"])) async for at, fields in walk]
    assert found == sorted(((each, each) for each in range(2, 9)), reverse=newest_first)
    assert walk.is_whole


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("seconds", [0.0, 3.0])
async def test_walks_one_behind_the_other_come_to_the_end(
    store: Store, newest_first: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a reader whose time has expired before they begin."""
    monkeypatch.setattr(sight, "READING_S", seconds)
    name, found, walks, after, is_whole = await filled(store, 9), [], 0, "", False
    while not is_whole:
        reader = Sight() if seconds else Sight(lambda _: True)
        walk = Walk(store, name, after=after, newest_first=newest_first, portion=2, most=4, sight=reader)
        found += [at async for at, _ in walk]
        after, is_whole, walks = walk.after, walk.is_whole, walks + 1
    assert found == sorted(range(1, 10), reverse=newest_first)
    assert walks == (3 if seconds else 5)
