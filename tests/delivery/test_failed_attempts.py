"""What is kept of attempts that failed."""

import orjson

from crewel.delivery.failed_attempts import MOST, FailedAttempts


def test_attempts_are_kept_by_message_with_time_and_error() -> None:
    attempts = FailedAttempts()
    assert attempts.text("7") == ""
    attempts.add("7", 5, "user.no", "not now")
    attempts.add("8", 6, "user.other", "")
    attempts.add("7", 9, "user.no", "nor now")
    assert orjson.loads(attempts.text("7")) == [
        {"at": 5, "code": "user.no", "reason": "not now"},
        {"at": 9, "code": "user.no", "reason": "nor now"},
    ]
    attempts.forget("7")
    attempts.forget("unknown")
    assert attempts.text("7") == ""
    assert len(orjson.loads(attempts.text("8"))) == 1


def test_the_newest_attempts_are_kept() -> None:
    attempts = FailedAttempts()
    for at in range(MOST + 3):
        attempts.add("7", at, "user.no", "")
    assert [each["at"] for each in orjson.loads(attempts.text("7"))] == list(range(3, MOST + 3))
