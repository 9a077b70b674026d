"""Bytes as text, four in five characters (ZeroMQ RFC 32), without padding: how `ext.binary` has them."""

from __future__ import annotations

from typing import Final

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_PADDING: Final = _ALPHABET[-1]


def encode_z85(content: bytes) -> str:
    """Z85 without padding: a last group of n bytes becomes n + 1 characters."""
    missing = -len(content) % 4
    padded = content + bytes(missing)
    characters = []
    for start in range(0, len(padded), 4):
        value = int.from_bytes(padded[start : start + 4], "big")
        characters.append("".join(_ALPHABET[value // 85**power % 85] for power in (4, 3, 2, 1, 0)))
    text = "".join(characters)
    return text[: len(text) - missing]


def decode_z85(text: str) -> bytes:
    """The bytes of Z85 without padding. Raises ValueError for a foreign character, a group of one character, or a group
    beyond 32 bits."""
    missing = -len(text) % 5
    if missing == 4:
        raise ValueError("Z85 text cannot end in a group of one character")
    padded = text + _PADDING * missing
    content = bytearray()
    try:
        for start in range(0, len(padded), 5):
            value = 0
            for character in padded[start : start + 5]:
                value = value * 85 + _VALUES[character]
            content += value.to_bytes(4, "big")
    except (KeyError, OverflowError):
        raise ValueError("not Z85 text") from None
    return bytes(content[: len(content) - missing])
