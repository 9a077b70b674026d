"""discard.lua: dead letters are thrown away."""

from typing import Any

import pytest

from crewel.errors import Fenced
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import StoredDeadLetter
from crewel.storage.store import Store
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import FACTS_MAX, JOE, Owner, started


async def owner_of_letters(store: Store, count: int = 4) -> tuple[Owner, list[str]]:
    owner = await started(store)
    await owner.login(JOE)
    return owner, await owner.dead_letter(*(letter(f"user.c{number % 2}") for number in range(count)))


async def discard(owner: Owner, *dead_ids: str, who: str = "", job_id: str = "") -> int:
    return await owner.do(dead_letter_store.discard(owner.keys, owner.token, dead_ids, FACTS_MAX, who, job_id))


def told(letters: list[StoredDeadLetter], *dead_ids: str) -> dict[str, Any]:
    """What the fact says of these."""
    found = {each.dead_id: each for each in letters}
    return {
        "letters": list(dead_ids),
        "messages": [found[each].id for each in dead_ids],
        "receivers": [found[each].receiver for each in dead_ids],
    }


async def test_discard_removes_dead_letters_and_their_index_entries(store: Store) -> None:
    owner, (first, second, third, fourth) = await owner_of_letters(store)
    assert await discard(owner, third, first) == 2
    assert [each.dead_id for each in await all_letters(owner)] == [second, fourth]
    await assert_indexes_agree(owner)
    assert await discard(owner, second, fourth) == 2
    assert await all_letters(owner) == []
    await assert_indexes_agree(owner)
    assert await dead_letter_store.dropped(store) == 0


async def test_a_fact_tells_of_them(store: Store) -> None:
    owner, (first, second, third, _) = await owner_of_letters(store)
    letters = await all_letters(owner)
    await discard(owner, third, first)
    await discard(owner, second, who='ann "the" boss', job_id="5-7")
    assert await owner.facts("discarded") == [
        told(letters, third, first),
        {**told(letters, second), "who": 'ann "the" boss', "job": "5-7"},
    ]


async def test_discard_leaves_out_dead_letters_that_are_gone(store: Store) -> None:
    owner, (first, second, *_) = await owner_of_letters(store)
    letters = await all_letters(owner)
    assert await discard(owner, first, "1-1", first, "no id", second) == 2
    assert await discard(owner, first, second) == 0
    assert await discard(owner) == 0
    assert await owner.facts("discarded") == [told(letters, first, second)]


async def test_a_new_letter_finds_its_place_in_an_index_that_was_empty(store: Store) -> None:
    owner, places = await owner_of_letters(store)
    await discard(owner, *places)
    await owner.dead_letter(letter("user.c0"))
    await assert_indexes_agree(owner)


async def test_a_superseded_server_discards_nothing(store: Store) -> None:
    owner, places = await owner_of_letters(store)
    await (await started(store, "b")).adopt_all()
    with pytest.raises(Fenced):
        await discard(owner, *places)
    assert len(await all_letters(owner)) == 4
    await assert_indexes_agree(owner)


async def test_discard_takes_a_bounded_number_a_step(store: Store) -> None:
    owner, places = await owner_of_letters(store, dead_letter_store.MOST_DISCARDED)
    assert await discard(owner, *places) == dead_letter_store.MOST_DISCARDED
    with pytest.raises(ValueError, match="dead_ids: expected at most 1000, not 1001"):
        await discard(owner, *places, places[0])
