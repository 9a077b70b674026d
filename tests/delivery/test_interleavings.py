"""Nothing is lost, nothing crossed, whatever happens between any two steps.

`make test` does as many random runs as fit into a quarter of a second, `make faults` 2,000, and CREWEL_RUNS tells any number.
They cover no branch: tests of the modules do, by examples that say what they are about.
"""

import os

import pytest

from tests.delivery.interleaving import Run
from tests.delivery.ledger import Broken
from tests.delivery.mutations import MUTATIONS, Mutation
from tests.delivery.store_model import StoreModel

RUNS = int(os.environ.get("CREWEL_RUNS") or (2000 if os.environ.get("FAULTS") == "full" else 40))
STEPS = 500
MOST_SEEDS = 2000
"""Runs in which a rule taken out must have been noticed; most are within the first ten."""
PORTION = 20

pytestmark = pytest.mark.uncounted


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_what_was_owed_has_ended_once_or_waits_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + PORTION, RUNS)):
        _run(seed)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_each_rule_taken_out_is_noticed(mutation: Mutation) -> None:
    with pytest.raises(Broken):
        _run_many(mutation)


def _run_many(mutation: Mutation) -> None:
    for seed in range(mutation.first, mutation.first + MOST_SEEDS):
        _run(seed, mutation)


def _run(seed: int, mutation: Mutation | None = None) -> None:
    """One run; every fourth has a store that loses what was not synced. Its error tells the seed."""
    loses = seed % 4 == 3
    try:
        if mutation is None:
            Run(seed, StoreModel(), loses=loses).run(STEPS)
        else:
            parts = {"node": mutation.node, "durable": mutation.durable, "server": mutation.server}
            Run(seed, mutation.store(), loses=loses, **parts).run(STEPS)
    except Broken as broken:
        broken.add_note(f"seed {seed}")
        raise
