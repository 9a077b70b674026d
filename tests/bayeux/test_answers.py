"""Requests and answers as messages (docs/how-to/request-reply.md)."""

from typing import Any

import pytest

from crewel.bayeux.answers import FAULT, UNTOLD, error_answer, error_of, failure, reply_channel
from crewel.errors import RemoteCallError

REPLY = "/ret/a1/3000001"


class Coded(Exception):
    def __init__(self, text: str, **told: Any) -> None:
        super().__init__(text)
        self.__dict__.update(told)


@pytest.mark.parametrize(
    "ext",
    [
        {"replyTo": REPLY},
        {"update": {"replyTo": REPLY}},
        {"replyTo": 5, "update": {"replyTo": REPLY}},
        {"replyTo": REPLY, "update": 5},
    ],
)
def test_a_message_that_names_a_reply_channel_is_a_request(ext: Any) -> None:
    assert reply_channel({"channel": "/power", "data": 1, "ext": ext}) == REPLY


@pytest.mark.parametrize("told", [None, 5, "", "/a", "/service/x", "/ret/a1/*", "/ret/a1", "/ret/**", "ret:a1:3000001"])
def test_a_message_that_names_another_channel_is_none(told: Any) -> None:
    """Whoever asks cannot make a responder publish elsewhere."""
    assert reply_channel({"channel": "/power", "data": 1, "ext": {"replyTo": told}}) is None
    assert reply_channel({"channel": "/power", "data": 1, "ext": {"update": {"replyTo": told}}}) is None


@pytest.mark.parametrize("fields", [{}, {"ext": None}, {"ext": 5}, {"ext": {}}])
def test_a_message_that_names_none_is_none(fields: Any) -> None:
    assert reply_channel(fields) is None


@pytest.mark.parametrize(
    ("ext", "error"),
    [
        (error_answer("user.a", "why"), ("user.a", "why")),
        ({"error": {"errorCode": "user.a"}}, ("user.a", "")),
        ({"error": {"message": "why"}}, (FAULT, "why")),
        ({"error": {"errorCode": "", "message": 5}}, (FAULT, "")),
        ({"error": {}}, (FAULT, "")),
        ({"error": "why"}, (FAULT, "why")),
        ({"error": None}, None),
        ({"error": False}, None),
        ({}, None),
        (5, None),
    ],
)
def test_an_answer_tells_of_a_failure_in_ext_error(ext: Any, error: Any) -> None:
    assert error_of({"channel": REPLY, "data": None, "ext": ext}) == error


def test_what_is_told_of_a_failure_is_bounded() -> None:
    told = error_answer("c" * 1000, "t" * 1000)["error"]
    assert (len(told["errorCode"]), len(told["message"])) == (200, 500)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("secret"), (FAULT, UNTOLD, None)),
        (RemoteCallError({"x": 1}), (FAULT, UNTOLD, {"x": 1})),
        (Coded("why", error_code="user.a"), ("user.a", "why", None)),
        (Coded("long", error_code="user.a", message="why", data=[1]), ("user.a", "why", [1])),
        (Coded("why", error_code=5), (FAULT, UNTOLD, None)),
        (Coded("why", error_code=""), (FAULT, UNTOLD, None)),
    ],
)
def test_an_exception_that_brings_a_code_is_told_and_others_are_not(error: Exception, told: Any) -> None:
    assert failure(error) == told
