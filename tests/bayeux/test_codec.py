"""JSON in and out."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux.codec import check_batch, decode, encode, join
from crewel.errors import Fault, PayloadError
from tests.texts import texts

HANDSHAKE = {"channel": "/meta/handshake"}

numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4),
    max_leaves=5,
)
messages = st.dictionaries(texts(), values, max_size=3)


def read(body: bytes | str, max_messages: int = 100, max_depth: int = 64) -> list[Any]:
    return decode(body, max_messages=max_messages, max_depth=max_depth)


def fault_of(body: bytes | str, max_messages: int = 100, max_depth: int = 64) -> Fault:
    with pytest.raises(PayloadError) as caught:
        read(body, max_messages, max_depth)
    return caught.value.fault


class TestDecode:
    def test_an_array_is_its_elements(self) -> None:
        assert read(b' [ {"channel":"/a"} , 5, "x", null ] \n') == [{"channel": "/a"}, 5, "x", None]

    def test_a_bare_object_is_a_list_of_one(self) -> None:
        assert read(b'{"channel":"/a"}') == [{"channel": "/a"}]

    def test_text_is_read_as_bytes_are(self) -> None:
        assert read('[{"channel":"/ä"}]') == [{"channel": "/ä"}]

    def test_a_long_integer_survives(self) -> None:
        assert read(b'[{"data":1234567890123456789}]')[0]["data"] == 1234567890123456789

    def test_of_equal_keys_the_last_wins(self) -> None:
        assert read(b'[{"id":"1","id":"2"}]') == [{"id": "2"}]

    @pytest.mark.parametrize(
        ("body", "fault"),
        [
            (b"", Fault.MALFORMED),
            (b"   ", Fault.MALFORMED),
            (b"{", Fault.MALFORMED),
            (b"[{}", Fault.MALFORMED),
            (b"[{}]x", Fault.MALFORMED),
            (b"[{}],[{}]", Fault.MALFORMED),
            (b"\xef\xbb\xbf[{}]", Fault.MALFORMED),
            (b'[{"channel":"\xff"}]', Fault.MALFORMED),
            (b'[{"data":"\\ud800"}]', Fault.MALFORMED),
            (b"[NaN]", Fault.MALFORMED),
            (b"5", Fault.MALFORMED),
            (b'"text"', Fault.MALFORMED),
            (b"true", Fault.MALFORMED),
            (b"null", Fault.EMPTY),
            (b"[]", Fault.EMPTY),
            (b"[" * 5000 + b"]" * 5000, Fault.MALFORMED),
        ],
    )
    def test_what_is_no_payload_is_refused_as_a_whole(self, body: bytes, fault: Fault) -> None:
        assert fault_of(body) is fault

    def test_a_batch_is_bounded(self) -> None:
        assert len(read(b"[{},{},{}]", max_messages=3)) == 3
        assert fault_of(b"[{},{},{}]", max_messages=2) is Fault.TOO_MANY

    @pytest.mark.parametrize("text", ["[[[[]]]]", '[{"a":{"b":[]}}]', '{"a":{"b":[]}}'])
    def test_depth_counts_arrays_and_objects_with_the_batch(self, text: str) -> None:
        for body in (text, text.encode()):
            assert read(body, max_depth=4)
            assert fault_of(body, max_depth=3) is Fault.TOO_DEEP

    def test_depth_counts_in_a_flat_message_too(self) -> None:
        body = b'{"channel":"/a","data":{"n":1}}'
        assert read(body, max_depth=3)
        assert fault_of(body, max_depth=2) is Fault.TOO_DEEP

    def test_many_brackets_side_by_side_or_in_text_are_not_deep(self) -> None:
        assert read(b"[" + b",".join([b"{}"] * 50) + b"]", max_depth=2)
        assert read(b'["[[[[[[{{{{{{"]', max_depth=1)

    @given(st.binary(max_size=40))
    def test_any_bytes_are_elements_or_a_fault_and_nothing_else(self, body: bytes) -> None:
        with suppress(PayloadError):
            assert read(body)


class TestBatches:
    @pytest.mark.parametrize("name", ["/meta/handshake", "/meta/handshake/"])
    def test_a_handshake_must_be_alone_however_it_is_spelt(self, name: str) -> None:
        """A trailing slash is the same channel, so it is the same handshake."""
        shake = {"channel": name}
        check_batch([shake], max_messages=9)
        for elements in ([shake, {}], [{}, shake], [shake, shake]):
            with pytest.raises(PayloadError) as caught:
                check_batch(elements, max_messages=9)
            assert caught.value.fault is Fault.HANDSHAKE_IN_BATCH

    def test_other_elements_may_come_together_whatever_they_are(self) -> None:
        check_batch(
            [{"channel": "/meta/connect"}, 5, None, [HANDSHAKE], {"channel": ["/meta/handshake"]}], max_messages=9
        )


class TestEncode:
    @given(messages)
    def test_what_goes_out_comes_back(self, message: dict[str, Any]) -> None:
        assert read(join([encode(message)]), max_depth=1000) == [message]

    @given(st.lists(messages, min_size=1, max_size=3))
    def test_joined_parts_are_one_array(self, sent: list[dict[str, Any]]) -> None:
        assert json.loads(join(encode(message) for message in sent)) == sent

    def test_nothing_joined_is_still_an_array(self) -> None:
        assert join([]) == b"[]"

    @pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": {1, 2}}, 2**64, "\ud800", b"bytes"])
    def test_what_json_cannot_say_is_a_type_error(self, value: Any) -> None:
        with pytest.raises(TypeError):
            encode(value)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'[{"data":NaN}]', "(NaN is no number of JSON, character 9)"),
        ('[{"data":-Infinity}]', "(Infinity is no number of JSON, character 10)"),
        (b'[{"data":}]', "character 9)"),
    ],
)
def test_what_is_malformed_is_told_with_its_place(body: bytes | str, detail: str) -> None:
    with pytest.raises(PayloadError) as refused:
        decode(body, max_messages=10, max_depth=64)
    assert str(refused.value).endswith(detail)
