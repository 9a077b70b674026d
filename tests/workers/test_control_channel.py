"""What a worker gets from its parent, also from one of another version."""

from __future__ import annotations

import json

import pytest

from crewel.workers.control_channel import Inheritance

OWN = Inheritance(2, [3, 4], 5)


def test_what_a_parent_writes_its_worker_reads() -> None:
    assert Inheritance.read(OWN.text()) == OWN


def test_a_parent_of_1_0_says_more() -> None:
    """A reload replaces the workers by those of a new version, under the parent of the old one."""
    said = json.loads(OWN.text()) | {"directory": "/tmp/crewel-workers-1"}
    assert Inheritance.read(json.dumps(said)) == OWN


@pytest.mark.parametrize("text", ["", "[]", "7", '{"number":2,"channel":5}'])
def test_what_no_parent_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Inheritance.read(text)
