"""JSON without loss: a number that no double and no integer of 64 bits has keeps its text from reading to writing."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

_MARKS: Final = b"".join(
    b"0" if each in b"0123456789." else b"e" if each in b"eE" else b"-" if each in b"-" else b" " for each in range(256)
)
"""What `bytes.translate` makes of each byte: all that a number is not made of becomes a space."""
_STEP: Final = 8
_LONG: Final = b"0" * 16
_SMALL: Final = b"e-000"
_LEAST, _BEYOND, _LONGEST = -(1 << 63), 1 << 64, 20


class ExactNumber(float):
    """A number as it was written. It counts as the nearest double, and `codec.encode` writes its text."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> ExactNumber:
        """The number with this text, which is that of a number in JSON."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[ExactNumber], tuple[str]]:
        return ExactNumber, (self.text,)


def parse(text: bytes | str) -> Any:
    """The value of this JSON. Raises orjson.JSONDecodeError."""
    value = orjson.loads(text)
    return read_exactly(text, value) if may_have_exact(text) else value


def may_have_exact(text: bytes | str) -> bool:
    """Whether orjson may change a number in this JSON, which needs at least 16 digits, or an exponent of three."""
    if isinstance(text, str):
        text = text.encode()
    # A regular expression takes several times as long as the parser. Of 16 characters in a row, every eighth is two.
    if b"e-" not in text and b"E-" not in text and text[::_STEP].translate(_MARKS).find(b"00") < 0:
        return False
    marks = text.translate(_MARKS)
    return marks.find(_LONG) >= 0 or marks.find(_SMALL) >= 0


def read_exactly(text: bytes | str, value: Any) -> Any:
    """The value of this JSON, which orjson has read as `value`, with its exact numbers."""
    try:
        exact = json.loads(text, parse_float=_float, parse_int=_integer)
    except RecursionError:
        return value  # nested too deeply for Python's parser, and for `encode`: it is refused
    return [exact] if type(value) is list and type(exact) is dict else exact


def fragment(value: Any) -> orjson.Fragment:
    """What orjson writes for a value that it does not know. Raises TypeError if it is no exact number."""
    if type(value) is ExactNumber:
        return orjson.Fragment(value.text)
    raise TypeError


def _float(text: str) -> float:
    number = float(text)
    return number if repr(number) == text else ExactNumber(text)


def _integer(text: str) -> int | float:
    number = int(text) if len(text) <= _LONGEST else _BEYOND  # Python reads no integer of thousands of digits
    return number if _LEAST <= number < _BEYOND else ExactNumber(text)
