"""Filters of subscriptions: JMESPath expressions that are true for the messages to be delivered.

They run in the server, on messages of other clients, so they are a part of JMESPath that cannot build anything. No value can
become larger than the message that it was found in, and the steps of one evaluation are counted (docs/decisions/0024).

There are two evaluators. Most filters compare fields with literals; as plain functions they take a tenth of the time of the
library's walk, which is what a busy channel needs. All else, and values with rules of their own, is left to the walk.
tests/qos/test_filters.py holds the two against each other.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import jmespath  # type: ignore[import-untyped]  # it comes without types
from jmespath.exceptions import (  # type: ignore[import-untyped]
    EmptyExpressionError,
    IncompleteExpressionError,
    JMESPathError,
    LexerError,
    ParseError,
)
from jmespath.functions import Functions  # type: ignore[import-untyped]
from jmespath.visitor import TreeInterpreter  # type: ignore[import-untyped]

MAX_LENGTH: Final = 1024
"""Longest filter in characters."""
MAX_STEPS: Final = 5000
"""Steps that the filters of one session take at most for one message: some milliseconds. A part of the expression that is
visited is a step, and so are each `_ITEMS_A_STEP` items and `_CHARACTERS_A_STEP` characters that a function looks at."""
BUDGET_RATE: Final = 25_000
"""Steps a second that are added."""
BUDGET_BURST: Final = 100_000
"""Steps that can be saved up."""
BUDGET_MINIMUM: Final = 100
"""Steps for each message that are allowed whatever was spent before: more than most expressions ever take."""
ACCOUNT_STEPS: Final = 50_000
"""Steps that the filters of one address, or of one subject, take at most for one message, however many sessions it has."""
ACCOUNT_RATE: Final = 100_000
"""Steps a second that are added to what it may take: a tenth of a processor."""
ACCOUNT_BURST: Final = 500_000
"""Steps that it can save up."""
ACCOUNT_MINIMUM: Final = 1000
"""Steps for each message that are allowed whatever it spent before."""
MAX_WHOLE_CALLS: Final = 8
"""Calls of functions that look at whole lists, in one filter."""
_ITEMS_A_STEP: Final = 8
_CHARACTERS_A_STEP: Final = 64

FUNCTIONS: Final = {
    "abs": "The absolute value of a number.",
    "avg": "The mean of a list of numbers; null for an empty list.",
    "ceil": "The number rounded up to a whole number.",
    "contains": "Whether a list contains a value, or a string another string.",
    "ends_with": "Whether a string ends with another one.",
    "floor": "The number rounded down to a whole number.",
    "keys": "The names of an object's fields.",
    "length": "The number of characters, items or fields.",
    "max": "The largest item of a list of numbers or strings.",
    "max_by": "The item for which an expression (`&price`) is largest.",
    "min": "The smallest item of a list of numbers or strings.",
    "min_by": "The item for which an expression is smallest.",
    "not_null": "The first of several values that is not null.",
    "starts_with": "Whether a string begins with another one.",
    "sum": "The sum of a list of numbers.",
    "to_number": "The number in a string; null if the string is no number.",
    "type": "`'string'`, `'number'`, `'boolean'`, `'array'`, `'object'` or `'null'`.",
    "values": "The values of an object's fields.",
}
"""What a filter may call, and what it answers."""

_BUILDERS: Final = {
    "multi_select_list": r"(?<![\w\])\"*@])\[(?!\s*[-\d?\]*:])",  # and not an index, a slice, a filter
    "multi_select_dict": r"\{",
}
"""What builds values, and how to find it in the text."""
_WHOLE: Final = frozenset(("avg", "keys", "max", "max_by", "min", "min_by", "sum", "values"))
_LOOKS_IN: Final = "contains"
"""The one function that may be given a list written in place: it answers true or false, and never the list."""
_FAILURES: Final = (JMESPathError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)

Condition = Callable[[Any], bool]
"""Whether the expression is true for a document."""
_Value = Callable[[Any], Any]
_Node = Mapping[str, Any]

_FALSE: Final[tuple[Any, ...]] = ("", [], {}, None)
"""What JMESPath takes for false, beside false."""
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
_SIZED: Final = (str, list, dict)
_NUMBERS: Final = (int, float)  # by type: a bool is an int to `isinstance`, and none to JMESPath


class FilterFailed(Exception):
    """A filter could not be evaluated: by the expression, or by what the message is like."""


class FilterTooCostly(FilterFailed):
    """The evaluation was given up, because it took all the steps that it was allowed: nothing is known of the message."""


class Unsure(Exception):
    """A condition cannot say: these values have rules of their own."""


class _Evaluation(TreeInterpreter):  # type: ignore[misc]  # untyped
    """Walks the expression, and counts its steps, by the size of what is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = self.left = 0

    def begin(self, steps: int) -> None:
        """Allow the next evaluation so many steps."""
        self.allowed = self.left = steps

    def _take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise FilterTooCostly(f"more than {self.allowed} steps")

    def visit(self, node: _Node, value: Any) -> Any:
        """One step. As in the library, with fewer calls: a step takes half of the time, and no turn can end amid a filter."""
        self.left = left = self.left - 1  # `_take`, without a call
        if left < 0:
            raise FilterTooCostly(f"more than {self.allowed} steps")
        return _VISITS[node["type"]](self, node, value)

    def visit_function_expression(self, node: _Node, value: Any) -> Any:
        arguments = [self.visit(child, value) for child in node["children"]]
        for argument in arguments:
            self._take(_cost(argument))
        if node["value"] == _LOOKS_IN:
            self._compare(arguments[1])
        return self._functions.call_function(node["value"], arguments)

    def visit_comparator(self, node: _Node, value: Any) -> Any:
        name = node["value"]
        if name not in self._EQUALITY_OPS:
            return super().visit_comparator(node, value)
        first, second = node["children"]
        one, other = self.visit(first, value), self.visit(second, value)
        if isinstance(one, _SIZED):
            self._compare(one)
        if isinstance(other, _SIZED):
            self._compare(other)
        return self.COMPARATOR_FUNC[name](one, other)

    def visit_flatten(self, node: _Node, value: Any) -> Any:
        return self._built(super().visit_flatten(node, value))

    def visit_slice(self, node: _Node, value: Any) -> Any:
        return self._built(super().visit_slice(node, value))

    def _built(self, value: Any) -> Any:
        self._take(_cost(value))
        return value

    def _compare(self, value: Any) -> None:
        """Take the steps of comparing this with something: of all that is in it."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            self._take(_cost(each))
            if isinstance(each, dict | list):
                inside = each.values() if isinstance(each, dict) else each
                waiting.extend(item for item in inside if isinstance(item, _SIZED))


_VISITS: Final[Mapping[str, Callable[[_Evaluation, _Node, Any], Any]]] = {
    name.removeprefix("visit_"): getattr(_Evaluation, name) for name in dir(_Evaluation) if name.startswith("visit_")
}
"""What visits a part of an expression, by its type."""


def _cost(value: Any) -> int:
    """The steps of looking at this once, not at what its items are."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_A_STEP
    return 1 + len(value) // _ITEMS_A_STEP if isinstance(value, list | dict) else 0


