"""Positions and what a batch takes, without a store."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.pipeline.source.losses import EntriesLost, Gap, gap_between
from crewel.pipeline.source.positions import (
    BEGIN,
    END,
    EntryId,
    Extent,
    Position,
    Share,
    offset_of,
    positions_of,
    shares,
    slices,
)


def extent(newest: int, added: int, length: int) -> Extent:
    """A stream with an entry in each millisecond, of which the oldest are gone."""
    return Extent(EntryId(newest, 0), added, length, EntryId(newest - length + 1, 0) if length else BEGIN)


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "1-2-3", "a-1", "1-0x1", "१-1"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no id"):
        EntryId.parse(text)


def test_ids_are_in_the_order_of_the_stream_and_not_of_their_texts() -> None:
    assert EntryId.parse("9-0") < EntryId.parse(b"10-9") < EntryId.parse("10-10") < END
    assert EntryId.before(10) < EntryId(10, 0)
    assert EntryId.before(0) == BEGIN
    assert str(EntryId.parse("10-9")) == "10-9"


def test_an_offset_becomes_positions_again_and_a_stream_that_joins_begins_at_the_beginning() -> None:
    read = {"facts": Position(EntryId(7, 1), 3), "events": Position(EntryId(8, 0), None)}
    offset = offset_of(read)
    assert offset == {"events": {"id": "8-0", "count": None}, "facts": {"id": "7-1", "count": 3}}
    first = Position(BEGIN, None)
    assert positions_of(offset, ["facts", "events", "dead"], first) == {**read, "dead": first}


def test_a_count_follows_where_the_position_is_at_an_end() -> None:
    stream = extent(newest=20, added=20, length=10)
    assert stream.anchored(Position(EntryId(20, 0), None)).count == 20
    assert stream.anchored(Position(EntryId(5, 0), None)).count == 10
    assert stream.anchored(Position(EntryId(15, 0), None)).count is None
    assert stream.anchored(Position(EntryId(5, 0), 3)).count == 3


@pytest.mark.parametrize(
    ("available", "most", "entries"),
    [
        ({"facts": 10, "events": 10}, 100, {"facts": 10, "events": 10}),
        ({"facts": 100, "events": 100}, 100, {"facts": 50, "events": 50}),
        ({"facts": 1000, "events": 10}, 100, {"facts": 90, "events": 10}),
        ({"facts": None, "events": 10}, 100, {"facts": 90, "events": 10}),
        ({"facts": None, "events": None}, 100, {"facts": 50, "events": 50}),
        ({"facts": 1000, "events": 1000}, 1, {"facts": 1, "events": 1}),
    ],
)
def test_a_batch_is_shared_and_what_one_stream_does_not_need_goes_to_the_others(
    available: dict[str, int | None], most: int, entries: dict[str, int]
) -> None:
    given = shares(available, most)
    assert {stream: share.entries for stream, share in given.items()} == entries
    assert given["facts"] == Share(entries["facts"], entries["facts"] == available["facts"])


IDS = st.builds(EntryId, st.integers(1, 1000), st.integers(0, 3))


@given(IDS, IDS, st.integers(1, 20))
def test_slices_hold_all_that_lies_between_once(one: EntryId, other: EntryId, number: int) -> None:
    after, until = min(one, other), max(one, other)
    parts = slices(after, until, number)
    assert 1 <= len(parts) <= number
    assert parts[0][0] == after
    assert parts[-1][1] == until
    assert all(first[1] == second[0] for first, second in pairwise(parts))
    assert all(begin < end for begin, end in parts) or after == until


@pytest.mark.parametrize(
    ("start", "end", "added", "length", "lost"),
    [
        # position (id, count)    of the stream: newest id is `added`
        ((10, 10), (20, 20), 20, 15, 0),
        ((10, 10), (20, 20), 20, 10, 0),
        ((10, 10), (20, 20), 20, 9, 1),
        ((10, 10), (20, 20), 20, 0, 10),
        ((10, 10), (20, 20), 100, 5, 10),
        ((10, 10), (10, 10), 100, 5, 0),
        ((10, None), (20, 20), 20, 5, 0),
    ],
)
def test_what_was_trimmed_unread_is_counted(
    start: tuple[int, int | None], end: tuple[int, int], added: int, length: int, lost: int
) -> None:
    gap = gap_between(
        "facts",
        Position(EntryId(start[0], 0), start[1]),
        Position(EntryId(end[0], 0), end[1]),
        extent(added, added, length),
    )
    assert (gap.lost if gap else 0) == lost


def test_what_goes_while_the_oldest_are_read_for_the_first_time_is_no_loss() -> None:
    end = Position(EntryId(20, 0), 20)
    assert gap_between("facts", Position(BEGIN, 5), end, extent(20, 20, 10)) is None
    missed = gap_between("facts", Position(BEGIN, 0), end, extent(20, 20, 10))
    assert missed is not None
    assert missed.lost == 10


def test_a_stream_that_has_counted_fewer_than_before_is_not_the_one_that_was_read() -> None:
    gap = gap_between("facts", Position(EntryId(10, 0), 100), Position(EntryId(20, 0), 50), extent(20, 50, 50))
    assert gap == Gap("facts", EntryId(10, 0), None, None)


def test_the_error_tells_the_figures_and_what_helps() -> None:
    text = str(EntriesLost(Gap("facts", EntryId(7, 1), EntryId(9, 0), 12)))
    assert "facts: 12 entries after 7-1 and before 9-0" in text
    assert "storage.facts_max_entries" in text
    assert "an unknown number" in str(Gap("events", EntryId(7, 1), None, None))
