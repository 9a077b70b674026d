"""What sessions that are taken over have in memory: what waits for many of them is there once."""

from __future__ import annotations

from typing import Any

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import LogId, PendingMessage, SessionName, SessionRecord

PLACE = 1_795_190_671_003_112


def read(number: int) -> SessionRecord:
    """The record of a session as it is read: everything in it is new."""
    name = SessionName(f"client/joe/{number}")
    waiting = [PendingMessage(0, int("10"), "/a" + str(place)) for place in range(2)]
    first, second = (LogId(int(str(PLACE + place))) for place in range(2))
    return SessionRecord(name, {}, pending={first: waiting[0]}, inbox={second: waiting[1]})


def test_what_is_equal_in_two_records_is_shared() -> None:
    same: dict[Any, Any] = {}
    records = [read(number) for number in range(2)]
    for record in records:
        record.share(same)
    one, other = records
    assert (one.pending, one.inbox) == (other.pending, other.inbox)
    for mine, theirs in ((one.pending, other.pending), (one.inbox, other.inbox)):
        assert next(iter(mine)) is next(iter(theirs))
        assert next(iter(mine.values())) is next(iter(theirs.values()))


def test_what_was_open_before_a_take_over_is_not_known_to_have_been_sent() -> None:
    adopted = DurableSession.adopted(read(1))
    for place, waiting in (*adopted.pending.items(), *adopted.inbox.items()):
        assert (waiting.attempts, adopted.known_attempts(place, waiting)) == (1, 0)
        adopted.attempted(place, 2)
    for place, waiting in (*adopted.pending.items(), *adopted.inbox.items()):
        assert adopted.known_attempts(place, waiting) == 2
    assert (adopted.oldest(), DurableSession(SessionName("client/joe/2")).oldest()) == (LogId(PLACE), None)
    later = LogId(PLACE + 5)
    assert adopted.known_attempts(later, PendingMessage(1)) == 1
    assert DurableSession(SessionName("client/joe/1")).known_attempts(later, PendingMessage(1)) == 1


def test_sessions_that_are_adopted_together_share_what_is_known_of_a_message() -> None:
    sent: dict[PendingMessage, PendingMessage] = {}
    one, other = (DurableSession.adopted(read(number), sent) for number in range(2))
    for mine, theirs in ((one.pending, other.pending), (one.inbox, other.inbox)):
        assert next(iter(mine.values())) is next(iter(theirs.values()))
        assert next(iter(mine.values())).attempts == 1
    alone = DurableSession.adopted(read(3))
    assert alone.pending == one.pending
