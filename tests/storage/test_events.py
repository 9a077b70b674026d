"""The stream of events: written in groups, bounded, read back."""

import pytest

from crewel.storage import streams
from crewel.storage.store import Store
from crewel.storage.streams import BUCKETS_MS, EVENTS, Level
from tests.storage.reading import read_events


def group(number: int) -> dict[str, object]:
    return {"v": 1, "node": "heron", "token": "t", "n": number, "from": 1, "until": 2, "lost": 0, "events": []}


async def test_groups_are_read_in_the_order_in_which_they_were_written(store: Store) -> None:
    steps = [streams.write(store.keys, group(number), 1_000_000) for number in (1, 2, 3)]
    assert await store.run(steps) == [None, None, None]
    first, *rest = await read_events(store)
    assert first.fields == group(1)
    assert [each.fields["n"] for each in rest] == [2, 3]
    assert [each.fields["n"] for each in await read_events(store, first.place, 1)] == [2]


async def test_the_stream_keeps_the_newest_up_to_so_many_bytes(store: Store) -> None:
    most, large = 1_000_000, {"events": ["x" * 1000]}
    for start in range(0, 3000, 100):
        await store.run([streams.write(store.keys, group(start + number) | large, most) for number in range(100)])
    used = await store.reader.memory_usage(store.keys.events)
    assert used is not None
    assert 0.5 * most < used < 1.3 * most, "it is an estimate"
    left = await read_events(store, count=10_000)
    assert [each.fields["n"] for each in left] == list(range(3000 - len(left), 3000)), "the oldest go"


async def test_event_group_larger_than_the_bound_is_dropped(store: Store) -> None:
    await store.run([streams.write(store.keys, group(1), 1)])
    assert await read_events(store) == []


@pytest.mark.parametrize(
    ("at", "included"),
    [
        (Level.FAILURES, {Level.FAILURES}),
        (Level.RELIABLE, {Level.FAILURES, Level.RELIABLE}),
        (Level.ALL, {Level.FAILURES, Level.RELIABLE, Level.ALL}),
    ],
)
def test_a_level_includes_those_before_it(at: Level, included: set[Level]) -> None:
    assert {level for level in Level if at.includes(level)} == included


def test_the_schema_names_each_type_and_field_once_and_explains_it() -> None:
    names = [each.name for each in EVENTS]
    assert len(set(names)) == len(names)
    for each in EVENTS:
        assert each.written
        assert all(meaning.endswith(".") for meaning in each.fields.values())
    assert list(BUCKETS_MS) == sorted(set(BUCKETS_MS))
