"""The records of what a client was sent: what is kept of attempts that failed, and of what waits again."""

import orjson

from crewel.delivery.entry import Entry
from crewel.delivery.sent_messages import MOST, FailedAttempt, SentMessages
from crewel.qos.update import Origin


def entry(message_id: str) -> Entry:
    """The message of this id."""
    return Entry({"channel": "/a"}, origin=Origin(message_id, "0"))


def fail(messages: SentMessages, message_id: str, at: int, code: str = "user.no", reason: str = "") -> None:
    """Let one more attempt at this message fail."""
    messages.send(entry(message_id), 0.0)
    messages.put_back(message_id, FailedAttempt(at, code, reason))


def test_attempts_are_kept_by_message_with_time_and_error() -> None:
    messages = SentMessages()
    assert messages.failed("7") == ""
    fail(messages, "7", 5, "user.no", "not now")
    fail(messages, "8", 6, "user.other")
    fail(messages, "7", 9, "user.no", "nor now")
    assert orjson.loads(messages.failed("7")) == [
        {"at": 5, "code": "user.no", "reason": "not now"},
        {"at": 9, "code": "user.no", "reason": "nor now"},
    ]
    messages.close("7")
    messages.close("unknown")
    assert messages.failed("7") == ""
    assert len(orjson.loads(messages.failed("8"))) == 1


def test_the_newest_attempts_are_kept() -> None:
    messages = SentMessages()
    for at in range(MOST + 3):
        fail(messages, "7", at)
    assert [each["at"] for each in orjson.loads(messages.failed("7"))] == list(range(3, MOST + 3))


def test_of_what_waits_again_memory_keeps_no_body() -> None:
    messages = SentMessages()
    fail(messages, "7", 5)
    assert messages.waiting["7"].entry.wire == b""
    assert (messages.times_sent("7"), messages.send(entry("7"), 1.0)) == (1, 1)
