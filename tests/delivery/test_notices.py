"""The notice that a topic was erased, in the engine: it waits behind all of its topic, and is no message."""

from __future__ import annotations

import orjson
import pytest

from crewel.delivery.batches import Batches
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, notice_entry, place_of
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import EndReason, LogId, PendingMessage, SessionName, SessionRecord
from crewel.qos.update import Origin
from tests.delivery.test_batches import close

JOE = SessionName("client/joe/1")


def waiting(priority: int = 5, channel: str = "/a") -> PendingMessage:
    return PendingMessage(0, 10, channel, priority)


def opened(*messages: tuple[int, PendingMessage]) -> DurableSession:
    """A session with these messages evicted."""
    durable = DurableSession(JOE)
    for place, each in messages:
        durable.take(LogId(place), each)
        durable.evict(LogId(place))
    return durable


def evicted(durable: DurableSession) -> list[int]:
    return [place_of(rank) for rank in durable.evicted]


@pytest.mark.parametrize(
    ("messages", "after"),
    [
        ([(1, waiting()), (2, waiting())], [1, 2, 9]),
        ([(1, waiting(0)), (2, waiting(9))], [2, 1, 9]),
        ([(1, waiting(0, "/b")), (2, waiting(9))], [2, 9, 1]),
        ([(10, waiting(0)), (2, waiting(9))], [2, 9, 10]),
    ],
    ids=["one priority", "lowest of its topic", "not of other topics", "not of what came later"],
)
def test_a_notice_waits_behind_what_came_before_of_its_topic(
    messages: list[tuple[int, PendingMessage]], after: list[int]
) -> None:
    durable = opened(*messages)
    assert durable.notice(LogId(9), "/a") == []
    durable.evict(LogId(9))
    assert evicted(durable) == after


def test_a_notice_moves_behind_what_is_found_late() -> None:
    durable = opened((1, waiting()))
    durable.notice(LogId(9), "/a")
    durable.evict(LogId(9))
    durable.take(LogId(2), waiting(1))
    durable.evict(LogId(2))
    durable.place_notices()
    assert evicted(durable) == [1, 2, 9]
    durable.notice(LogId(10), "/b", 0)  # something in memory has a lower priority
    assert durable.notices[LogId(10)].priority == 0


def test_one_that_is_not_evicted_is_not_evicted_by_being_moved() -> None:
    durable = opened((1, waiting(1)))
    durable.notice(LogId(9), "/a")
    assert evicted(durable) == [1]
    assert durable.notices[LogId(9)].priority == 1


def test_a_second_one_of_its_topic_takes_its_place() -> None:
    durable = opened((1, waiting()))
    durable.notice(LogId(5), "/b")
    durable.notice(LogId(6), "/a")
    durable.evict(LogId(6))
    assert durable.notice(LogId(9), "/a") == [6]
    assert list(durable.notices) == [5, 9]
    assert evicted(durable) == [1]


@pytest.mark.parametrize("by", ["end_message", "settle_all", "end_messages"])
def test_a_notice_ends_without_a_fact(by: str) -> None:
    durable = opened()
    durable.notice(LogId(9), "/a")
    durable.evict(LogId(9))
    assert (len(durable), durable.size, durable.first_needed) == (0, 0, None)
    assert durable.find(LogId(9)) is not None
    if by == "end_message":
        assert durable.end_message(LogId(9))
    elif by == "settle_all":
        durable.settle_all([LogId(9), LogId(10)])
    else:
        durable.end_messages([LogId(9)], EndReason.ERASED)
    assert durable.find(LogId(9)) is None
    assert durable.take_ended() == ([], [])


def test_a_commit_tells_once_that_it_is_settled() -> None:
    node = LogConsumer(LogId(0))
    durable = DurableSession(JOE)
    node.add(durable)
    durable.notice(LogId(9), "/a")
    node.mark_dirty(durable)
    assert node.commit() is None
    durable.end_message(LogId(9))
    node.mark_dirty(durable)
    commit = node.commit()
    assert commit is not None
    assert [(change.name, change.noticed) for change in commit.changes] == [(JOE, ("/a",))]
    node.mark_dirty(durable)
    assert node.commit() is None


