"""Masks hide fields that a publisher wrote, and nothing that the server says."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.codec import encode, reread
from crewel.security.masks import masked, masked_message, unmasked

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


def line(sku: Any, email: str = "***") -> dict[str, Any]:
    return {"sku": sku, "email": email}


A, B = line(1, "a@x"), line(2, "b@x")


@pytest.mark.parametrize(
    ("original", "edited", "sent"),
    [
        ([A, B], [line(1), line(2)], [A, B]),
        ([A, B], [line(2)], [B]),
        ([A, B], [line(2), line(1)], [B, A]),
        ([A, B], [line(3, "c@x"), line(1), line(2)], [line(3, "c@x"), A, B]),
        ([A, B], [line(2), line(3, "c@x")], [B, line(3, "c@x")]),
        ([A, B], [line(7), line(2)], [line(7, "a@x"), B]),
        ([A, B], [line(1, "c@x"), line(2)], [line(1, "c@x"), B]),
        ([[A], [B]], [[line(2)]], [[B]]),
        ([line(1.0, "a@x"), B], [line(1)], [line(1, "a@x")]),  # as a page of JavaScript writes it
        ([A, line(1, "c@x"), B], [line(1), line(1)], [A, line(1, "c@x")]),
        ([A, A, B], [line(1), line(2)], [A, B]),
        ([A, line(1, "c@x")], [line(1, "d@x"), line(1)], [line(1, "d@x"), line(1, "c@x")]),
        ([1, 1, 2], [2, 1, 1, 1], [2, 1, 1, 1]),
    ],
)  # fmt: skip
def test_an_edited_list_keeps_the_hidden_fields_of_each_item(original: Any, edited: Any, sent: Any) -> None:
    assert unmasked({"lines": edited}, {"lines": original}, NAMES) == {"lines": sent}


@pytest.mark.parametrize(
    ("original", "edited", "place"),
    [
        ([A, B], [line(7)], 0),
        ([A, B], [line(2), line(7)], 1),
        ([A, B], [line(1), line(1)], 0),
        ([A, line(1, "c@x")], [line(1)], 0),
        ([A, B, line(3, "c@x")], [line(7), line(3), line(4, "d@x")], 0),
        ([A, line(1, "c@x"), B], [line(2), line(1), line(3, "d@x")], 1),
        ([A], [line(1), line(2)], 1),
        (A, [line(1)], 0),
    ],
)
def test_a_mask_whose_value_is_not_clear_is_refused_with_its_place(original: Any, edited: Any, place: int) -> None:
    with pytest.raises(ValueError, match=rf"no \*\*\* in lines\.{place}\.email: .*; write the value$"):
        unmasked({"lines": edited}, {"lines": original}, NAMES)


def test_hidden_numbers_that_differ_beyond_a_double_are_not_the_same() -> None:
    original = reread(b'[{"iban":123456789012345678901},{"iban":123456789012345678902}]')
    kept = [{"iban": "***"}] * 2
    assert encode(unmasked(kept, original, NAMES)) == encode(original)
    with pytest.raises(ValueError, match=r"0\.iban"):
        unmasked(kept[:1], original, NAMES)
