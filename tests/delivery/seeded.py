"""Random runs by their seeds. The error of a run says its seed."""

import os
from collections.abc import Callable, Iterable

import pytest

from tests.delivery.ledger import Broken

PORTION = 20
"""Runs of one test."""


def run_count(few: int, full: int) -> int:
    """Return how many runs there are: CREWEL_RUNS, or `full` in `make faults`, or `few`."""
    return int(os.environ.get("CREWEL_RUNS") or (full if os.environ.get("FAULTS") == "full" else few))


def run_portion(run: Callable[[int], object], first: int, count: int) -> None:
    """Do the runs of one portion, which begins with the seed `first`, of `count` runs in all."""
    _run_all(run, range(first, min(first + PORTION, count)))


def expect_broken(run: Callable[[int], object], first: int, most: int) -> None:
    """Fail unless one of at most so many runs, from the seed `first` on, finds something wrong."""
    with pytest.raises(Broken):
        _run_all(run, range(first, first + most))


def _run_all(run: Callable[[int], object], seeds: Iterable[int]) -> None:
    for seed in seeds:
        try:
            run(seed)
        except Broken as broken:
            broken.add_note(f"seed {seed}")
            raise