def test_an_adopted_session_has_its_notices_evicted_behind_their_messages() -> None:
    record = SessionRecord(
        JOE, {}, pending={LogId(1): waiting(2)}, inbox={LogId(3): waiting()}, notices={"/a": LogId(9)}
    )
    durable = DurableSession.adopted(record)
    assert evicted(durable) == [3, 1, 9]
    assert durable.notices[LogId(9)].attempts == 1
    assert durable.first_evicted(5) == [3, 1, 9]


def test_its_entry_is_a_notice() -> None:
    stored = notice_entry(PendingMessage(channel="/a", priority=2), LogId(9))
    assert (stored.position, stored.priority, stored.is_notice) == (9, 2, True)
    assert stored.fields == {"channel": "/a", "data": None}
    assert notice_entry(PendingMessage(channel="/a"), LogId(0), stamp=("x", "1")).origin == Origin(
        "x", "1", state="ERASED"
    )


WHY = '{"errorCode":"resource.exhaust","message":"too expensive"}'


def test_that_a_subscription_has_failed_is_a_failed_reply() -> None:
    stored = notice_entry(PendingMessage(channel="/a/*", priority=2), LogId(9), WHY)
    assert (stored.position, stored.priority, stored.is_notice, stored.channel) == (9, 2, True, "/a/*")
    assert stored.fields == {
        "channel": "/meta/subscribe",
        "successful": False,
        "subscription": "/a/*",
        "error": "429:/a/*:resource.exhaust",
        "ext": {"subscribe": {"errorCode": "resource.exhaust", "message": "too expensive"}},
    }
    assert orjson.loads(stored.updated())["ext"]["update"] == {"id": "9", "rcvTimestamp": "9000", "state": "FAILED"}


def test_a_notice_waits_behind_all_that_came_by_its_subscription() -> None:
    durable = opened((1, waiting(0, "/a/b")), (2, waiting(9, "/c")), (3, waiting(5, "/a/c")))
    durable.notice(LogId(9), "/a/*", why=WHY)
    durable.evict(LogId(9))
    assert evicted(durable) == [2, 3, 1, 9]


def test_why_a_subscription_failed_is_known_until_its_notice_is_settled() -> None:
    node = LogConsumer(LogId(0))
    record = SessionRecord(JOE, {}, notices={"/a": LogId(9), "/b": LogId(8)}, failed={"/a": WHY})
    durable = DurableSession.adopted(record)
    node.add(durable)
    assert durable.failed == {"/a": WHY}
    durable.notice(LogId(10), "/b", why=WHY)
    assert durable.failed == {"/a": WHY, "/b": WHY}
    durable.end_message(LogId(9))
    node.mark_dirty(durable)
    node.commit()
    assert durable.failed == {"/b": WHY}
    durable.notice(LogId(11), "/b")
    assert durable.failed == {}


@pytest.mark.parametrize("resends", [False, True])
def test_many_entries_leave_their_batches(resends: bool) -> None:
    batches, entries = Batches(), [Entry({"channel": "/a", "data": number}) for number in range(4)]
    batches.retain(entries[:2])
    close(batches)
    queue = entries[2:]
    if resends:
        queue = batches.acknowledge(None, queue)
    queue = batches.take_out({entries[0], entries[1], entries[3]}, queue)
    assert queue == [entries[2]]
    assert batches.unacknowledged == []
    assert not batches.must_resend
    batches.retain(entries[:2])
    assert batches.take_out({entries[0]}, []) == []
    assert batches.unacknowledged == [entries[1]]


@pytest.mark.parametrize(("priorities", "found"), [((), None), ((5,), 1), ((9, 7), 2)])
def test_a_notice_does_not_give_way(priorities: tuple[int, ...], found: int | None) -> None:
    durable = opened(*((place, waiting(priority)) for place, priority in enumerate(priorities, 1)))
    for place in (20, 30):
        durable.notice(LogId(place), f"/{place}")
        durable.evict(LogId(place))
    rank = durable.lowest_evicted()
    assert (None if rank is None else place_of(rank)) == found
