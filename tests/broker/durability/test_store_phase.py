"""Each phase of a server and its store, and which may follow."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from crewel.broker.writing import store_phase
from crewel.broker.writing.store_phase import FOLLOWING
from crewel.broker.writing.store_phase import StorePhase as Phase

POSSIBLE = {
    (Phase.SERVING, Phase.STARTING),
    (Phase.STARTING, Phase.SERVING),
    (Phase.SERVING, Phase.READING),
    (Phase.READING, Phase.READING),
    (Phase.READING, Phase.CATCHING_UP),
    (Phase.READING, Phase.SERVING),
    (Phase.CATCHING_UP, Phase.READING),
    (Phase.CATCHING_UP, Phase.SERVING),
    *((each, Phase.SUPERSEDED) for each in Phase if each is not Phase.SUPERSEDED),
}


@pytest.mark.parametrize(("before", "after"), [*product(Phase, Phase)])
def test_a_phase_is_followed_by_those_of_the_table_only(before: Phase, after: Phase) -> None:
    if (before, after) in POSSIBLE:
        assert before.followed_by(after) is after
    else:
        with pytest.raises(ValueError, match=f"{after.name} cannot follow {before.name}"):
            before.followed_by(after)


def test_the_diagram_shows_the_table() -> None:
    shown = set[tuple[str, str]]()
    for line in (store_phase.__doc__ or "").splitlines():
        names = [part.split()[0] for part in line.split("──▶")] if "──▶" in line else []
        shown.update(pairwise(names))
    shown.discard(("any", "SUPERSEDED"))
    assert shown == {(before.name, after.name) for before, after in POSSIBLE if after is not Phase.SUPERSEDED}


def test_each_phase_is_in_the_table_and_says_what_may_be_asked() -> None:
    assert FOLLOWING.keys() == set(Phase)
    assert [each.name for each in Phase if each.is_adopting] == ["STARTING", "READING"]
    assert [each.name for each in Phase if each.is_reloading] == ["READING", "CATCHING_UP"]
    assert [each.name for each in Phase if each.is_superseded] == ["SUPERSEDED"]
