"""Nothing is lost, nothing crossed, whatever happens between any two steps.

`make test` does as many random runs as fit into a quarter of a second, `make faults` 2,000, and CREWEL_RUNS tells any number.
They cover no branch: tests of the modules do, by examples that say what they are about.
"""

import pytest

from tests.delivery.interleaving import Run
from tests.delivery.mutations import MUTATIONS, Mutation
from tests.delivery.seeded import PORTION, expect_broken, run_count, run_portion
from tests.delivery.store_model import StoreModel

RUNS = run_count(40, 2000)
STEPS = 500
MOST_SEEDS = 2000
"""Runs in which a rule taken out must have been noticed; most are within the first ten."""

pytestmark = pytest.mark.uncounted


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_what_was_owed_has_ended_once_or_waits_whatever_happens(first: int) -> None:
    run_portion(_run, first, RUNS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_each_rule_taken_out_is_noticed(mutation: Mutation) -> None:
    expect_broken(lambda seed: _run(seed, mutation), mutation.first, MOST_SEEDS)


def _run(seed: int, mutation: Mutation | None = None) -> None:
    """One run; every fourth has a store that loses what was not synced."""
    loses = seed % 4 == 3
    if mutation is None:
        Run(seed, StoreModel(), loses=loses).run(STEPS)
    else:
        parts = {"node": mutation.node, "durable": mutation.durable, "server": mutation.server}
        Run(seed, mutation.store(), loses=loses, **parts).run(STEPS)
