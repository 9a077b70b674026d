"""The `error` field taken apart (Bayeux 1.0, 4.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.client.errors import ClientError, PublishRefused, split_error
from crewel.errors import CrewelError


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        ("402::session_unknown", (402, (), "session_unknown")),
        ("403:denied_by_not_granting:publish_denied", (403, ("denied_by_not_granting",), "publish_denied")),
        ("405:/a,/b:bad: very", (405, ("/a", "/b"), "bad: very")),
        ("400::", (400, (), "")),
        ("400:text", (0, (), "400:text")),
        ("no:code:here", (0, (), "no:code:here")),
        ("", (0, (), "")),
    ],
)
def test_an_error_has_a_code_arguments_and_a_text(error: str, parts: tuple[int, tuple[str, ...], str]) -> None:
    assert split_error(error) == parts


@given(st.text())
def test_no_text_breaks_it(error: str) -> None:
    code, arguments, text = split_error(error)
    assert code or (not arguments and text == error)


def test_a_refusal_says_what_was_refused_and_why() -> None:
    refusal = PublishRefused({"channel": "/a", "successful": False, "error": "403:why:publish_denied"})
    assert str(refusal) == "/a was refused: 403:why:publish_denied"
    assert (refusal.code, refusal.arguments, refusal.text) == (403, ("why",), "publish_denied")
    assert "no reason given" in str(PublishRefused({"channel": "/a", "error": 7}))


def test_there_is_one_tree() -> None:
    assert issubclass(PublishRefused, ClientError)
    assert issubclass(ClientError, CrewelError)
