"""Bytes as text of five characters for four."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux.z85 import decode_z85, encode_z85
from tests.texts import texts

VECTORS = [
    ("86 4F D2 6F B5 59 F7 5B", "HelloWorld"),
    ("CA FE BA BE", "+kO#^"),
    ("0A 0B 0C", "3jvm"),
    ("0C 00 0F 0F 0E 0E", "3&*!G4H@"),
    ("FF", "@@"),
    ("00", "00"),
    ("", ""),
]


@pytest.mark.parametrize(("content", "text"), VECTORS)
def test_the_vectors_of_the_reference(content: str, text: str) -> None:
    assert encode_z85(bytes.fromhex(content)) == text
    assert decode_z85(text) == bytes.fromhex(content)


@given(st.binary(max_size=50))
def test_what_is_encoded_decodes_to_itself(content: bytes) -> None:
    text = encode_z85(content)
    assert decode_z85(text) == content
    assert len(text) == len(content) + -(-len(content) // 4)


@given(texts(max_size=12))
def test_any_text_decodes_or_is_no_z85(text: str) -> None:
    try:
        content = decode_z85(text)
    except ValueError:
        return
    assert len(content) == len(text) * 4 // 5


@pytest.mark.parametrize("text", ["a", "abcdef", "ab~", "a b", "é0", '"0', "#####", "%nSc1", "00000#####"])
def test_a_foreign_character_a_lone_one_and_too_large_a_group_are_no_z85(text: str) -> None:
    with pytest.raises(ValueError, match="Z85"):
        decode_z85(text)