class Filter:
    """One expression, parsed once. Two filters of one text are the same filter. Those that differ in blanks only have one
    `form`, and say the same of each message."""

    __slots__ = ("_condition", "_evaluation", "_tree", "form", "text")

    def __init__(self, text: str) -> None:
        """Raises ValueError, whose words say what would fit and where it does not."""
        self.text = text
        self._tree = _parsed(text)
        self._evaluation = _Evaluation()
        trouble = _trouble(self._tree, text)
        if trouble:
            raise ValueError(f"a JMESPath expression of the kind in docs/reference/subscriptions.md: {trouble}")
        self._condition = condition_of(self._tree)
        self.form = _form(self._tree)
        """What the parsed expression is, in few bytes."""

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def is_cheap(self) -> bool:
        """Whether it is a condition that nearly always takes no steps."""
        return self._condition is not None

    @property
    def spent(self) -> int:
        """The steps that the evaluation before took, if it took any: of one that was given up, all that it was allowed."""
        return self._evaluation.allowed - max(self._evaluation.left, 0)

    def accepts(self, document: Mapping[str, Any], steps: int = MAX_STEPS) -> bool:
        """Whether the expression is true for the message, by JMESPath's idea of truth: all but null, false, and an empty
        string, list or object. Raises FilterFailed, or FilterTooCostly when it takes more than these steps."""
        if self._condition is not None:
            try:
                return self._condition(document)
            except Unsure:
                pass
        self._evaluation.begin(steps)
        try:
            result = self._evaluation.visit(self._tree, document)
        except _FAILURES as error:  # its own words may quote the whole message
            raise FilterFailed(type(error).__name__) from error
        return result is not False and result not in _FALSE


