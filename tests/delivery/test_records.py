"""The records between engine and store."""

import pytest

from crewel.delivery.records import (
    Disposition,
    EndReason,
    Logged,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Submission,
)


@pytest.mark.parametrize("reason", EndReason)
def test_every_end_reason_says_in_a_sentence_what_it_means(reason: EndReason) -> None:
    assert reason.meaning.endswith(".")
    assert reason.value == reason.name.lower()


def test_two_sessions_read_from_the_store_share_nothing() -> None:
    one, other = SessionRecord(SessionName("client/joe/1"), {}), SessionRecord(SessionName("client/joe/2"), {})
    one.subscriptions["/a"] = LogId(1)
    one.pending[LogId(2)] = one.inbox[LogId(1)] = PendingMessage(0, 3)
    one.closed.append(("/b", LogId(1), LogId(2)))
    assert (other.subscriptions, other.pending, other.inbox, other.closed) == ({}, {}, {}, [])


def test_what_is_not_said_is_empty() -> None:
    assert Submission("/a", b"{}") == Submission("/a", b"{}", "", "", "", b"")
    assert Logged(LogId(1), "/a", b"{}").qos == b""
    assert PendingMessage() == PendingMessage(0, 0, "", priority=5, expires=0, source="")
    assert PendingDeadLetter(SessionName("client/joe/1"), LogId(1), "user.no", "no").message is None


def test_some_messages_can_be_left_out_of_what_has_ended() -> None:
    ended = Disposition(SessionName("client/joe/1"), EndReason.DEAD, (LogId(1), LogId(2), LogId(3)))
    assert ended.less({LogId(2)}) == ended._replace(ids=(LogId(1), LogId(3)))
