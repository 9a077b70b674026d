"""Conditions answer what the walk through the expression answers, whatever they are asked about."""

from typing import Any

import jmespath  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.conditions import Unsure, condition_of
from crewel.delivery.filters import Filter, FilterFailed

scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.sampled_from(["", "a", "b"])
)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.sampled_from("ab"), scalars, max_size=2)
documents = st.dictionaries(st.sampled_from("abc"), values)
terms = st.sampled_from(["a", "b", "a.b", "c.a.b", "`1`", "`0`", "`true`", "`null`", "'a'", "`[]`", "`1.5`", "''"])
comparisons = st.tuples(terms, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), terms).map(" ".join)
expressions = st.recursive(
    comparisons | terms,
    lambda part: (
        st.tuples(part, st.sampled_from(["&&", "||"]), part).map(lambda each: f"({' '.join(each)})")
        | part.map(lambda each: f"!({each})")
    ),
    max_leaves=4,
)


def walked(filter_: Filter, document: dict[str, Any]) -> bool | None:
    filter_._condition = None
    return answered(filter_, document)


def answered(filter_: Filter, document: dict[str, Any]) -> bool | None:
    try:
        return filter_.accepts(document)
    except FilterFailed:
        return None


@given(expressions, documents)
def test_a_condition_and_the_walk_agree(expression: str, document: dict[str, Any]) -> None:
    filter_ = Filter(expression)
    assert filter_._condition is not None
    assert answered(filter_, document) == walked(filter_, document)


@pytest.mark.parametrize(
    ("expression", "document"),
    [
        ("a.b.c", {"a": {"b": 1}}),
        ("a.b.c", {"a": {"b": {"c": 1}}}),
        ("a > b", {"a": 1}),
        ("a > b", {"a": 2, "b": 1.5}),
        ("a > b", {"a": "b", "b": "a"}),
        ("a == b", {"a": None}),
        ("a == b", {"a": 1}),
        ("a != b", {"a": "x", "b": "x"}),
        ("!a || b && a", {"a": True, "b": 0}),
    ],
)
def test_each_of_these_too(expression: str, document: dict[str, Any]) -> None:
    filter_ = Filter(expression)
    assert answered(filter_, document) == walked(filter_, document)


@pytest.mark.parametrize(
    "expression",
    [
        "length(a)",
        "a[0]",
        "a[?b]",
        "length(a) > `1`",
        "a > length(b)",
        "!length(a)",
        "a && b[0]",
        "a.b[0].c",
        "@",
        "a.*",
    ],
)
def test_what_is_more_than_a_condition_is_left_to_the_walk(expression: str) -> None:
    assert condition_of(jmespath.compile(expression).parsed) is None


@pytest.mark.parametrize(
    ("expression", "document"),
    [("a == b", {"a": 1, "b": True}), ("a == b", {"a": [1], "b": [1]}), ("a < b", {"a": 1, "b": "x"})],
)
def test_values_with_rules_of_their_own_are_left_to_the_walk(expression: str, document: dict[str, Any]) -> None:
    condition = condition_of(jmespath.compile(expression).parsed)
    assert condition is not None
    with pytest.raises(Unsure):
        condition(document)
