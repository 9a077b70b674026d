"""Dead letters are counted in all and by kinds in one look: the numbers agree, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from crewel.storage import dead_letter_groups
from crewel.storage.dead_letter_groups import GROUPED, KINDS, Groups, count_by, recent_pairs
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store
from tests.storage.dead_lettered import letter
from tests.storage.owner import ANN, JOE, Owner, started


async def lettered(store: Store) -> tuple[Owner, list[str]]:
    """Six dead letters: four of joe, of three codes, and two of ann."""
    owner = await started(store)
    for name in (JOE, ANN):
        await owner.login(name)
    made = [letter(code=f"user.{number % 3}", body=b'{"data":%d}' % number) for number in range(4)]
    made += [letter(receiver=ANN, channel="/b", body=b'{"data":"x"}')] * 2
    return owner, await owner.dead_letter(*made)


def sums(groups: Mapping[str, Groups]) -> dict[str, int]:
    return {kind: sum(group.letters for group in found.largest) for kind, found in groups.items()}


@pytest.mark.parametrize("kinds", [KINDS, GROUPED])
async def test_the_groups_of_each_kind_are_all_there_is(store: Store, kinds: tuple[str, ...]) -> None:
    await lettered(store)
    found = await count_by(store, kinds=kinds)
    assert (found.letters, found.is_partial, sums(found.groups)) == (6, False, dict.fromkeys(kinds, 6))
    receivers = found.groups["receiver"]
    assert ([tuple(each)[:2] for each in receivers.largest], receivers.values) == ([(4, JOE), (2, ANN)], 2)
    of_joe = await count_by(store, DeadLetterFilter(receiver=JOE), kinds)
    assert (of_joe.letters, sums(of_joe.groups)) == (4, dict.fromkeys(kinds, 4))


async def test_a_dead_letter_of_a_new_code_comes_between_two_questions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = await lettered(store)
    values, waiting = dead_letter_groups._values, [letter(code="user.new")]

    async def then_one_more(store: Store, kind: str) -> list[str]:
        found = await values(store, kind)
        if waiting:
            await owner.dead_letter(waiting.pop())
        return found

    monkeypatch.setattr(dead_letter_groups, "_values", then_one_more)
    found = await count_by(store)
    assert (found.letters, sums(found.groups)) == (7, dict.fromkeys(KINDS, 7))


async def test_several_looks_agree_on_what_there_is(store: Store) -> None:
    owner, ids = await lettered(store)
    await owner.dead_letter(letter())
    found = await count_by(store, DeadLetterFilter(receiver=JOE), ["channel"], ids[-1])
    every = await count_by(store, DeadLetterFilter(), ["receiver"], ids[-1])
    assert (found.letters, sums(found.groups)) == (4, {"channel": 4})
    assert {each.value: each.letters for each in every.groups["receiver"].largest} == {JOE: 4, ANN: 2}


@pytest.mark.parametrize(
    ("wanted", "letters", "is_partial", "whole"),
    [
        ({}, 6, False, KINDS),
        ({"since_ms": 1}, 6, False, KINDS),
        ({"receiver": JOE}, 4, False, ()),
        ({"receiver": JOE, "channel": "/a"}, 2, True, ()),  # no index knows of both
        ({"contains": "data"}, 2, True, ()),
    ],
)
async def test_of_very_many_indexes_know_more_than_is_read(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
    letters: int,
    is_partial: bool,
    whole: tuple[str, ...],
) -> None:
    await lettered(store)
    monkeypatch.setattr(dead_letter_groups, "_AT_ONCE", 2)
    monkeypatch.setattr(dead_letter_groups, "_MOST_READ", 2)
    found = await count_by(store, DeadLetterFilter(**wanted), GROUPED)
    assert (found.letters, found.is_partial) == (letters, is_partial)
    assert sums(found.groups) == {kind: 6 if kind in whole else 2 for kind in GROUPED}
    assert {kind for kind, each in found.groups.items() if not each.is_partial} == set(whole)


async def test_recent_ones_are_all_there_are_unless_there_are_very_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lettered(store)
    found = await recent_pairs(store, 0)
    assert (found.read, found.is_whole) == (6, True)
    assert {(each.receiver, each.code): each.letters for each in found.pairs} == {
        pair: len(ids) for pair, ids in found.ids.items()
    }
    monkeypatch.setattr(dead_letter_groups, "_MOST_PAIRED", 6)
    assert not (await recent_pairs(store, 0)).is_whole
