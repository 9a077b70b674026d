"""What clients say of their messages: what is understood, and what comes back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.outcomes import INTERNAL_ERROR, MAX_REASON, MAX_STATUSES, Status, Verdict, read_statuses
from tests.texts import texts

ID = "id must be that of a delivered message, a string"
STATE = "state must be OK, WORKING or UNCLAIMED, unless there is an errorCode"
OBJECT = "must be an object with `id`, and `errorCode` or `state`"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "state", "errorCode"]), inner),
    max_leaves=6,
)


def only(given_status: dict[str, Any]) -> Status:
    (status,), rejected = read_statuses([given_status])
    assert not rejected
    return status


class TestUnderstood:
    @pytest.mark.parametrize(
        ("state", "verdict"),
        [("OK", Verdict.OK), ("WORKING", Verdict.WORKING), ("UNCLAIMED", Verdict.UNCLAIMED)],
    )
    def test_a_state(self, state: str, verdict: Verdict) -> None:
        told = {"id": "17", "state": state}
        assert only(told) == Status("17", verdict, "", "", told)

    def test_a_failure_has_a_code_and_words(self) -> None:
        told = {"id": "17", "errorCode": "user.update.holdback", "message": "lunch"}
        assert only(told) == Status("17", Verdict.FAILED, "user.update.holdback", "lunch", told)

    def test_an_error_code_counts_before_a_state(self) -> None:
        assert only({"id": "17", "errorCode": "user.x", "state": "OK"}).verdict is Verdict.FAILED

    @pytest.mark.parametrize("code", [None, 7, "", "resource.full", {"code": "user.x"}])
    def test_a_code_that_nobody_may_report_is_an_internal_error(self, code: Any) -> None:
        assert only({"id": "17", "errorCode": code}).code == INTERNAL_ERROR

    @pytest.mark.parametrize("words", [None, 5, ["why"], {}])
    def test_words_that_are_none_are_left_out(self, words: Any) -> None:
        assert only({"id": "17", "errorCode": "user.x", "message": words}).reason == ""

    def test_long_words_are_cut(self) -> None:
        assert only({"id": "17", "errorCode": "user.x", "message": "é" * 5000}).reason == "é" * MAX_REASON

    def test_statuses_keep_their_order(self) -> None:
        statuses, rejected = read_statuses([{"id": each, "state": "OK"} for each in ("3", "1", "2", "1")])
        assert ([each.id for each in statuses], rejected) == (["3", "1", "2", "1"], [])

    def test_there_may_be_none(self) -> None:
        assert read_statuses([]) == ([], [])


class TestRejected:
    @pytest.mark.parametrize(
        ("told", "reason"),
        [
            ({}, ID),
            ({"state": "OK"}, ID),
            ({"id": None, "state": "OK"}, ID),
            ({"id": 17, "state": "OK"}, ID),
            ({"id": ["17"], "errorCode": "user.x"}, ID),
            ({"id": "17"}, STATE),
            ({"id": "17", "state": "ok"}, STATE),
            ({"id": "17", "state": "DONE"}, STATE),
            ({"id": "17", "state": None}, STATE),
            ({"id": "17", "state": ["OK"]}, STATE),
            ({"id": "17", "message": "no code"}, STATE),
        ],
    )
    def test_an_object_is_told_back_with_what_is_wrong(self, told: dict[str, Any], reason: str) -> None:
        assert read_statuses([told]) == ([], [{**told, "reason": reason}])

    @pytest.mark.parametrize("told", [None, True, 5, "17", ["17"], [{"id": "17", "state": "OK"}]])
    def test_what_is_no_object_is_sent_back_with_what_is_wrong(self, told: Any) -> None:
        assert read_statuses([told]) == ([], [{"status": told, "reason": OBJECT}])

    @pytest.mark.parametrize("told", [None, True, 5, "OK", {}, {"id": "17", "state": "OK"}])
    def test_what_is_no_list_is_named_once(self, told: Any) -> None:
        assert read_statuses(told) == ([], [{"reason": f"must be a list of at most {MAX_STATUSES} statuses"}])

    def test_a_list_has_a_limit(self) -> None:
        most = [{"id": "1", "state": "OK"}] * MAX_STATUSES
        assert len(read_statuses(most)[0]) == MAX_STATUSES
        statuses, (rejected,) = read_statuses([*most, most[0]])
        assert (statuses, rejected) == ([], {"reason": f"must be a list of at most {MAX_STATUSES} statuses"})

    def test_the_others_of_the_list_count_all_the_same(self) -> None:
        statuses, rejected = read_statuses([{"id": "1", "state": "OK"}, 5, {"id": "2", "errorCode": "user.x"}])
        assert [each.id for each in statuses] == ["1", "2"]
        assert len(rejected) == 1

    @given(json_values)
    def test_whatever_is_sent_each_part_is_understood_or_told_back(self, told: Any) -> None:
        statuses, rejected = read_statuses(told)
        assert len(statuses) + len(rejected) == (len(told) if isinstance(told, list) else 1)
        assert all(each["reason"] for each in rejected)
