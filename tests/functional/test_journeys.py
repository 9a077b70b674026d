"""The journeys that Architecture lists call by call, walked on a server."""

from __future__ import annotations

import asyncio
import re

import pytest

from bench.journeys import SETTINGS, Trace, run
from crewel.settings import load
from tests.house.source import ROOT

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
CALL = re.compile(r"\d+\. \[(?P<name>[\w.]+)\]\(\.\./\.\./app/(?P<file>[\w/]+)\.py\)")
STEPS = {
    "A transient publish to a held connect": (0, 0),
    "A persistent publish": (1, 0),
    "A connect that acknowledges and reports success": (1, 1),
    "A failure that makes a dead letter": (2, 0),
    "A redrive": (2, 1),
    "A restart, and a client that comes back": (4, 0),
}
"""Each list, and where `bench/journeys.py` has its calls: a journey, and a step of it."""
Call = tuple[str, str]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> list[list[Trace]]:
    """The calls of each step of each journey."""
    settings = load(None, [*SETTINGS, f"storage.data_dir={tmp_path_factory.mktemp('store')}"])
    return [traces for _, traces in asyncio.run(run(settings))]


def listed(title: str) -> list[Call]:
    """The calls that the page lists below this title."""
    part = PAGE.read_text("utf-8").partition(f"#### {title}\n")[2].partition("\n#")[0]
    found = [(found["file"].replace("/", "."), found["name"]) for found in CALL.finditer(part)]
    assert found, f"{PAGE.name} has no list of this title"
    return found


@pytest.mark.server
@pytest.mark.parametrize("title", STEPS)
def test_the_calls_of_a_journey_are_those_of_the_page(walked: list[list[Trace]], title: str) -> None:
    journey, step = STEPS[title]
    calls = iter(walked[journey][step].calls)  # `in` continues after what it has found
    for call in listed(title):
        assert call in calls, f"{call} is not called, or not behind the one before it"
