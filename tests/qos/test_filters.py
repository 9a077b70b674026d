"""Filters: what they take, what they refuse and where, and that none can make the server work for long."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jmespath  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.qos.filters import (
    BUDGET_BURST,
    BUDGET_MINIMUM,
    BUDGET_RATE,
    FUNCTIONS,
    MAX_LENGTH,
    MAX_STEPS,
    MAX_WHOLE_CALLS,
    Filter,
    FilterBudget,
    FilterFailed,
    FilterTooCostly,
    Unsure,
    condition_of,
)
from tests.texts import texts
from tests.work import processor_s

MESSAGE = {
    "data": {"price": 12, "kind": "x", "tags": ["red", "blue"], "items": [{"a": 1, "b": "c"}, {"a": 2}], "none": None},
    "channel": "/shop/offers",
    "clientProperties": {"country": "it"},
    "sender": "client/joe/1",
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("data.price > `10`", True),
        ("data.price > `12`", False),
        ("data.price >= `12` && data.kind == 'x'", True),
        ("data.kind != 'x' || sender == 'client/joe/1'", True),
        ("!(data.kind == 'x')", False),
        ("starts_with(channel, '/shop/')", True),
        ("clientProperties.country == 'it'", True),
        ("contains(data.tags, 'red')", True),
        ("contains(['x', 'y'], data.kind)", True),
        ('contains(`["y", "z"]`, data.kind)', False),
        ("contains(data.kind, 'x')", True),
        ("length(data.items[?a > `1`]) == `1`", True),
        ("data.items[?b]", True),
        ("data.items[?a > `5`]", False),
        ("data.items[*].a | [0] == `1`", True),
        ("data.tags[::-1] | [0] == 'blue'", True),
        ("max_by(data.items, &a).a == `2`", True),
        ("not_null(data.missing, data.kind) == 'x'", True),
        ("type(data.missing) == 'null'", True),
        # What JMESPath takes for true: all but null, false, and what is empty.
        ("data.kind", True),
        ("`0`", True),
        ("data.missing", False),
        ("data.none", False),
        ("''", False),
        ("`[]`", False),
        ("`{}`", False),
        ("`false`", False),
    ],
)
def test_what_is_true_for_a_message(expression: str, expected: bool) -> None:
    assert Filter(expression).accepts(MESSAGE) is expected


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("", "that is not empty"),
        ("data ==", "at its end"),
        ("data.?x", "Unknown token ? at column 6"),
        ("data x", "'x' at column 6"),
        ("`red` == data", "JSON between back-ticks"),
        ("data.", "the end at column 6"),
        ("data.x = `1`", "Unknown token '=' at column 8"),
        ("data.x == 'open", "column 11"),
        ("!" * 1000 + "a", "nested less deeply"),
        ("data.x && nothing(data)", "there is no function nothing(); known are abs, "),
        ("data.x && nothing(data)", "(column 11)"),
        ("length(data, channel)", "length() takes 1, and not 2 (column 1)"),
        ("not_null()", "not_null() takes 1 or more, and not 0"),
        ("to_string(data) == 'x'", "there is no function to_string()"),
        ("data.x[0] && [data, channel]", "as literals, between back-ticks (column 14)"),
        ("{a: data}", "as literals, between back-ticks (column 1)"),
        ("contains(data, ['a'])", "as literals, between back-ticks (column 16)"),
        ("contains([[data]], 'a')", "as literals, between back-ticks"),
    ],
)
def test_what_is_refused_and_where(expression: str, where: str) -> None:
    with pytest.raises(ValueError, match="a JMESPath expression") as refused:
        Filter(expression)
    assert where in str(refused.value)


@pytest.mark.parametrize(
    "expression", ["length(data.price)", "contains(channel, `1`)", "avg(data.tags)", "data.tags[::0]", "abs(data.none)"]
)
def test_one_that_fails_says_so(expression: str) -> None:
    with pytest.raises(FilterFailed):
        Filter(expression).accepts(MESSAGE)


def test_one_that_takes_too_many_steps_fails_and_the_next_message_is_its_first() -> None:
    expression = Filter("data[*].a || data[*].b")
    with pytest.raises(FilterFailed, match="more than 5000 steps"):
        expression.accepts({"data": [{}] * MAX_STEPS})
    assert expression.accepts({"data": [{"b": 1}]})


NUMBERS = list(range(30_000))


@pytest.mark.parametrize(
    "expression",
    ["max(data)", "min(data)", "sum(data)", "avg(data)", "length(data)", "contains(data, `-1`)", "data[]", "data[::2]",
     "data == `1`", "`1` != data", "max_by(data, &@)"],
)  # fmt: skip
def test_what_looks_at_many_items_takes_many_steps(expression: str) -> None:
    made = Filter(expression)
    with suppress(FilterTooCostly):
        made.accepts({"data": NUMBERS})
    assert made.spent > 1000
    made.accepts({"data": NUMBERS[:3]})
    assert made.spent < 20


@pytest.mark.parametrize("expression", ["contains(data, 'b')", "to_number(data)", "data == 'x' && length(data)"])
def test_what_looks_at_a_long_text_takes_more_steps(expression: str) -> None:
    made = Filter(expression)
    with suppress(FilterFailed):
        made.accepts({"data": "a" * 64_000})
    short = Filter(expression)
    with suppress(FilterFailed):
        short.accepts({"data": "a"})
    assert made.spent > short.spent + 900


def test_comparing_takes_the_steps_of_all_that_is_inside() -> None:
    nested = {"a": [{"b": ["x" * 640] * 10}] * 10}
    made = Filter("data == `[]`")
    assert made.accepts({"data": nested}) is False
    assert 1000 < made.spent < 1100
    with pytest.raises(FilterTooCostly, match="more than 100 steps"):
        made.accepts({"data": nested}, 100)
    assert made.spent == 100


@pytest.mark.parametrize("function", ["avg", "keys", "max", "min", "sum", "values"])
def test_many_calls_that_look_at_everything_are_refused(function: str) -> None:
    Filter(" && ".join([f"{function}(data)"] * MAX_WHOLE_CALLS))
    with pytest.raises(ValueError, match="called 8 times at most"):
        Filter(" && ".join([f"{function}(data)"] * (MAX_WHOLE_CALLS + 1)))


def test_a_condition_is_cheap_and_a_call_is_not() -> None:
    assert Filter("data.n > `1` && !(data.gone)").is_cheap
    assert not Filter("length(data) > `1`").is_cheap


BOMBS = (
    "&&".join(["max(data)"] * MAX_WHOLE_CALLS),
    "||".join(["!data.*"] * 90),
    "||".join(["data != data"] * 70),
    "|".join(["[@, @]"] * 100),
    "|".join(["[@, @][]"] * 100),
    "|".join(["not_null([@, @])"] * 40) + "|to_string(@)",
    "to_string(to_array(" * 40 + "data" + "))" * 40,
    "join(data, data)",
    "map(&[@, @], data)",
    "merge(data, data)",
    "(" * 500 + "data" + ")" * 500,
    "||".join(["data[*][*][*]"] * 60),
    "||".join(["contains(data, 'x')"] * 48),
    "&&".join(["data == data"] * 70),
    "data" + "[]" * 500,
    "|".join(["data[::-1]"] * 90),
)


MOST_S = 1.0
"""Thirty times what the longest takes on a quiet machine; without the bounds of filters it is minutes."""


@pytest.mark.uncounted  # following the branches takes five times as long
@pytest.mark.parametrize("expression", BOMBS)
@pytest.mark.parametrize(
    "data",
    [
        [[["x"] * 20] * 20] * 20,
        ["x" * 100] * 500,
        "x" * 60_000,
        NUMBERS,
        {str(number): number for number in range(5000)},
    ],
    ids=["deep", "long", "text", "numbers", "object"],
)
def test_none_can_make_the_server_work_for_long(expression: str, data: Any) -> None:
    assert len(expression) <= MAX_LENGTH

    def work() -> None:
        with suppress(ValueError, FilterFailed):
            Filter(expression).accepts({"data": data})

    assert processor_s(work, MOST_S) < MOST_S


@given(texts("data.[]()'`&|!=<>@*?,:0 lengthcontains{}\"", max_size=60))
def test_whatever_is_asked_is_taken_or_refused(expression: str) -> None:
    try:
        made = Filter(expression)
    except ValueError:
        return
    with suppress(FilterFailed):
        assert made.accepts(MESSAGE) in (True, False)


def test_filters_of_one_text_are_one() -> None:
    assert Filter("data.a") == Filter("data.a")
    assert hash(Filter("data.a")) == hash(Filter("data.a"))
    assert Filter("data.a") != Filter("data.b")
    assert Filter("data.a") != "data.a"
    assert repr(Filter("data.a")) == "Filter('data.a')"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_of_the_list_is_there(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}\(\) takes"):
        Filter(f"{name}(" + ", ".join(["data"] * (0 if name == "not_null" else 7)) + ")")


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
def test_both_evaluators_agree_on_random_expressions(expression: str, document: dict[str, Any]) -> None:
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
def test_both_evaluators_agree(expression: str, document: dict[str, Any]) -> None:
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
def test_condition_of_leaves_other_expressions_to_the_walk(expression: str) -> None:
    assert condition_of(jmespath.compile(expression).parsed) is None


@pytest.mark.parametrize(
    ("expression", "document"),
    [("a == b", {"a": 1, "b": True}), ("a == b", {"a": [1], "b": [1]}), ("a < b", {"a": 1, "b": "x"})],
)
def test_condition_is_unsure_of_values_with_rules_of_their_own(expression: str, document: dict[str, Any]) -> None:
    condition = condition_of(jmespath.compile(expression).parsed)
    assert condition is not None
    with pytest.raises(Unsure):
        condition(document)


def spend(budget: FilterBudget, messages: int, now: float) -> int:
    """What the filters spend that take all that they may, for so many messages at one moment."""
    spent = 0
    for _ in range(messages):
        steps = budget.allowance(now)
        budget.spend(steps)
        spent += steps
    return spent


def test_budget_of_one_message_is_max_steps() -> None:
    assert FilterBudget(5.0).allowance(5.0) == MAX_STEPS


def test_budget_saved_up_is_spent_once() -> None:
    budget = FilterBudget(0.0)
    assert spend(budget, BUDGET_BURST // MAX_STEPS, 0.0) == BUDGET_BURST
    assert budget.allowance(0.0) == BUDGET_MINIMUM
    assert spend(budget, 1000, 0.0) == 1000 * BUDGET_MINIMUM


def test_budget_grows_with_time_up_to_a_bound() -> None:
    budget = FilterBudget(0.0)
    spend(budget, 1000, 0.0)
    assert budget.allowance(BUDGET_MINIMUM * 2 / BUDGET_RATE) == BUDGET_MINIMUM * 2
    assert budget.allowance(1e9) == MAX_STEPS
    assert spend(budget, BUDGET_BURST // MAX_STEPS, 1e9) == BUDGET_BURST
    assert budget.allowance(1e9) == BUDGET_MINIMUM


def test_budget_lasts_while_spending_is_low() -> None:
    budget = FilterBudget(0.0)
    for number in range(10_000):
        assert budget.allowance(number / 1000) == MAX_STEPS
        budget.spend(BUDGET_RATE // 1000)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("data == `1`", " data  ==  `1`   ", True),
        ("data.a && data.b", "data.a&&data.b", True),
        ("data[0:2]", "data[ 0 : 2 ]", True),
        ("data[0:2]", "data[0:3]", False),
        ("data == `1`", "data == `1.0`", False),
        ("data == `true`", "data == `1`", False),
        ("a && (b && c)", "(a && b) && c", False),
        ("length(data) > `1`", "length(data) > `2`", False),
        ("a || b", "b || a", False),
        ("contains(data, 'a')", 'contains(data, `"a"`)', True),
    ],
)
def test_filters_have_one_form_if_they_are_parsed_alike(one: str, other: str, is_same: bool) -> None:
    assert (Filter(one).form == Filter(other).form) is is_same
