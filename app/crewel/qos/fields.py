"""Options, and the checks of the fields that carry them in a request's `ext`.

An option is one row of a table: the server reads the field by it, the client writes it, command line and docs take their texts
from it. A check turns what JSON brought into a value, or raises ValueError with words for what would fit. `read_fields` runs
the checks over an object and names the field that does not fit.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, NamedTuple

from crewel.errors import IllegalArgument

Check = Callable[[object], Any]
_LONGEST_NAME: Final = 32


class Option(NamedTuple):
    """One field of an `ext`. Its default is that of the record that it is read into."""

    wire: str
    """Its name on the wire."""
    name: str
    """Its name in Python: of the field of the record, and of the client's keyword."""
    check: Check
    meaning: str
    """What it says, in a sentence without an end, for docs and command line."""
    page: str = ""
    """The page of the docs that tells more."""


MAX_NUMBER: Final = 2**53 - 1
"""Largest whole number that every client can write."""


class Options:
    """The options of one object, as a table: all that is known of each stands in its row."""

    def __init__(self, *rows: Option) -> None:
        self.rows = rows
        self._checks = {row.wire: row.check for row in rows}
        self._names = {row.wire: row.name for row in rows}
        self.wire_names = {row.name: row.wire for row in rows}
        """Names on the wire by names in Python."""

    def read(self, given: object, where: str) -> dict[str, Any]:
        """The options that are there, checked, by their names in Python. Raises IllegalArgument, as `read_fields`."""
        return {self._names[wire]: value for wire, value in read_fields(given, self._checks, where).items()}

    def part(self, make: Callable[..., Any], *required: str) -> Check:
        """The check of an object in the object: `make` takes its options by their names. Those required must be there."""

        def check(value: object) -> Any:
            if not isinstance(value, dict) or not value.keys() >= set(required):
                raise ValueError("an object" + "".join(f" with `{wire}`" for wire in required))
            return make(**self.read(value, ""))

        return check

    def write(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options by their names on the wire, from those by their names in Python; None is as if it was not given. Raises
        TypeError for one that there is not."""
        return {self._wire(name): value for name, value in given.items() if value is not None}

    def _wire(self, name: str) -> str:
        try:
            return self.wire_names[name]
        except KeyError:
            raise TypeError(f"there is no option {name}") from None


def read_fields(given: object, checks: Mapping[str, Check], where: str) -> dict[str, Any]:
    """The fields that are there, checked. A field that has no check is a mistake too: what it asks for would silently not be
    done. Raises IllegalArgument; `where` is the name of the object, and the dotted prefix of its fields."""
    if not isinstance(given, dict):
        raise IllegalArgument(where, "must be an object")
    return {name: _checked(checks, name, value) for name, value in given.items()}


def _checked(checks: Mapping[str, Check], name: str, value: object) -> Any:
    check = checks.get(name)
    # A publisher that writes `persistant` believes that its message is stored.
    if check is None:
        # To compare takes a while, the longer the name is: no name of ours is as long as that.
        near = get_close_matches(name, checks, 1) if len(name) <= _LONGEST_NAME else ()
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(checks) or 'none'}"
        raise IllegalArgument(name, f"there is no such field; {hint}")
    try:
        return check(value)
    except IllegalArgument as inner:  # of an object in it, which knows only its own fields
        raise IllegalArgument(f"{name}.{inner.field}", inner.expected) from None
    except ValueError as error:
        raise IllegalArgument(name, f"must be {error}") from None


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 - one error for all that does not fit
    return value


def whole(low: int, high: int = MAX_NUMBER, *, or_else: int | None = None) -> Check:
    """A whole number within these bounds, or the one that stands for "without limit"."""
    span = f"{low} or more" if high == MAX_NUMBER else f"from {low} to {high}"
    expected = f"a whole number, {span}" + ("" if or_else is None else f", or {or_else}")

    def check(value: object) -> int:
        # By type: a bool is an int to `isinstance`.
        if type(value) is not int or not (low <= value <= high or value == or_else):
            raise ValueError(expected)
        return value

    return check


def number(low: float, high: float) -> Check:
    """A number within these bounds, with a fraction perhaps."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"a number from {low:.9g} to {high:.9g}")
        return float(value)

    return check


def text(max_length: int, min_length: int = 1) -> Check:
    """A string of so many characters."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not min_length <= len(value) <= max_length:
            raise ValueError(f"a string of {min_length} to {max_length} characters")
        return value

    return check


def text_that(fits: Callable[[str], object], expected: str) -> Check:
    """A string that fits."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not fits(value):
            raise ValueError(expected)
        return value

    return check


def one_of(*values: str) -> Check:
    """One of these strings."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError("one of " + ", ".join(values))
        return value

    return check


def member_of(kind: type[StrEnum]) -> Check:
    """One of the values of this enumeration, as its member."""
    check = one_of(*kind)
    return lambda value: kind(check(value))


def list_of(check_item: Check, max_length: int) -> Check:
    """A list, its items checked; an item that does not fit is named by its place, from 0."""

    def check(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > max_length:
            raise ValueError(f"a list of at most {max_length}")
        return tuple(_checked({str(place): check_item}, str(place), item) for place, item in enumerate(value))

    return check


def one_or_list_of(check_item: Check, max_length: int) -> Check:
    """A list, its items checked, or one item alone."""
    check_list = list_of(check_item, max_length)
    return lambda value: check_list(value) if isinstance(value, list) else (check_item(value),)


def json_values(value: object) -> dict[str, Any]:
    """An object of any JSON values by name. Bytes are written `{"base64": "..."}`, and such an object holds base64."""
    if not isinstance(value, dict):
        raise ValueError("an object")  # noqa: TRY004 - one error for all that does not fit
    for name, item in value.items():
        if isinstance(item, dict) and item.keys() == {"base64"} and not _is_base64(item["base64"]):
            raise IllegalArgument(name, "must hold base64")
    return value


def _is_base64(value: object) -> bool:
    try:
        return isinstance(value, str) and b64decode(value, validate=True) is not None
    except (binascii.Error, ValueError):
        return False
