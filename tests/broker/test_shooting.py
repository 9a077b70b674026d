"""Whatever receivers, operators and time do: nothing is lost, nothing is doubled, and the sums are exact.

`make test` does a few rounds; CREWEL_RUNS tells any number.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.broker.shooting import Crossed, Round
from tests.broker.stored_world import StoredWorld

RUNS = int(os.environ.get("CREWEL_RUNS") or (300 if os.environ.get("FAULTS") == "full" else 8))
STEPS = 60


@pytest.mark.parametrize("seed", range(RUNS))
def test_what_was_owed_has_ended_once(seed: int, make_stored: Callable[..., StoredWorld]) -> None:
    try:
        Round(seed, make_stored).run(STEPS)
    except Crossed as crossed:
        crossed.add_note(f"seed {seed}")
        raise
