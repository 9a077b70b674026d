"""Filters of subscriptions: JMESPath expressions that are true for the messages to be delivered (design, section 3.8).

They run in the server, on messages of other clients, so they are a part of JMESPath that cannot build anything: no value can
become larger than the message that it was found in, and the steps of one evaluation are counted (decision 0110).
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

__all__ = ["FUNCTIONS", "MAX_LENGTH", "MAX_STEPS", "Filter", "FilterFailed"]

MAX_LENGTH: Final = 1024
"""Longest filter in characters."""
MAX_STEPS: Final = 5000
"""Parts of an expression that one evaluation visits at most: some milliseconds."""

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
_LOOKS_IN: Final = "contains"
"""The one function that may be given a list written in place: it answers true or false, and never the list."""
_FAILURES: Final = (JMESPathError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)

_Node = dict[str, Any]


class FilterFailed(Exception):
    """A filter could not be evaluated: by the expression, or by what the message is like."""


class _Evaluation(TreeInterpreter):  # type: ignore[misc]  # untyped
    """Walks the expression, and counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def visit(self, node: _Node, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise FilterFailed(f"more than {MAX_STEPS} steps")
        return super().visit(node, *args, **kwargs)


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

    def accepts(self, document: Mapping[str, Any]) -> bool:
        """Whether the expression is true for the message, by JMESPath's idea of truth: all but null, false, and an empty
        string, list or object. Raises FilterFailed."""
        if self._condition is not None:
            try:
                return self._condition(document)
            except Unsure:
                pass
        self._evaluation.left = MAX_STEPS
        try:
            result = self._evaluation.visit(self._tree, document)
        except _FAILURES as error:
            raise FilterFailed(str(error)) from error
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
    for node, parent, place in _nodes(tree):
        kind = node["type"]
        if kind == "function_expression":
            name = node["value"]
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
