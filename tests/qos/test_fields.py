"""The checks of fields: what they take, and the words in which they refuse."""

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.errors import IllegalArgument
from crewel.qos.connect import BURST, CONNECT, DISPATCHER, QUEUE, Burst, ConnectQos, QueueQos, Retries
from crewel.qos.fields import (
    MAX_NUMBER,
    Check,
    Option,
    Options,
    flag,
    json_values,
    list_of,
    number,
    one_of,
    read_fields,
    text,
    text_that,
    whole,
)
from crewel.qos.publish import DESTINATION, PUBLISH, Destination, PublishQos
from crewel.qos.subscribe import HISTORY, SUBSCRIBE, Choice, SubscribeQos
from tests.texts import texts

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts(),
    lambda inner: st.lists(inner) | st.dictionaries(texts(), inner),
    max_leaves=5,
)
CHECKS: list[Check] = [
    flag,
    whole(0),
    whole(1, 9, or_else=-1),
    text(5),
    one_of("a", "b"),
    text_that(str.isdigit, "digits"),
    list_of(flag, 2),
    json_values,
]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (flag, True),
        (flag, False),
        (whole(0), 0),
        (whole(0), MAX_NUMBER),
        (whole(1, 9), 9),
        (whole(1, or_else=-1), -1),
        (text(3), "abc"),
        (text(3, 0), ""),
        (one_of("a", "b"), "b"),
        (json_values, {}),
        (json_values, {"a": None, "b": [1, {"c": 2}], "d": {"base64": "aGVsbG8="}, "e": {"base64": 1, "more": 2}}),
    ],
)
def test_what_fits_is_taken_as_it_is(check: Check, value: Any) -> None:
    assert check(value) is value


def test_a_text_is_checked_by_what_it_has_to_fit() -> None:
    assert text_that(str.isdigit, "digits")("17") == "17"


def test_the_items_of_a_list_are_checked() -> None:
    assert list_of(flag, 2)([True, False]) == (True, False)
    assert list_of(flag, 2)([]) == ()


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (flag, 1, "true or false"),
        (flag, "true", "true or false"),
        (flag, None, "true or false"),
        (whole(0), -1, "a whole number, 0 or more"),
        (whole(0), True, "a whole number, 0 or more"),
        (whole(0), 1.0, "a whole number, 0 or more"),
        (whole(0), "1", "a whole number, 0 or more"),
        (whole(0), MAX_NUMBER + 1, "a whole number, 0 or more"),
        (whole(1, 9), 10, "a whole number, from 1 to 9"),
        (whole(1, or_else=-1), 0, "a whole number, 1 or more, or -1"),
        (text(3), "", "a string of 1 to 3 characters"),
        (text(3), "abcd", "a string of 1 to 3 characters"),
        (text(3), 5, "a string of 1 to 3 characters"),
        (one_of("a", "b"), "c", "one of a, b"),
        (one_of("a", "b"), ["a"], "one of a, b"),
        (text_that(str.isdigit, "digits"), "a", "digits"),
        (text_that(str.isdigit, "digits"), 17, "digits"),
        (number(0.001, 1_000_000), 0, "a number from 0.001 to 1000000$"),
        (list_of(flag, 1), [True, True], "a list of at most 1"),
        (list_of(flag, 1), True, "a list of at most 1"),
        (json_values, [], "an object"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(check: Check, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match="^" + expected):
        check(value)


def test_fields_are_read_by_a_table() -> None:
    assert read_fields({"a": True, "b": 3}, {"a": flag, "b": whole(0), "c": flag}, "it") == {"a": True, "b": 3}
    assert read_fields({}, {"a": flag}, "it") == {}


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ([], "it", "it: must be an object"),
        (None, "it", "it: must be an object"),
        ({"a": 5}, "a", "a: must be true or false"),
        ({"z": 5}, "z", "z: there is no such field; known are a, list, values, inner"),
        ({"list": [True, 5]}, "list.1", "list.1: must be true or false"),
        ({"values": {"x": {"base64": "%"}}}, "values.x", "values.x: must hold base64"),
        ({"values": {"x": {"base64": 5}}}, "values.x", "values.x: must hold base64"),
        ({"values": {"x": {"base64": "\u00e9"}}}, "values.x", "values.x: must hold base64"),
        ({"inner": {"b": 5}}, "inner.b", "inner.b: must be true or false"),
    ],
)
def test_what_does_not_fit_is_named(given: Any, field: str, message: str) -> None:
    def inner(value: object) -> Any:
        return read_fields(value, {"b": flag}, "inner")

    with pytest.raises(IllegalArgument) as caught:
        read_fields(given, {"a": flag, "list": list_of(flag, 5), "values": json_values, "inner": inner}, "it")
    assert caught.value.field == field
    assert caught.value.message == message
    assert caught.value.code == "user.illegalArgument"
    assert caught.value.error == f"400:{field}:user.illegalArgument"


def test_an_object_without_fields_says_that_there_are_none() -> None:
    with pytest.raises(IllegalArgument) as caught:
        read_fields({"a": 1}, {}, "it")
    assert caught.value.message == "a: there is no such field; known are none"


def test_a_name_from_outside_does_not_break_the_three_parts_of_the_error() -> None:
    with pytest.raises(IllegalArgument) as caught:
        read_fields({"a:b" * 100: 1}, {}, "it")
    assert caught.value.error.count(":") == 2
    assert len(caught.value.error) < 200


@given(json, st.sampled_from(CHECKS))
def test_whatever_comes_is_taken_or_refused_and_never_a_failure(value: Any, check: Check) -> None:
    with suppress(IllegalArgument):
        assert read_fields({"f": value}, {"f": check}, "it").keys() == {"f"}


class TestOptions:
    PLACE = Options(
        Option("numEntries", "entries", whole(0), "How many"), Option("newestFirst", "newest_first", flag, "Order")
    )

    def test_read_returns_python_names(self) -> None:
        assert self.PLACE.read({"numEntries": 3, "newestFirst": True}, "history") == {
            "entries": 3,
            "newest_first": True,
        }

    def test_read_names_the_field_on_the_wire(self) -> None:
        with pytest.raises(IllegalArgument, match="numEntries"):
            self.PLACE.read({"numEntries": -1}, "history")

    def test_part_requires_its_fields(self) -> None:
        check = self.PLACE.part(dict, "numEntries")
        assert check({"numEntries": 3}) == {"entries": 3}
        with pytest.raises(ValueError, match="an object with `numEntries`"):
            check({"newestFirst": True})

    def test_write_returns_wire_names_of_what_is_given(self) -> None:
        assert self.PLACE.write({"entries": 3, "newest_first": None}) == {"numEntries": 3}

    def test_write_refuses_an_unknown_option(self) -> None:
        with pytest.raises(TypeError, match="no option order"):
            self.PLACE.write({"order": 1})


@pytest.mark.parametrize(
    ("options", "record"),
    [
        (PUBLISH, PublishQos),
        (DESTINATION, Destination),
        (CONNECT, ConnectQos),
        (BURST, Burst),
        (QUEUE, QueueQos),
        (DISPATCHER, Retries),
    ],
)
def test_every_option_is_a_field_of_its_record(options: Options, record: type[Any]) -> None:
    assert set(options.wire_names) == {each.name for each in fields(record) if each.init}


def test_subscribe_options_are_the_fields_of_choice_and_start() -> None:
    known = {each.name for record in (Choice, SubscribeQos) for each in fields(record)} - {"choice"}
    assert set(SUBSCRIBE.wire_names) | set(HISTORY.wire_names) == known
