"""What a client with the acknowledge extension acknowledged, and when, in the history of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.history import Batches, History

pytestmark = pytest.mark.server


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def batches(history: History) -> Batches:
    """Those of a client that has got message 1 in batch 5, and 2 in batch 6, which it has not acknowledged."""
    batches = Batches(history, "amy")
    batches.came("/load/a", "1", 1)
    batches.answered(5)
    batches.ask(5)
    batches.came("/load/a", "2", 2)
    return batches


def of(history: History, do: str) -> list[dict[str, Any]]:
    return [each for each in history.records if each["do"] == do]


def test_an_answer_confirms_the_batch_that_was_acknowledged(history: History, batches: Batches) -> None:
    batches.answered(6)
    batches.end()
    (acknowledged,) = of(history, "acknowledge")
    assert (acknowledged["receiver"], acknowledged["id"]) == ("amy", "1")
    assert acknowledged["began"] < acknowledged["ended"]


def test_without_an_answer_an_acknowledgement_has_no_end(history: History, batches: Batches) -> None:
    batches.end()
    (acknowledged,) = of(history, "acknowledge")
    assert (acknowledged["id"], acknowledged["ended"]) == ("1", None)


def test_what_is_acknowledged_again_began_with_the_first_time(history: History, batches: Batches) -> None:
    asked = of(history, "deliver")[1]["began"]  # since then, and after the first acknowledgement
    batches.ask(5)
    batches.answered(6)
    (acknowledged,) = of(history, "acknowledge")
    assert acknowledged["began"] <= asked < acknowledged["ended"]


def test_a_fault_lasts_until_its_block_ends(history: History) -> None:
    with history.fault():
        history.came("amy", "/load/a", "1", 1)
    delivered, fault = history.records
    assert fault["began"] <= delivered["began"] <= fault["ended"]
