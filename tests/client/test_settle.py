"""The bookkeeping of messages in the application's hands."""

import copy
from typing import Any

import pytest

from crewel.client import settle
from crewel.client.client_message import Handling, Message
from crewel.client.errors import INTERNAL_ERROR, PublishRefused, failure_of
from crewel.client.settle import Ledger, Statuses

FAILED = {"errorCode": "user.update.error", "message": "no"}


def ok(message_id: str) -> dict[str, Any]:
    return {"id": message_id, "state": "OK"}


def working(message_id: str) -> dict[str, Any]:
    return {"id": message_id, "state": "WORKING"}


class TestStatuses:
    def test_each_is_carried_by_one_request_at_a_time(self) -> None:
        statuses = Statuses()
        statuses.put(ok("1"))
        assert statuses.are_waiting
        assert statuses.take("a", 1000) == [ok("1")]
        statuses.put(ok("2"))
        assert statuses.take("b", 1000) == [ok("2")]
        assert not statuses.are_waiting
        assert statuses.take("c", 1000) == []

    def test_what_was_answered_is_forgotten_and_what_was_not_goes_again(self) -> None:
        statuses = Statuses()
        for carrier in "abc":
            statuses.put(ok(carrier))
            statuses.take(carrier, 1000)
        statuses.confirm("a")
        statuses.release("b")
        assert statuses.take("d", 1000) == [ok("b")]
        statuses.release()
        assert statuses.take("e", 1000) == [ok("b"), ok("c")]

    def test_no_more_than_fit_are_taken_and_one_at_least(self) -> None:
        statuses = Statuses()
        for number in range(5):
            statuses.put(ok(str(number)))
        size = len('{"id":"0","state":"OK"},')
        assert statuses.take("a", 3 * size) == [ok("0"), ok("1"), ok("2")]
        assert statuses.take("b", 1) == [ok("3")]
        assert statuses.are_waiting

    def test_work_is_no_news_after_the_end_but_an_end_is_after_work(self) -> None:
        statuses = Statuses()
        statuses.put(working("1"))
        statuses.take("a", 1000)
        statuses.put(working("1"))
        assert statuses.take("b", 1000) == [working("1")]
        statuses.put(ok("1"))
        statuses.put(working("1"))
        statuses.confirm("b")  # which carried something else
        assert statuses.take("c", 1000) == [ok("1")]


class Book(Ledger):
    """A ledger that counts its changes."""

    def __init__(self, *, reports_ok: bool = True) -> None:
        self.changes = 0
        super().__init__(reports_ok=reports_ok, changed=self._count)

    def _count(self) -> None:
        self.changes += 1

    def told(self) -> list[dict[str, Any]]:
        return self.statuses.take(object(), 10_000)

    def heard(self, message_id: str) -> None:
        self.begin(message_id).end()


def part(handling: Handling) -> Message:
    """The message of one subscription."""
    return Message("/a", None, {}, handling.share())


def rejected(handling: Handling) -> None:
    part(handling).reject(FAILED["errorCode"], FAILED["message"])
    handling.end()


