"""The conditions that most filters are, as functions: fields compared with literals or with each other, and `&&`, `||`, `!` of
such. They answer what the library's walk through the expression answers, in a tenth of its time; where that would need a
closer look, they leave it to the walk.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

Condition = Callable[[Any], bool]
"""Whether the expression is true for a document."""
_Value = Callable[[Any], Any]
_Node = Mapping[str, Any]

FALSE: Final[tuple[Any, ...]] = ("", [], {}, None)
"""What JMESPath takes for false, besides false itself."""

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
_NUMBERS: Final = (int, float)  # by type: a bool is an int to `isinstance`, and none to JMESPath


class Unsure(Exception):
    """These values have rules of their own."""


def condition_of(node: _Node) -> Condition | None:
    """The condition that the parsed expression is; None if it is more than that."""
    kind, children = node["type"], node["children"]
    if kind == "comparator":
        return _comparison(node["value"], _value(children[0]), _value(children[1]))
    if kind in ("and_expression", "or_expression", "not_expression"):
        parts = [condition_of(child) for child in children]
        return None if None in parts else _combined(kind, [each for each in parts if each is not None])
    value = _value(node)
    return None if value is None else _truth(value)


def _value(node: _Node) -> _Value | None:
    kind = node["type"]
    if kind == "literal":
        literal = node["value"]
        return lambda _: literal
    if kind == "field":
        return _path((node["value"],))
    if kind == "subexpression" and all(child["type"] == "field" for child in node["children"]):
        return _path(tuple(child["value"] for child in node["children"]))
    return None


def _path(names: tuple[str, ...]) -> _Value:
    def value(document: Any) -> Any:
        for name in names:
            if type(document) is not dict:
                return None
            document = document.get(name)
        return document

    return value


def _truth(value: _Value) -> Condition:
    def holds(document: Any) -> bool:
        found = value(document)
        return found is not False and found not in FALSE

    return holds


def _combined(kind: str, parts: list[Condition]) -> Condition:
    if kind == "not_expression":
        only = parts[0]
        return lambda document: not only(document)
    first, second = parts
    if kind == "and_expression":
        return lambda document: first(document) and second(document)
    return lambda document: first(document) or second(document)


def _comparison(name: str, left: _Value | None, right: _Value | None) -> Condition | None:
    if left is None or right is None:
        return None
    order = _ORDERS.get(name)
    if order is None:
        is_equality = name == "eq"
        return lambda document: _equal(left(document), right(document)) is is_equality

    def holds(document: Any) -> bool:
        one, other = left(document), right(document)
        if one is None or other is None:
            return False
        if (type(one) in _NUMBERS and type(other) in _NUMBERS) or (type(one) is str and type(other) is str):
            return order(one, other)
        raise Unsure

    return holds


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if type(one) is type(other) and type(one) in (str, int, float, bool):
        return bool(one == other)
    raise Unsure
