"""What is read ahead of the cursor of a node."""

from __future__ import annotations

import pytest

from crewel.broker.durability.log_tail import ReadAhead
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId
from crewel.storage.log_follower import Unread

pytestmark = pytest.mark.unit


def unread(*ids: int) -> list[Unread]:
    return [Unread(LogId(each), [b"c", b"/a", b"b", b"{}"]) for each in ids]


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
    while (logged := ahead.next(LogId(last))) is not None:
        found.append(int(logged.id))
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
    assert Unread(LogId(1), fields).channel == channel
