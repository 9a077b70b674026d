"""Data in models and dataclasses: what a publish writes, and what a subscription reads."""

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict
from typing_extensions import TypedDict

from crewel.client import Message, NotEncodableError
from crewel.client.payload import Payload, written

NUMBER = UUID("47323f5d-954a-4c03-8fca-139c3481e63a")
NOON = dt.datetime(2026, 11, 25, 12, 0, tzinfo=dt.UTC)


@dataclass
class Price:
    amount: Decimal
    _seen: int = 0


class Order(BaseModel):
    pizza: int
    price: Decimal = Decimal("1.10")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: dt.datetime


class Slip(TypedDict):
    pizza: int


class Place(NamedTuple):
    x: int


CIRCLE: list[Any] = [Decimal(1)]
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (Decimal("1.10"), "1.10"),
        ({"price": [Decimal(3)]}, {"price": ["3"]}),
        (NOON, "2026-11-25T12:00:00+00:00"),
        (NUMBER, str(NUMBER)),
        (Price(Decimal("2.50")), {"amount": "2.50"}),
        (Order(pizza=4), {"pizza": 4, "price": "1.10"}),
        ([Order(pizza=4), NUMBER], [{"pizza": 4, "price": "1.10"}, str(NUMBER)]),
        (Place(1), [1]),
    ],
)
def test_a_publish_writes_what_programs_have(value: Any, wire: Any) -> None:
    assert json.loads(written({"data": value})) == {"data": wire}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"price": Decimal("NaN")}, "data.price is a Decimal"),
        ([Decimal(1), {1, 2}], r"data\[1\] is a set"),
        (dt.timedelta(1), "data is a timedelta"),
        (Price, "data is a type"),
        (CIRCLE, "contains itself|data"),
    ],
)
def test_what_it_cannot_write_is_named(value: Any, fault: str) -> None:
    with pytest.raises(NotEncodableError, match=fault):
        written({"data": value})


def received(data: Any, ext: Any = None) -> Message[Any]:
    fields = {"channel": "/a", "data": data} | ({} if ext is None else {"ext": ext})
    return Message("/a", data, fields)


@pytest.mark.parametrize(
    ("kind", "data", "read"),
    [
        (Order, {"pizza": 4, "price": "2.50"}, Order(pizza=4, price=Decimal("2.50"))),
        (Price, {"amount": "2.50"}, Price(Decimal("2.50"))),
        (Slip, {"pizza": 4}, {"pizza": 4}),
        (list[UUID], [str(NUMBER)], [NUMBER]),
        (int | str, "x", "x"),
        (Strict, {"at": "2026-11-25T12:00:00Z"}, Strict(at=NOON)),
    ],
)
def test_a_subscription_reads_what_it_asks_for(kind: Any, data: Any, read: Any) -> None:
    message = received(data)
    payload = Payload(kind)
    assert (payload.read(message), message.data) == (None, read)
    assert (payload.read(message), message.data) == (None, read), "a retry reads it again"
    assert message.fields["data"] == data


def test_bytes_are_read_as_such() -> None:
    message = received({"data": "f!$Kw", "last": True, "meta": {}}, {"binary": {}})
    content = message.content
    assert content is not None
    assert (Payload(bytes).read(message), message.data) == (None, content)
    assert message.content == content


def test_what_does_not_fit_says_where() -> None:
    fault = Payload(list[Order]).read(received([{"pizza": 1}, {"pizza": "many"}, {}, {}, {}]))
    assert fault is not None
    assert fault.startswith("data[1].pizza: Input should be a valid integer")
    assert fault.endswith("; and 1 more")


def test_a_validator_that_fails_rejects_the_message(caplog: pytest.LogCaptureFixture) -> None:
    def look_up(value: Any) -> Any:
        return {}[value]

    assert Payload(Annotated[str, AfterValidator(look_up)]).read(received("pizza")) == "KeyError: 'pizza'"
    assert "a validator failed" in caplog.text


@pytest.mark.parametrize("kind", [{"pizza": int}, lambda: None, "nowhere.Order"])
def test_what_is_no_type_is_said_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="data is a type, such as a pydantic model or a dataclass"):
        Payload(kind)
