"""What JSON cannot say, and where it stands."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

import pytest

from crewel.bayeux.codec import encoded, not_encodable

NAN, INF = float("nan"), float("inf")


@dataclass
class Price:
    amount: float


class Place(NamedTuple):
    x: int


class Level(Enum):
    NONE = NAN


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (NAN, "data is NaN"),
        ({"price": [1, 2, NAN]}, "data.price[2] is NaN"),
        ({"a b": {"c": INF}}, "data['a b'].c is Infinity"),
        ((1, (-INF,)), "data[1][0] is -Infinity"),
        (Price(NAN), "data.amount is NaN"),
        ([Level.NONE], "data[0] is NaN"),
        ({"none": None, "raw": b"1234"}, "data.raw is 4 bytes"),
        ({"a": {1: 2}}, "data.a is an object with the key 1"),
        ([2**70], "data[0] is an integer of more than 64 bits"),
        (["\ud800"], "data[0] is text that is not valid Unicode"),
        ([{1, 2}], "data[0] is a set"),
        (object(), "data is an object"),
        ({"at": Place(1)}, "data.at is a Place"),
        ([Price], "data[0] is a type"),
        (CIRCLE, "data is nested more than 254 deep, or contains itself"),
    ],
)
def test_what_json_cannot_say_is_named_with_its_place(value: Any, fault: str) -> None:
    with pytest.raises(TypeError) as refused:
        encoded(value, "data")
    assert str(refused.value).startswith(fault)


@pytest.mark.parametrize(
    "value", [None, [None, 1.5, "null", True], {"a": (1,)}, datetime(2024, 1, 1, tzinfo=UTC), Price(1.0)]
)
def test_what_json_can_say_has_no_fault(value: Any) -> None:
    assert not_encodable(value) is None
    assert encoded(value, "data")


def test_a_value_without_a_name_is_called_it() -> None:
    assert not_encodable(NAN) == "it is NaN, which JSON cannot represent"
    assert not_encodable({"data": NAN}) == "data is NaN, which JSON cannot represent"


def test_the_deepest_nesting_is_no_fault() -> None:
    deep: Any = None
    for _ in range(254):
        deep = [deep]
    assert encoded(deep, "data")