class TestHandling:
    def test_handling_ends_when_all_parts_are_done(self) -> None:
        book = Book()
        handling = book.begin("1")
        first, second = part(handling), part(handling)
        handling.end()
        first.settle()
        first.settle()
        assert (book.told(), book.changes, book.is_idle) == ([], 0, False)
        second.settle()
        assert (book.told(), book.changes, book.is_idle) == ([ok("1")], 1, True)

    def test_the_first_failure_counts(self) -> None:
        book = Book()
        handling = book.begin("1")
        parts = [part(handling) for _ in range(3)]
        handling.end()
        parts[1].reject("user.update.error", "no")
        parts[0].reject("user.update.holdback", "later")
        parts[1].settle()
        assert book.told() == []
        parts[2].settle()
        assert book.told() == [{"id": "1", **FAILED}]

    def test_a_message_becomes_a_dead_letter_or_holds_its_session(self) -> None:
        book = Book()
        for message_id, decide in (("1", Message.dead_letter), ("2", Message.hold)):
            handling = book.begin(message_id)
            decide(part(handling), "no paper")
            handling.end()
        assert book.told() == [
            {"id": "1", "errorCode": "user.update.deadMessage", "message": "no paper"},
            {"id": "2", "errorCode": "user.update.holdback", "message": "no paper"},
        ]

    def test_what_only_a_worker_can_do_is_said(self) -> None:
        message = part(Book().begin("1"))
        assert not hasattr(message, "retry")
        with pytest.raises(AttributeError, match=r"'Message' object has no attribute 'retry': `client\.consume` gives"):
            message.retry(5)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"has no attribute 'refuse'$"):
            message.refuse()  # type: ignore[attr-defined]
        assert copy.deepcopy(Message("/a", [1], {})) == Message("/a", [1], {})

    def test_nothing_is_told_after_the_first_word_of_a_part(self) -> None:
        book = Book()
        message = part(book.begin("1"))
        message.settle()
        message.reject("user.update.error", "no")
        message.working()
        assert book.told() == []

    def test_work_is_told(self) -> None:
        book = Book()
        message = part(book.begin("1"))
        message.working()
        assert (book.told(), book.changes) == ([working("1")], 1)

    def test_what_is_told_has_a_length(self) -> None:
        book = Book()
        handling = book.begin("1")
        handling.failed("user." + "x" * 300, "y" * 600)
        handling.end()
        [status] = book.told()
        assert (len(status["errorCode"]), len(status["message"])) == (200, 500)


class TestLedger:
    def test_what_went_well_is_a_repeat_when_it_comes_again_and_is_told_again(self) -> None:
        book = Book()
        assert not book.repeats("1")
        book.heard("1")
        assert book.told() == [ok("1")]
        assert book.repeats("1")
        assert book.told() == [ok("1")]
        assert book.changes == 2

    def test_what_failed_or_is_at_work_is_no_repeat(self) -> None:
        book = Book()
        rejected(book.begin("1"))
        book.begin("2")
        assert not book.repeats("1")
        assert not book.repeats("2")

    def test_by_batch_only_failures_are_told_and_work_is_not_begun_twice(self) -> None:
        book = Book(reports_ok=False)
        book.heard("1")
        handling = book.begin("2")
        assert book.repeats("1")
        assert book.repeats("2")
        rejected(handling)
        assert book.told() == [{"id": "2", **FAILED}]
        assert not book.repeats("2")

    def test_a_code_that_no_receiver_reports_is_told_and_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        book = Book()
        handling = book.begin("1")
        part(handling).reject("resource.full", "no")
        handling.end()
        assert book.told() == [{"id": "1", "errorCode": "resource.full", "message": "no"}]
        assert (
            "counts the code 'resource.full' as user.update.internalError: codes of receivers begin with user."
            in caplog.text
        )

    def test_a_failure_after_an_ok_of_the_same_message_is_no_news(self) -> None:
        book = Book()
        first = book.begin("1")
        second = book.begin("1")
        first.end()
        assert (book.told(), book.is_idle) == ([ok("1")], False)
        rejected(second)
        assert (book.told(), book.is_idle) == ([], True)

    def test_an_old_message_may_fail_after_it_went_well(self) -> None:
        book = Book()
        book.heard("1")
        book.told()
        rejected(book.begin("1"))  # from a history
        assert book.told() == [{"id": "1", **FAILED}]
        assert not book.repeats("1")

    def test_the_oldest_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settle, "_REMEMBERED", 2)
        book = Book()
        for message_id in ("1", "2", "3"):
            book.heard(message_id)
        assert [book.repeats(message_id) for message_id in ("1", "2", "3")] == [False, True, True]


class Coded(Exception):
    error_code: Any = "user.update.holdback"


class Odd(Exception):
    error_code = 7


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Coded("later"), ("user.update.holdback", "later")),
        (Odd("what"), (INTERNAL_ERROR, "what")),
        (ValueError("wrong"), (INTERNAL_ERROR, "wrong")),
        (KeyError(), (INTERNAL_ERROR, "KeyError")),
        (
            PublishRefused({"channel": "/a", "error": "403::user.security.notAuthorized"}),
            ("user.security.notAuthorized", "/a was refused: 403::user.security.notAuthorized"),
        ),
        (PublishRefused({"channel": "/a"}), (INTERNAL_ERROR, "/a was refused: no reason given")),
    ],
)
def test_an_exception_is_told_with_its_code(error: Exception, failure: tuple[str, str]) -> None:
    assert failure_of(error) == failure
