"""Which portions of the facts a question about one message reads."""

from typing import Any

import orjson
import pytest

from crewel.admin import message_history
from crewel.delivery.records import LogId
from crewel.storage import fact_index, message_facts
from crewel.storage.fact_index import FactIndex, seconds_of
from crewel.storage.message_facts import facts_of
from crewel.storage.store import Store
from tests.storage.owner import started

SECOND = 1 << 20  # of log ids, as the index distinguishes messages
PORTION, PORTIONS = 4, 10


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_facts, "_AT_ONCE", PORTION)
    monkeypatch.setattr(message_facts, "EARLIER_MS", 3_600_000)


def message(number: int) -> LogId:
    """The message that the fact of this number names."""
    return LogId((1000 + number // PORTION) * SECOND + number)


async def filled(store: Store) -> None:
    """A store with ten portions of facts, each about messages of another second."""
    await started(store)
    await store.reader.delete(store.keys.facts)
    for number in range(PORTIONS * PORTION):
        await add(store, message(number), f"{message(number) // 1000}-{number}")


async def add(store: Store, log_id: int, place: str = "*") -> None:
    fact = {"ended": [{"session": "client/joe/1", "reason": "settled", "ids": [log_id]}]}
    await store.reader.xadd(store.keys.facts, {"t": "ended", "d": orjson.dumps(fact)}, id=place)


async def asked(store: Store, monkeypatch: pytest.MonkeyPatch, log_id: LogId, index: FactIndex) -> tuple[int, int]:
    """How many facts are found, and how many were read."""
    read = 0
    with monkeypatch.context() as patch:
        xrange = store.reader.xrange

        async def counted(*args: Any, **named: Any) -> Any:
            nonlocal read
            entries: Any = await xrange(*args, **named)
            read += len(entries)
            return entries

        patch.setattr(store.reader, "xrange", counted)
        found = await facts_of(store, log_id, index)
    assert not found.is_partial
    return len(found.facts), read


async def test_what_has_been_read_is_read_again_only_where_it_may_name_the_message(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store)
    index, third = FactIndex(), message(3 * PORTION)
    assert await asked(store, monkeypatch, third, index) == (1, PORTIONS * PORTION)
    assert await asked(store, monkeypatch, third, index) == (1, PORTION)
    assert await asked(store, monkeypatch, message(5 * PORTION + 1), index) == (1, PORTION)
    assert await asked(store, monkeypatch, message(20 * PORTION), index) == (0, 0)
    await add(store, third)
    assert await asked(store, monkeypatch, third, index) == (2, PORTION + 1)  # the newest are no whole portion yet


async def test_facts_before_those_that_have_been_read_are_added(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(store)
    index, first = FactIndex(), message(PORTION)
    monkeypatch.setattr(message_facts, "EARLIER_MS", 0)
    assert await asked(store, monkeypatch, message(5 * PORTION), index) == (1, 5 * PORTION)
    assert await asked(store, monkeypatch, first, index) == (1, 4 * PORTION)
    assert await asked(store, monkeypatch, first, index) == (1, PORTION)


async def test_another_generation_of_the_store_is_read_from_its_beginning(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store)
    index = FactIndex()
    await asked(store, monkeypatch, message(PORTION), index)
    index.of("another run")
    assert await asked(store, monkeypatch, message(PORTION), index) == (1, PORTIONS * PORTION)


async def test_what_was_read_before_the_generation_changed_is_not_added(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store)
    index, xrange = FactIndex(), store.reader.xrange

    async def changed(*args: Any, **named: Any) -> Any:
        entries: Any = await xrange(*args, **named)
        index.of("another run")
        return entries

    monkeypatch.setattr(store.reader, "xrange", changed)
    await facts_of(store, message(0), index)
    assert len(index) == 0


async def test_an_index_finds_the_same_as_a_reading_of_all_facts(store: Store) -> None:
    await filled(store)
    index = FactIndex()
    for number in (39, 0, 17, 17, 38, 4, 12):
        found = await facts_of(store, message(number), index)
        assert found == await facts_of(store, message(number), FactIndex())
        assert len(found.facts) == 1


def test_a_portion_of_very_many_times_is_known_by_its_range() -> None:
    index = FactIndex()
    index.add((1, 0), (2, 0), {2 * number for number in range(fact_index._MOST_SECONDS + 1)})
    portion = index.at((1, 0))
    assert portion is not None
    assert [portion.may_name(LogId(second << fact_index._SHIFT)) for second in (1, 2000, 2001)] == [True, True, False]


def test_portions_do_not_overlap_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    index = FactIndex()
    index.add((5, 0), (8, 0), {1})
    index.add((3, 0), (6, 0), {1})  # another question has read from there
    index.add((6, 0), (9, 0), {1})
    assert (len(index), index.at((4, 0)), index.next_start((4, 0))) == (1, None, (5, 0))
    monkeypatch.setattr(fact_index, "_MOST_PORTIONS", 4)
    for number in range(8, 12):
        index.add((number, 0), (number + 1, 0), {number})
    assert (len(index), index.at((5, 0))) == (3, None)


NAMED: dict[str, tuple[dict[str, Any], set[int]]] = {
    "published": ({"first": 3, "channels": ["/a", "/b"]}, {3, 4}),
    "addressed": ({"id": 3, "channel": "/a", "sessions": ["client/joe/1"]}, {3}),
    "leased": ({"queue": "client/joe", "leases": [{"session": "client/joe/1", "ids": [3, 4]}]}, {3, 4}),
    "returned": ({"queue": "client/joe", "ids": [3]}, {3}),
    "ended": ({"ended": [{"session": "client/joe/1", "reason": "settled", "ids": [3, 5]}]}, {3, 5}),
    "redriven": ({"letter": "1-0", "message": "3", "id": 9}, {3, 9}),
    "restored": (
        {"letters": ["1-0"], "as": ["9-0"], "firsts": ["1-0"], "messages": ["3"], "receivers": ["a"]},
        {3},
    ),
    "discarded": ({"letters": ["1-0", "2-0"], "messages": ["3", "²x"], "receivers": ["a", "b"]}, {3}),
    "closed-session": ({"session": "client/joe/1"}, set()),
}


@pytest.mark.parametrize("kind", NAMED)
def test_each_type_of_fact_tells_the_messages_that_it_names(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields, named = NAMED[kind]
    monkeypatch.setattr(fact_index, "_SHIFT", 0)
    assert seconds_of(kind, fields) == named


def test_every_type_of_fact_that_a_history_reads_is_known() -> None:
    assert set(message_history._READERS) == set(fact_index._NAMED)
