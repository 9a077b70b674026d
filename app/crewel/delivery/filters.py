"""Filters of subscriptions: JMESPath expressions that are true for the messages to be delivered (design, section 3.8).

They run in the server, on messages of other clients, so they are a part of JMESPath that cannot build anything: no value can
become larger than the message that it was found in, and the steps of one evaluation are counted (docs/decisions/0024).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
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

from crewel.delivery.conditions import FALSE, Unsure, condition_of

MAX_LENGTH: Final = 1024
"""Longest filter in characters."""
MAX_STEPS: Final = 5000
"""Steps that the filters of one session take at most for one message: some milliseconds. A part of the expression that is
visited is a step, and so are each `_ITEMS_A_STEP` items and `_CHARACTERS_A_STEP` characters that a function looks at."""
MAX_WHOLE_CALLS: Final = 8
"""Calls of functions that look at whole lists, in one filter."""
_ITEMS_A_STEP: Final = 8
_CHARACTERS_A_STEP: Final = 64

FUNCTIONS: Final = {
    "abs": "The number without its sign.",
    "avg": "The mean of a list of numbers; null of an empty one.",
    "ceil": "The next whole number upwards.",
    "contains": "Whether a list has the value, or a text the other text.",
    "ends_with": "Whether a text ends with the other one.",
    "floor": "The next whole number downwards.",
    "keys": "The names of an object's fields.",
    "length": "How many characters, items or fields there are.",
    "max": "The largest of a list of numbers or texts.",
    "max_by": "The item for which an expression (`&price`) is largest.",
    "min": "The smallest of a list of numbers or texts.",
    "min_by": "The item for which an expression is smallest.",
    "not_null": "The first of several values that is not null.",
    "starts_with": "Whether a text begins with the other one.",
    "sum": "The sum of a list of numbers.",
    "to_number": "The number that a text writes; null if it writes none.",
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

_Node = dict[str, Any]


class FilterFailed(Exception):
    """A filter could not be evaluated: by the expression, or by what the message is like."""


class FilterTooCostly(FilterFailed):
    """The evaluation was given up, because it took all the steps that it was allowed: nothing is known of the message."""


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

    def visit(self, node: _Node, *args: Any, **kwargs: Any) -> Any:
        self._take(1)
        return super().visit(node, *args, **kwargs)

    def visit_function_expression(self, node: _Node, value: Any) -> Any:
        arguments = [self.visit(child, value) for child in node["children"]]
        for argument in arguments:
            self._take(_cost(argument))
        if node["value"] == _LOOKS_IN:
            self._compare(arguments[1])
        return self._functions.call_function(node["value"], arguments)

    def visit_comparator(self, node: _Node, value: Any) -> Any:
        if node["value"] in self._EQUALITY_OPS:
            for child in node["children"]:
                self._compare(self.visit(child, value))
        return super().visit_comparator(node, value)

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
                waiting.extend(item for item in inside if isinstance(item, str | list | dict))


def _cost(value: Any) -> int:
    """The steps of looking at this once, not at what its items are."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_A_STEP
    return 1 + len(value) // _ITEMS_A_STEP if isinstance(value, list | dict) else 0


class Filter:
    """One expression, parsed once. Two filters of one text are the same filter."""

    __slots__ = ("_condition", "_evaluation", "_tree", "text")

    def __init__(self, text: str) -> None:
        """Raises ValueError, whose words say what would fit and where it does not."""
        self.text = text
        self._tree = _parsed(text)
        self._evaluation = _Evaluation()
        trouble = _trouble(self._tree, text)
        if trouble:
            raise ValueError(f"a JMESPath expression of the kind in docs/subscribing.md: {trouble}")
        self._condition = condition_of(self._tree)

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
        return result is not False and result not in FALSE


def _parsed(text: str) -> _Node:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PendingDeprecationWarning)
            tree: _Node = jmespath.compile(text).parsed
    except PendingDeprecationWarning:
        raise ValueError("a JMESPath expression, with JSON between back-ticks") from None
    except EmptyExpressionError:
        raise ValueError("a JMESPath expression, and not nothing") from None
    except IncompleteExpressionError:
        raise ValueError("a JMESPath expression: something is missing at its end") from None
    except LexerError as error:
        raise ValueError(f"a JMESPath expression: {error.message} at column {error.lex_position + 1}") from None
    except ParseError as error:
        found = f"{error.token_value!r}" if error.token_value else "the end"
        raise ValueError(f"a JMESPath expression: {found} at column {error.lex_position + 1} does not fit") from None
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
