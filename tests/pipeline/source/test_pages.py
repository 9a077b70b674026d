"""Reading page by page from a real store that trims, goes and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crewel.errors import StoreUnavailable
from crewel.pipeline.connection import Address
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.losses import Gap
from crewel.pipeline.source.pages import Entry, Part, pages
from crewel.pipeline.source.positions import BEGIN, END, EntryId
from tests.pipeline.conftest import Streams
from tests.store_process import StoreProcess


def read(address: Address, part: Part, patience_s: float = 5) -> Iterator[list[Entry] | Gap]:
    extents = Extents(address, patience_s)
    return pages(address, part, lambda: extents.look([part.stream])[part.stream], patience_s)


def numbers(found: list[list[Entry] | Gap]) -> list[int]:
    return [int(fields[3]) for page in found if not isinstance(page, Gap) for _, fields in page]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    store = StoreProcess(tmp_path)
    yield store
    store.close()


def test_a_page_is_what_lies_between_two_ids(streams: Streams) -> None:
    streams.many("facts", 1000, per_ms=10)
    found = list(read(streams.address, Part("facts", EntryId(10, 5), EntryId(20, 5))))
    assert numbers(found) == list(range(95, 195))


def test_pages_grow_and_each_entry_comes_once(streams: Streams) -> None:
    streams.many("facts", 20_000, per_ms=100)
    found = list(read(streams.address, Part("facts", BEGIN, END, is_watched=True)))
    assert numbers(found) == list(range(20_000))
    sizes = [len(page) for page in found if not isinstance(page, Gap)]
    assert sizes[0] < sizes[1] < max(sizes) <= 5000


def test_pages_of_large_entries_are_small(streams: Streams) -> None:
    for _ in range(450):
        streams.add("facts", {"t": "x", "d": b"1" + b" " * 100_000})
    sizes = [len(page) for page in read(streams.address, Part("facts", BEGIN, END)) if not isinstance(page, Gap)]
    assert sum(sizes) == 450
    assert max(sizes[1:]) <= 50


def test_nothing_is_no_page(streams: Streams) -> None:
    assert not list(read(streams.address, Part("facts", BEGIN, END)))
    streams.many("facts", 3)
    assert not list(read(streams.address, Part("facts", EntryId(3, 1), END, True, trimmed=0)))


def test_what_is_trimmed_past_the_reader_leaves_a_gap(streams: Streams) -> None:
    streams.many("facts", 20_000)
    reading = read(streams.address, Part("facts", BEGIN, END, is_watched=True))
    found = [next(reading), next(reading)]
    streams.client.xtrim(streams.keys.facts, minid="15001-0", approximate=False)
    found += reading
    gaps = [each for each in found if isinstance(each, Gap)]
    assert [(gap.before, gap.lost) for gap in gaps] == [(EntryId(15001, 1), None)]
    came = numbers(found)
    assert came == sorted({*came})
    assert {*range(15_000, 20_000)} <= {*came}
    missing = {*range(20_000)} - {*came}
    assert missing == {*range(gaps[0].after.ms, 15_000)}  # entry n has the id (n + 1)-1


def test_what_goes_between_the_planning_and_the_first_page_is_counted(streams: Streams) -> None:
    streams.many("facts", 100)
    streams.client.xtrim(streams.keys.facts, minid="31-0", approximate=False)
    found = list(read(streams.address, Part("facts", EntryId(20, 1), END, True, trimmed=10, count=20)))
    assert found[0] == Gap("facts", EntryId(20, 1), EntryId(31, 1), 10)
    assert numbers(found) == list(range(30, 100))
    unknown = list(read(streams.address, Part("facts", EntryId(20, 1), END, True, trimmed=10)))
    assert unknown[0] == Gap("facts", EntryId(20, 1), EntryId(31, 1), None)


def test_trimming_of_what_was_read_is_no_gap(streams: Streams) -> None:
    streams.many("facts", 100)
    streams.client.xtrim(streams.keys.facts, minid="21-0", approximate=False)
    found = list(read(streams.address, Part("facts", EntryId(20, 1), END, True, trimmed=0, count=20)))
    assert numbers(found) == list(range(20, 100))


def test_reading_goes_on_when_the_store_comes_back(store: StoreProcess) -> None:
    streams = Streams(Address(store.url))
    streams.many("facts", 5000)
    reading = read(streams.address, Part("facts", BEGIN, END, is_watched=True), patience_s=20)
    found = [next(reading)]
    store.kill()
    store.start()
    found += reading
    assert numbers(found) == list(range(5000))
    assert not [each for each in found if isinstance(each, Gap)]


def test_a_store_that_stays_away_is_an_error(store: StoreProcess) -> None:
    streams = Streams(Address(store.url))
    streams.many("facts", 1000)
    store.kill()
    with pytest.raises(StoreUnavailable, match="away for 0 s"):
        list(read(streams.address, Part("facts", BEGIN, END), patience_s=0.2))
