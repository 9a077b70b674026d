"""What a worker gets from its parent, also from one of another version."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from crewel.workers.control_channel import Inheritance, Situation

OWN = Inheritance(2, [3, 4], 5)


def test_what_a_parent_writes_its_worker_reads() -> None:
    assert Inheritance.read(OWN.text()) == OWN


def test_a_parent_of_1_0_says_more() -> None:
    """A reload replaces the workers by those of a new version, under the parent of the old one."""
    said = json.loads(OWN.text()) | {"directory": "/tmp/crewel-workers-1"}
    assert Inheritance.read(json.dumps(said)) == OWN


def test_what_a_parent_of_another_version_tells_may_be_more_or_less() -> None:
    told = Situation(3, {"1": 1000}, [1001], heir=1000, workers=2)
    assert Situation.read(asdict(told) | {"later": 1}) == told
    assert Situation.read({"number": 3}) == Situation(3)


@pytest.mark.parametrize("text", ["", "[]", "7", '{"number":2,"channel":5}'])
def test_what_no_parent_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Inheritance.read(text)
