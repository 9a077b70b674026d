"""What a reported failure means: the table cell by cell, and codes that no receiver may report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.outcomes import (
    INTERNAL_ERROR,
    OUTCOMES,
    OnUserError,
    Outcome,
    code_given,
    outcome_of,
    read_statuses,
    reported_code,
)
from crewel.errors.codes import is_below
from tests.texts import texts

CONTINUE, DEAD = OnUserError.CONTINUE, OnUserError.DEAD
segments = texts("abzAZ09", min_size=1, max_size=8)
codes = st.builds(
    lambda head, tail: ".".join([head, *tail]), st.sampled_from(["user", "communication"]), st.lists(segments)
)


class TestTheTable:
    @pytest.mark.parametrize(
        ("code", "goes_on", "sinks"),
        [
            ("user.update.holdback", Outcome.HOLDBACK, Outcome.HOLDBACK),
            ("user.update.holdback.lunch", Outcome.HOLDBACK, Outcome.HOLDBACK),
            ("communication.user.holdback", Outcome.HOLDBACK, Outcome.HOLDBACK),
            ("communication.user.holdback.lunch", Outcome.HOLDBACK, Outcome.HOLDBACK),
            ("communication.user", Outcome.RETRY, Outcome.RETRY),
            ("user.update.deadMessage", Outcome.DEAD_LETTER, Outcome.DEAD_LETTER),
            ("user.update.deadMessage.bad", Outcome.DEAD_LETTER, Outcome.DEAD_LETTER),
            ("user.security.authentication", Outcome.SESSION_DEAD, Outcome.SESSION_DEAD),
            ("user.security.authentication.accessDenied", Outcome.SESSION_DEAD, Outcome.SESSION_DEAD),
            ("user.security.authorization", Outcome.DEAD_LETTER, Outcome.REJECT_ALL),
            ("user.update", Outcome.DEAD_LETTER, Outcome.REJECT_ALL),
            ("user.update.error", Outcome.DEAD_LETTER, Outcome.REJECT_ALL),
            (INTERNAL_ERROR, Outcome.DEAD_LETTER, Outcome.REJECT_ALL),
            ("user.anything", Outcome.DEAD_LETTER, Outcome.REJECT_ALL),
            ("communication.noConnection", Outcome.RETRY, Outcome.RETRY),
            ("communication.responseTimeout", Outcome.RETRY, Outcome.RETRY),
        ],
    )
    def test_a_code_means_what_the_first_line_says_that_fits(self, code: str, goes_on: Outcome, sinks: Outcome) -> None:
        assert outcome_of(code) is goes_on
        assert outcome_of(code, CONTINUE) is goes_on
        assert outcome_of(code, DEAD) is sinks

    @pytest.mark.parametrize(
        "code", ["user.update.holdbackX", "user.update.deadMessages", "user.security.authenticationX"]
    )
    def test_a_longer_word_is_not_below_a_shorter_one(self, code: str) -> None:
        assert outcome_of(code) is Outcome.DEAD_LETTER
        assert outcome_of(code, DEAD) is Outcome.REJECT_ALL

    @pytest.mark.parametrize("code", ["", "users.update", "communications.x", "internal.x", "resource.overflow"])
    def test_what_no_receiver_reports_is_nothing_to_ask_about(self, code: str) -> None:
        with pytest.raises(ValueError, match="not a code that a receiver reports"):
            outcome_of(code)

    @pytest.mark.parametrize("setting", OnUserError)
    @given(code=codes)
    def test_every_code_that_counts_has_an_outcome(self, setting: OnUserError, code: str) -> None:
        assert outcome_of(reported_code(code), setting) in Outcome

    def test_every_outcome_has_a_line_that_says_what_becomes_of_message_and_dispatcher(self) -> None:
        assert {row.outcome for row in OUTCOMES} == set(Outcome)
        assert all(row.prefix and row.message and row.dispatcher for row in OUTCOMES)


class TestPrefixes:
    @pytest.mark.parametrize(
        ("code", "prefix", "is_so"),
        [
            ("user.update", "user.update", True),
            ("user.update.error", "user.update", True),
            ("user.update.error.more", "user", True),
            ("user.updates", "user.update", False),
            ("user", "user.update", False),
            ("communication.x", "user", False),
        ],
    )
    def test_prefixes_are_taken_by_whole_segments(self, code: str, prefix: str, *, is_so: bool) -> None:
        assert is_below(code, prefix) is is_so


class TestReportedCodes:
    @pytest.mark.parametrize(
        "code",
        [
            "user.x",
            "user.update.holdback",
            "communication.noConnection",
            "user.A9.b",
            "user.security.authentication.nfc_imei",
            "user." + "x" * 123,
        ],
    )
    def test_reportable_code_keeps_its_text(self, code: str) -> None:
        assert reported_code(code) == code

    @pytest.mark.parametrize(
        "given_code",
        [
            None,
            5,
            True,
            {},
            ["user.x"],
            "",
            "user",
            "communication",
            "user.",
            "user..x",
            "user.x.",
            "user.x-y",
            "user.x y",
            "user.x\n",
            " user.x",
            "User.x",
            "user.ü",
            "user.٣",
            "internal.error",
            "resource.overflow.queue.entries",
            "superuser.x",
            "user." + "x" * 124,
        ],
    )
    def test_all_else_becomes_an_internal_error_of_the_receiver(self, given_code: object) -> None:
        assert reported_code(given_code) == INTERNAL_ERROR

    @pytest.mark.parametrize(
        ("given_code", "kept"),
        [
            ("user.x", ""),
            (None, ""),
            ("resource.exhausted", "resource.exhausted"),
            ("", ""),
            (" user.x", " user.x"),
            (42, "42"),
            (True, "true"),
            ({"a": [1]}, '{"a":[1]}'),
            ("user." + "x" * 123, ""),
            ("resource." + "x" * 119, "resource." + "x" * 119),
            ("resource." + "x" * 120, "resource." + "x" * 118 + "…"),
        ],
    )
    def test_what_is_converted_keeps_what_was_given(self, given_code: object, kept: str) -> None:
        assert code_given(given_code) == kept

    @given(texts() | codes)
    def test_a_code_either_counts_or_is_kept_within_the_bound(self, text: str) -> None:
        assert (code_given(text) == "") is (reported_code(text) == text or text == "")
        assert len(code_given(text)) <= 128

    def test_a_status_says_what_was_given(self) -> None:
        statuses, _ = read_statuses([{"id": "1", "errorCode": "resource.x"}, {"id": "2", "errorCode": "user.x"}])
        assert [(each.code, each.original) for each in statuses] == [(INTERNAL_ERROR, "resource.x"), ("user.x", "")]

    @given(texts() | codes)
    def test_what_counts_is_always_a_code_that_counts(self, text: str) -> None:
        counted = reported_code(text)
        assert reported_code(counted) == counted
        assert outcome_of(counted)
