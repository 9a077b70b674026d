"""Numbers keep their value from reading to writing, however many digits they have."""

from __future__ import annotations

import copy
import json
import random
from decimal import Decimal
from functools import partial

import orjson
import pytest

from crewel.bayeux.codec import decode, encode, join, reread
from crewel.bayeux.numbers import ExactNumber, may_have_exact, parse, read_exactly

NUMBERS = [
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "12345678901234567.89",
    "0.10000000000000001",
    "1e-400",
    "1E-0400",
    "9007199254740993e1",
    "1.00000000000000001e-7",
    "-0.0",
    "1.0",
    "123456789012345678901234567890",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("before", range(8))
def test_a_number_is_written_as_it_was_read(number: str, before: int) -> None:
    for text in (f'{{"channel":"/a","data":{{"n":{number}}}}}', f'{{"channel":"/a","data":[{" " * before}{number}]}}'):
        wire = text.replace(" ", "").encode()
        assert encode(parse(text)) == encode(reread(text.encode())) == wire
        assert join(map(encode, decode(text, 10, 10))) == b"[" + wire + b"]"
        assert join(map(encode, decode(f"[{text},{{}}]".encode(), 10, 10))) == b"[" + wire + b",{}]"


def test_any_number_keeps_its_value() -> None:
    numbers = random.Random(62)
    for _ in range(20_000):
        whole, part = (str(numbers.getrandbits(numbers.choice([8, 53, 64, 90]))) for _ in range(2))
        power = numbers.choice(["", "", f"e{numbers.randint(-330, 200)}", f"E-{numbers.randint(0, 30)}"])
        text = numbers.choice(["", "-"]) + whole + numbers.choice(["", f".{part}", f".000{part}"]) + power
        assert Decimal(encode(parse(text.encode())).decode()) == Decimal(text)


def some_value(some: random.Random, depth: int) -> str:
    """The JSON of a value."""
    kind = some.choice(["text", "number", "number", "word", "object", "array"][: None if depth else 4])
    if kind == "object":
        return "{" + ",".join(f'"{name}":{some_value(some, depth - 1)}' for name in "abc"[: some.randint(0, 3)]) + "}"
    if kind == "array":
        return "[" + ",".join(some_value(some, depth - 1) for _ in range(some.randint(0, 3))) + "]"
    if kind == "number":
        return some.choice([*NUMBERS, "0", "-12", "1.5", "2e-7", "1764316779000"])
    return some.choice(
        ["true", "null"] if kind == "word" else ['"e-400"', '"1234567890123456789012"', '"2026-11-28"', '""']
    )


def test_any_message_keeps_its_numbers_wherever_they_are() -> None:
    """As a parser reads them that has no doubles."""
    some = random.Random(63)
    read = partial(json.loads, parse_float=Decimal, parse_int=Decimal)
    for _ in range(5_000):
        names = ["data", *some.sample(["ext", "more", "other"], some.randint(0, 2))]
        fields = ",".join(f'"{name}":{some_value(some, some.randint(0, 3))}' for name in some.sample(names, len(names)))
        text = f'{{"channel":"/a","clientId":"x7","id":"1",{fields}}}'
        assert read(join(map(encode, decode(text.encode(), 10, 10)))) == [read(text)]


def test_an_exact_number_counts_as_the_nearest_double() -> None:
    number = parse(b"18446744073709551616")
    assert isinstance(number, ExactNumber)
    assert number == 2.0**64
    assert copy.deepcopy([number])[0].text == number.text == "18446744073709551616"
    assert repr(number) == number.text
    with pytest.raises(orjson.JSONDecodeError):
        parse(b"1e400")


def test_data_nested_beyond_the_parser_of_python_is_read_without_exact_numbers() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert read_exactly(deep, "as orjson read it") == "as orjson read it"


def test_ordinary_numbers_are_not_parsed_twice() -> None:
    assert not may_have_exact(b'{"channel":"/a/b","data":{"price":1.5,"at":1764316779000,"n":-12,"on":"2026-11-28"}}')
