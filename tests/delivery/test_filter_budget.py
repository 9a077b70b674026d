"""What the filters of a session may cost for a message, and over time."""

from __future__ import annotations

from crewel.delivery.filter_budget import ALWAYS, BURST, RATE, FilterBudget
from crewel.delivery.filters import MAX_STEPS


def spend(budget: FilterBudget, messages: int, now: float) -> int:
    """What the filters spend that take all that they may, for so many messages at one moment."""
    spent = 0
    for _ in range(messages):
        steps = budget.allowance(now)
        budget.spend(steps)
        spent += steps
    return spent


def test_a_message_has_a_budget() -> None:
    assert FilterBudget(5.0).allowance(5.0) == MAX_STEPS


def test_what_was_saved_up_is_spent_once() -> None:
    budget = FilterBudget(0.0)
    assert spend(budget, BURST // MAX_STEPS, 0.0) == BURST
    assert budget.allowance(0.0) == ALWAYS
    assert spend(budget, 1000, 0.0) == 1000 * ALWAYS


def test_time_adds_steps_up_to_a_bound() -> None:
    budget = FilterBudget(0.0)
    spend(budget, 1000, 0.0)
    assert budget.allowance(ALWAYS * 2 / RATE) == ALWAYS * 2
    assert budget.allowance(1e9) == MAX_STEPS
    assert spend(budget, BURST // MAX_STEPS, 1e9) == BURST
    assert budget.allowance(1e9) == ALWAYS


def test_who_spends_little_never_runs_out() -> None:
    budget = FilterBudget(0.0)
    for number in range(10_000):
        assert budget.allowance(number / 1000) == MAX_STEPS
        budget.spend(RATE // 1000)
