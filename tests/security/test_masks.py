"""Masks hide fields that a publisher wrote, and nothing that the server says."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.security.masks import masked, masked_message

NAMES = frozenset(("email", "iban", "id"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"Email": "a@b", "age": 5}, {"Email": "***", "age": 5}),
        ({"list": [{"iban": {"x": 1}}, "email"]}, {"list": [{"iban": "***"}, "email"]}),
        ([[{"email": None}]], [[{"email": "***"}]]),
        ("email", "email"),
        (None, None),
    ],
)
def test_a_named_field_is_hidden_at_any_depth(value: Any, shown: Any) -> None:
    assert masked(value, NAMES) == shown


def test_what_the_server_says_stays() -> None:
    message = {
        "channel": "/a", "id": "7", "data": {"id": 8},
        "ext": {"update": {"id": "7", "qos": {"clientProperties": {"email": "a@b"}}}, "email": "a@b", "acme": {"iban": 1}},
    }  # fmt: skip
    assert masked_message(message, NAMES) == {
        "channel": "/a", "id": "7", "data": {"id": "***"},
        "ext": {"update": {"id": "7", "qos": {"clientProperties": {"email": "***"}}}, "email": "***", "acme": {"iban": "***"}},
    }  # fmt: skip
    assert masked_message(message, frozenset()) is message
