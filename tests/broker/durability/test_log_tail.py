"""What is read ahead of the cursor of a node."""

from __future__ import annotations

import pytest

from crewel.broker.durability.log_tail import Pace, ReadAhead
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId
from crewel.storage.log_follower import Unread, channel_of, id_of

pytestmark = pytest.mark.unit


def unread(*ids: int) -> list[Unread]:
    return [[b"%d-0" % each, [b"c", b"/a", b"b", b"{}"]] for each in ids]


@pytest.fixture
def ahead() -> ReadAhead:
    """What was read ahead of 10."""
    ahead = ReadAhead()
    ahead.begin(LogConsumer(LogId(10)))
    ahead.add(unread(11, 12))
    ahead.add(unread(15))
    return ahead


def taken(ahead: ReadAhead, last: int) -> list[int]:
    found = []
    while (entry := ahead.next(LogId(last))) is not None:
        found.append(int(id_of(entry)))
    return found


def test_entries_come_in_their_order_up_to_an_id(ahead: ReadAhead) -> None:
    assert ahead.read_to == 15
    assert taken(ahead, 14) == [11, 12]
    assert taken(ahead, 15) == [15]
    assert len(ahead) == 0


def test_what_the_cursor_has_passed_is_left_out(ahead: ReadAhead) -> None:
    assert ahead.node is not None
    ahead.node.skip(LogId(11))
    assert taken(ahead, 15) == [12, 15]


def test_another_node_begins_at_its_own_cursor(ahead: ReadAhead) -> None:
    """A node that has read all again may be behind: what was read for the one before has a gap for it."""
    ahead.begin(LogConsumer(LogId(5)))
    assert (ahead.read_to, len(ahead)) == (5, 0)


def message(log_id: int, channel: bytes) -> Unread:
    return [b"%d-0" % log_id, [b"c", channel, b"b", b"{}", b"s", b"joe"]]


ADDRESSED: Unread = [b"22-0", [b"c", b"/a", b"b", b"change", b"w", b"{}", b"k", b"token"]]
PACKED: Unread = [b"22-0", [b"w", b"{}", b"t", b"client/joe", b"c", b"/a", b"b", b"{}"]]


@pytest.mark.parametrize(
    ("entries", "last", "passed", "following"),
    [
        ([message(21, b"/a"), message(22, b"/b"), message(23, b"/a")], 30, 23, None),
        ([message(21, b"/a"), message(22, b"/heard"), message(23, b"/a")], 30, 21, 22),
        ([message(21, b"/a"), message(22, b"/b"), message(23, b"/a")], 22, 22, None),
        ([message(21, b"/heard"), message(22, b"/a")], 30, 0, 21),
        ([message(21, b"/a"), ADDRESSED], 30, 21, 22),
        ([message(21, b"/a"), PACKED], 30, 21, 22),
        ([], 30, 0, None),
    ],
    ids=[
        "all",
        "up to one that is heard",
        "up to an id",
        "none",
        "a change of a topic",
        "an addressed message",
        "empty",
    ],
)
def test_messages_on_unheard_channels_are_passed_over(
    entries: list[Unread], last: int, passed: int, following: int | None
) -> None:
    ahead = ReadAhead()
    ahead.begin(LogConsumer(LogId(20)))
    if entries:
        ahead.add(entries)
    channels: set[str] = set()
    assert ahead.pass_over({b"/a": "/a", b"/b": "/b"}, LogId(last), channels) == passed
    assert channels <= {"/a", "/b"}
    assert bool(channels) == bool(passed)
    entry = ahead.next(LogId(last))
    assert (None if entry is None else id_of(entry)) == following


@pytest.mark.parametrize(
    ("times", "counts", "pauses"),
    [
        ([0.0, 0.05, 0.1], [1, 1, 1], [0.0, 0.0, 0.0]),
        ([0.0, 0.049, 0.098], [1, 1, 1], [0.0, 0.01, 0.01]),
        ([0.0, 0.01, 0.02], [100, 100, 4], [0.0, 0.0, 0.01]),
        ([0.0, 0.01, 5.0], [1, 1, 1], [0.0, 0.01, 0.0]),
    ],
    ids=["idle", "busy", "in large groups", "idle again"],
)
def test_only_a_busy_log_is_asked_after_a_pause(times: list[float], counts: list[int], pauses: list[float]) -> None:
    pace = Pace()
    assert [pace.answered(*each, 0.01) for each in zip(times, counts, strict=True)] == pauses


@pytest.mark.parametrize(
    ("fields", "channel"),
    [
        ([b"c", b"/a", b"b", b"{}", b"s", b"joe"], b"/a"),
        ([b"c", b"w", b"b", b"w"], b"w"),
        ([b"w", b"{}", b"t", b"client/joe", b"c", b"/a", b"b", b"{}"], b""),
        ([b"c", b"/a", b"b", b"change", b"w", b"{}", b"k", b"token"], b""),
    ],
    ids=["a message", "a message of strange names", "an addressed message", "a change of a topic"],
)
def test_only_a_message_for_subscribers_shows_its_channel_unread(fields: list[bytes], channel: bytes) -> None:
    assert channel_of([b"1-0", fields]) == channel
