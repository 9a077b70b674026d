"""The reader of streams as Spark calls it, without Spark: offsets, batches, losses."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from crewel.pipeline.connection import Address
from crewel.pipeline.source import partition_reader
from crewel.pipeline.source.batch_reader import BatchReader
from crewel.pipeline.source.losses import EntriesLost
from crewel.pipeline.source.options import parsed
from crewel.pipeline.source.stream import StreamReader
from tests.pipeline.conftest import Streams

Rows = list[dict[str, Any]]
ALL = ReadAllAvailable()


def reader(address: Address, **options: object) -> StreamReader:
    return StreamReader(address, parsed({name: str(value) for name, value in options.items()}))


def between(reader: StreamReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> Rows:
    """What a batch reads; tasks go to other processes."""
    tasks = [pickle.loads(pickle.dumps((reader, task))) for task in reader.partitions(start, end)]
    return [row for there, task in tasks for batch in there.read(task) for row in batch.to_pylist()]


def everything(reader: StreamReader, limit: Any) -> list[Rows]:
    """The batches until there is nothing new."""
    batches: list[Rows] = []
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        batches.append(between(reader, start, end))
        start = end
    return batches


def test_a_batch_takes_what_has_come_and_nothing_is_the_same_offset(streams: Streams) -> None:
    source = reader(streams.address)
    start = source.initialOffset()
    assert source.latestOffset(start, ALL) == start
    streams.many("facts", 10)
    streams.group([])
    end = source.latestOffset(start, ALL)
    assert len(between(source, start, end)) == 11
    assert source.latestOffset(end, ALL) == end
    streams.fact("held", {})
    later = source.latestOffset(end, ALL)
    assert [row["t"] for row in between(source, end, later)] == ["held"]
    assert later["events"] == end["events"]


def test_a_repeated_batch_is_the_same(streams: Streams) -> None:
    streams.many("facts", 100)
    source = reader(streams.address)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(30))
    first = between(source, start, end)
    streams.many("facts", 100, first_ms=1000)
    assert between(reader(streams.address), start, end) == first


def test_batches_hold_at_most_so_many_rows_and_each_entry_once(streams: Streams) -> None:
    streams.many("facts", 1000, per_ms=7)
    streams.many("events", 200, per_ms=2)
    batches = everything(reader(streams.address), ReadMaxRows(100))
    assert max(map(len, batches)) <= 100
    found = [(row["key"], row["id"]) for batch in batches for row in batch]
    assert len(found) == len({*found}) == 1200


def test_all_streams_stop_at_the_same_instant(streams: Streams) -> None:
    """A thousand facts in one second, and a few events: no stream is read ahead of the other."""
    streams.many("facts", 1000)
    streams.many("events", 20, first_ms=25, per_ms=1)
    streams.many("events", 5, first_ms=900)
    batches = everything(reader(streams.address), ReadMaxRows(100))
    assert sum(map(len, batches)) == 1025
    before = 0
    for batch in batches:
        assert min(row["ms"] for row in batch) >= before
        before = max(row["ms"] for row in batch)


def test_a_millisecond_with_more_than_a_batch_holds_is_taken_apart(streams: Streams) -> None:
    """So it is if the clock of the store was set back."""
    streams.many("facts", 1000, per_ms=1000)
    batches = everything(reader(streams.address), ReadMaxRows(300))
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]


def test_available_now_ends_with_what_was_there(streams: Streams) -> None:
    streams.many("facts", 100)
    source = reader(streams.address)
    source.prepareForTriggerAvailableNow()
    streams.many("facts", 100, first_ms=1000)
    assert [len(batch) for batch in everything(source, ReadMaxRows(60))] == [60, 40]
    assert source.reportLatestOffset()["facts"]["count"] == 200


def test_a_stream_begins_at_the_given_place(streams: Streams) -> None:
    streams.many("facts", 100)
    assert len(everything(reader(streams.address, start="51"), ALL)[0]) == 50
    assert len(everything(reader(streams.address, start="50-1"), ALL)[0]) == 50
    latest = reader(streams.address, start="latest")
    begin = latest.initialOffset()
    streams.many("facts", 10, first_ms=1000)
    assert len(between(latest, begin, latest.latestOffset(begin, ALL))) == 10
    assert begin["facts"]["count"] == 100


def test_where_it_begins_in_the_middle_it_counts_so_that_losses_are_seen(streams: Streams) -> None:
    streams.many("facts", 100)
    source = reader(streams.address, start="51")
    start = source.initialOffset()
    assert start["facts"]["count"] == 50
    streams.client.xtrim(streams.keys.facts, minid="61-0", approximate=False)
    with pytest.raises(EntriesLost, match="10 entries"):
        source.partitions(start, source.latestOffset(start, ALL))


def test_a_stream_may_join_a_checkpoint(streams: Streams) -> None:
    streams.many("facts", 10)
    streams.many("events", 10)
    alone = reader(streams.address, streams="facts")
    start = alone.latestOffset(alone.initialOffset(), ALL)
    both = reader(streams.address)
    assert {row["key"] for row in between(both, start, both.latestOffset(start, ALL))} == {"events"}


def test_trimming_behind_what_was_read_is_no_loss(streams: Streams) -> None:
    source = reader(streams.address)
    streams.many("facts", 100)
    start = source.latestOffset(source.initialOffset(), ALL)
    streams.many("facts", 100, first_ms=1000)
    streams.client.xtrim(streams.keys.facts, maxlen=100, approximate=False)
    assert len(between(source, start, source.latestOffset(start, ALL))) == 100


def test_what_was_trimmed_unread_is_an_error_with_figures(streams: Streams) -> None:
    source = reader(streams.address)
    streams.many("facts", 100)
    start = source.latestOffset(source.initialOffset(), ALL)
    streams.many("facts", 100, first_ms=1000)
    streams.client.xtrim(streams.keys.facts, maxlen=63, approximate=False)
    with pytest.raises(EntriesLost, match="37 entries after 100-1 and before 1037-1"):
        source.partitions(start, source.latestOffset(start, ALL))


def test_what_was_trimmed_unread_is_a_row_about_the_gap(streams: Streams) -> None:
    source = reader(streams.address, failOnDataLoss=False)
    streams.many("facts", 100)
    start = source.latestOffset(source.initialOffset(), ALL)
    streams.many("facts", 100, first_ms=1000)
    streams.client.xtrim(streams.keys.facts, maxlen=63, approximate=False)
    rows = between(source, start, source.latestOffset(start, ALL))
    assert [row["key"] for row in rows] == ["facts.gap"] + ["facts"] * 63
    assert rows[0]["id"] == "100-1"
    assert orjson.loads(rows[0]["payload"]) == {"before": "1037-1", "lost": 37}


def test_losses_are_counted_also_where_batches_are_cut(streams: Streams) -> None:
    source = reader(streams.address, streams="facts", failOnDataLoss=False)
    streams.many("facts", 100)
    start = source.latestOffset(source.initialOffset(), ALL)
    streams.many("facts", 100, first_ms=1000)
    middle = source.latestOffset(start, ReadMaxRows(40))
    streams.client.xtrim(streams.keys.facts, maxlen=63, approximate=False)
    first = between(source, start, middle)
    assert [row["key"] for row in first] == ["facts.gap", "facts", "facts", "facts"]
    assert orjson.loads(first[0]["payload"])["lost"] == 37
    rest = between(source, middle, source.latestOffset(middle, ALL))
    assert [row["key"] for row in rest] == ["facts"] * 60


@pytest.mark.parametrize("rows", [10, 30, 40])
def test_losses_are_counted_once_where_the_next_batches_are_small(streams: Streams, rows: int) -> None:
    source = reader(streams.address, streams="facts", failOnDataLoss=False)
    streams.many("facts", 100)
    start = source.latestOffset(source.initialOffset(), ALL)
    streams.many("facts", 100, first_ms=1000)
    streams.client.xtrim(streams.keys.facts, maxlen=63, approximate=False)
    found: Rows = []
    while (end := source.latestOffset(start, ReadMaxRows(rows))) != start:
        found += between(source, start, end)
        start = end
    assert [orjson.loads(row["payload"])["lost"] for row in found if row["key"] == "facts.gap"] == [37]
    assert len(found) == 64
    assert start["facts"]["count"] == 200


def test_what_goes_while_the_oldest_are_read_leaves_a_gap_but_for_the_very_first(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_WORTH_A_TASK", 500)
    streams.many("facts", 3000)
    source = reader(streams.address, streams="facts", failOnDataLoss=False, partitions=3)
    start = source.initialOffset()
    tasks = source.partitions(start, source.latestOffset(start, ALL))
    assert len(tasks) == 3
    streams.client.xtrim(streams.keys.facts, minid="1501-0", approximate=False)
    keys = [[row["key"] for batch in source.read(task) for row in batch.to_pylist()] for task in tasks]
    assert [len(each) for each in keys] == [0, 501, 1000]
    assert keys[1][0] == "facts.gap"


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(4)])
def test_a_store_that_was_set_back_leaves_one_gap_of_which_nobody_knows(streams: Streams, limit: ReadLimit) -> None:
    source = reader(streams.address, streams="facts", failOnDataLoss=False)
    streams.many("facts", 100)
    start = source.latestOffset(source.initialOffset(), ALL)
    streams.client.delete(streams.keys.facts)
    assert source.latestOffset(start, limit) == start
    streams.many("facts", 10, first_ms=1000)
    rows: Rows = []
    while (end := source.latestOffset(start, limit)) != start:
        rows += between(source, start, end)
        start = end
    assert [row["key"] for row in rows] == ["facts.gap"] + ["facts"] * 10
    assert orjson.loads(rows[0]["payload"])["lost"] is None


def test_positions_are_noted_for_the_server_if_that_is_wanted(streams: Streams) -> None:
    streams.many("facts", 10)
    source = reader(streams.address, streams="facts", notePositions=True)
    end = source.latestOffset(source.initialOffset(), ALL)
    source.commit(end)
    noted = streams.client.hgetall(streams.keys.positions)
    assert {name: orjson.loads(told) for name, told in noted.items()} == {b"facts": {"id": "10-1", "count": 10}}
    source.stop()
    reader(streams.address).commit({"facts": {"id": "1-1", "count": 1}})
    assert streams.client.hgetall(streams.keys.positions) == noted


def test_a_task_takes_the_address_along_and_does_not_tell_it() -> None:
    secret = Address("redis://joe:secret@127.0.0.1:1/0", "x:")
    source = reader(secret)
    assert "secret" not in f"{source!r} {secret!r} {secret}"
    copy = pickle.loads(pickle.dumps(source))
    assert copy._address.url == secret.url


def batch(address: Address, **options: object) -> Rows:
    source = BatchReader(address, parsed({name: str(value) for name, value in options.items()}))
    tasks = [pickle.loads(pickle.dumps((source, task))) for task in source.partitions()]
    return [row for there, task in tasks for found in there.read(task) for row in found.to_pylist()]


def test_a_batch_reads_between_times_and_ids(streams: Streams) -> None:
    streams.many("facts", 100)
    assert [row["ms"] for row in batch(streams.address, start=11, end=21)] == list(range(11, 21))
    assert [row["ms"] for row in batch(streams.address, start="10-1", end="20-1")] == list(range(11, 21))
    assert not batch(streams.address, start="latest")
    assert not batch(streams.address, start=500)
    assert len(batch(streams.address, streams="facts,events,dead")) == 100


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_parts_of_a_batch_hold_each_entry_once(
    streams: Streams, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_WORTH_A_TASK", 500)
    streams.many("facts", 3000, per_ms=2)
    streams.client.xtrim(streams.keys.facts, maxlen=2900, approximate=False)
    source = BatchReader(streams.address, parsed({"partitions": str(partitions)}))
    assert len(source.partitions()) == min(partitions, 6)
    assert [int(row["payload"]) for row in batch(streams.address, partitions=partitions)] == list(range(100, 3000))


def test_letters_may_leave_from_the_middle(streams: Streams) -> None:
    places = [streams.add("dead", {"id": str(i), "reason": "x"}) for i in range(10)]
    streams.client.xdel(streams.keys.dead, *places[3:6])
    rows = batch(streams.address, streams="dead")
    assert [orjson.loads(row["payload"])["id"] for row in rows] == ["0", "1", "2", "6", "7", "8", "9"]


def test_letters_are_read_with_the_texts_that_they_share(streams: Streams) -> None:
    streams.client.hset(streams.keys.letter_texts, "one", '{"data":1}')
    for number in range(3):
        streams.add("dead", {"id": str(number), "bh": "one"})
    rows = batch(streams.address, streams="dead")
    assert [orjson.loads(row["payload"])["body"] for row in rows] == ['{"data":1}'] * 3