def _parsed(text: str) -> _Node:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PendingDeprecationWarning)
            tree: _Node = jmespath.compile(text).parsed
    except PendingDeprecationWarning:
        raise ValueError("a JMESPath expression, with JSON between back-ticks") from None
    except EmptyExpressionError:
        raise ValueError("a JMESPath expression that is not empty") from None
    except IncompleteExpressionError:
        raise ValueError("a JMESPath expression: something is missing at its end") from None
    except LexerError as error:
        raise ValueError(f"a JMESPath expression: {error.message} at column {error.lex_position + 1}") from None
    except ParseError as error:
        found = f"{error.token_value!r}" if error.token_value else "the end"
        raise ValueError(f"a JMESPath expression: unexpected {found} at column {error.lex_position + 1}") from None
    except RecursionError:
        raise ValueError("a JMESPath expression that is nested less deeply") from None
    return tree


def _trouble(tree: _Node, text: str) -> str:
    """What filters cannot do, and where the expression does it; empty if it does not."""
    whole = 0
    for node, parent, place in _nodes(tree):
        kind = node["type"]
        if kind == "function_expression":
            name = node["value"]
            whole += name in _WHOLE
            if whole > MAX_WHOLE_CALLS:
                return f"{', '.join(sorted(_WHOLE))} are called {MAX_WHOLE_CALLS} times at most"
            trouble = _wrong_call(name, len(node["children"]))
            if trouble:
                return trouble + _column(text, rf"\b{re.escape(name)}\s*\(")
        elif kind in _BUILDERS and not (
            kind == "multi_select_list" and place == 0 and parent is not None and parent.get("value") == _LOOKS_IN
        ):
            return "lists and objects are written as literals, between back-ticks" + _column(text, _BUILDERS[kind])
    return ""


def _nodes(tree: _Node) -> Iterator[tuple[_Node, _Node | None, int]]:
    """Each node, the one that it belongs to, and its place there."""
    waiting: list[tuple[_Node, _Node | None, int]] = [(tree, None, 0)]
    while waiting:
        node, parent, place = waiting.pop()
        yield node, parent, place
        children = [child for child in node["children"] if isinstance(child, dict)]  # a slice has numbers
        waiting.extend((child, node, number) for number, child in reversed(list(enumerate(children))))


def _form(tree: _Node) -> bytes:
    shape = blake2b(digest_size=16)
    for node, _, place in _nodes(tree):
        # A slice has numbers for children; they count as its value. The number of children makes the order unambiguous.
        given = [child for child in node["children"] if not isinstance(child, dict)]
        shape.update(repr((place, node["type"], node.get("value"), given, len(node["children"]))).encode())
    return shape.digest()


def _wrong_call(name: str, given: int) -> str:
    if name not in FUNCTIONS:
        return f"there is no function {name}(); known are {', '.join(FUNCTIONS)}"
    signature = Functions.FUNCTION_TABLE[name]["signature"]
    is_open = bool(signature[-1].get("variadic"))
    if given == len(signature) or (is_open and given > len(signature)):
        return ""
    return f"{name}() takes {len(signature)}{' or more' if is_open else ''}, and not {given}"


def _column(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return f" (column {found.start() + 1})" if found else ""


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
        return found is not False and found not in _FALSE

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


class FilterBudget:
    """The steps of one session: an allowance for each message, and one over time. A step takes about a microsecond, so what is
    allowed over time keeps the filters of one session at a few hundredths of a processor."""

    __slots__ = ("_at", "_left")

    def __init__(self, now: float) -> None:
        self._left: float = BUDGET_BURST
        self._at = now

    def allowance(self, now: float) -> int:
        """The steps that may be taken for one message. `now` is in seconds, of a clock that never goes back."""
        self._left = min(BUDGET_BURST, self._left + (now - self._at) * BUDGET_RATE)
        self._at = now
        return max(BUDGET_MINIMUM, min(MAX_STEPS, int(self._left)))

    def spend(self, steps: int) -> None:
        """So many were taken."""
        self._left = max(0.0, self._left - steps)
