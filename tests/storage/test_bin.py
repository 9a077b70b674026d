"""bin.lua, restore.lua and empty_bin.lua: discarded dead letters are kept for a while, and come back on request."""

import asyncio

import pytest

from crewel.errors import Fenced, StoreError
from crewel.storage import dead_letter_bin, dead_letter_store
from crewel.storage.dead_letter_bin import DiscardedDeadLetter
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store
from tests.storage.conftest import OpenStore
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import FACTS_MAX, JOE, Owner, owner_of, started
from tests.store_process import StoreProcess, own_prefix

LONG = b'{"data":"' + b"x" * 300 + b'"}'


async def made(store: Store, count: int = 4, body: bytes = LONG) -> tuple[Owner, list[str]]:
    owner = await owner_of(store, JOE)
    return owner, await owner.dead_letter(*(letter(f"user.c{number % 2}", body=body) for number in range(count)))


async def discard(owner: Owner, *dead_ids: str, who: str = "", job: str = "", keeps: bool = True) -> int:
    return await owner.do(
        dead_letter_store.discard(owner.keys, owner.token, dead_ids, FACTS_MAX, who, job, keeps=keeps)
    )


async def restore(owner: Owner, *dead_ids: str, who: str = "") -> dict[str, str]:
    return await owner.do(dead_letter_bin.restore(owner.keys, owner.token, dead_ids, FACTS_MAX, who))


async def binned(store: Store) -> list[DiscardedDeadLetter]:
    return (await dead_letter_bin.page(store, DeadLetterFilter())).letters


async def test_a_discarded_dead_letter_is_in_the_bin_and_nowhere_else(store: Store) -> None:
    owner, (first, second, third, fourth) = await made(store)
    before = {each.dead_id: each for each in await all_letters(owner)}
    assert await discard(owner, third, first, who="ann", job="5-7") == 2
    assert await discard(owner, third, "1-1") == 0
    assert [each.dead_id for each in await all_letters(owner)] == [second, fourth]
    await assert_indexes_agree(owner)
    assert await dead_letter_store.count(store, DeadLetterFilter()) == 2
    last, other = await binned(store)
    assert (last.letter, other.letter) == (before[first], before[third])
    assert (last.who, last.job, last.edited_as) == ("ann", "5-7", "")
    assert await dead_letter_bin.count(store) == 2
    assert await dead_letter_bin.get(store, [first, second, "x"]) == [last]


async def test_the_job_is_known_whatever_the_keys_begin_with(server: StoreProcess, open_store: OpenStore) -> None:
    store = await open_store(f"storage.url={server.url}", f"storage.prefix=cronjob:{own_prefix()}")
    owner, (first, second) = await made(store, 2)
    await discard(owner, first, job="5-7")
    assert [each.job for each in await binned(store)] == ["5-7"]
    assert [fact["job"] for fact in await owner.facts("discarded")] == ["5-7"]
    (other,) = await dead_letter_store.get(store, [second])
    await owner.do(dead_letter_store.redrive(owner.keys, owner.token, other, FACTS_MAX, job_id="5-7"))
    assert [fact["job"] for fact in await owner.facts("redriven")] == ["5-7"]


async def test_restored_dead_letters_are_as_before_under_new_ids(store: Store) -> None:
    owner, (first, second, *others) = await made(store)
    before = {each.dead_id: each for each in await all_letters(owner)}
    await discard(owner, first, second)
    ids = await restore(owner, second, "1-1", first, who="ann")
    assert list(ids) == [second, first]
    there = {each.dead_id: each for each in await all_letters(owner)}
    assert list(there) == [*others, ids[second], ids[first]]
    old, new = before[first], there[ids[first]]
    assert new.first == first
    assert (new.body, new.qos, new.code, new.reason, new.id) == (old.body, old.qos, old.code, old.reason, old.id)
    await assert_indexes_agree(owner)
    assert await binned(store) == []
    assert await restore(owner, first) == {}
    (fact,) = await owner.facts("restored")
    assert fact == {
        "letters": [second, first],
        "as": [ids[second], ids[first]],
        "firsts": [second, first],
        "messages": ["7-1-t"] * 2,
        "receivers": [JOE] * 2,
        "who": "ann",
    }


async def test_the_first_id_is_known_however_often_a_dead_letter_comes_back(store: Store) -> None:
    owner, (first, *_) = await made(store, 1)
    await discard(owner, first)
    second = (await restore(owner, first))[first]
    await discard(owner, second)
    third = (await restore(owner, second))[second]
    (stored,) = await dead_letter_store.get(store, [third])
    assert stored.first == first
    assert [fact.get("firsts") for fact in await owner.facts("discarded")] == [None, [first]]
    await owner.do(dead_letter_store.redrive(owner.keys, owner.token, stored, FACTS_MAX))
    assert (await owner.facts("redriven"))[0]["first"] == first


async def test_what_is_discarded_for_good_is_not_in_the_bin(store: Store) -> None:
    owner, (first, second, *_) = await made(store)
    await discard(owner, first)
    assert await discard(owner, first, second, keeps=False) == 2
    assert await binned(store) == []
    await assert_indexes_agree(owner)
    assert [fact["letters"] for fact in await owner.facts("discarded")] == [[first], [second]]


async def test_the_bin_is_emptied_of_what_is_old(store: Store) -> None:
    owner, ids = await made(store)
    await discard(owner, *ids[:2])
    assert await owner.do(dead_letter_bin.empty(owner.keys, owner.token, 60_000)) == 0
    assert await owner.do(dead_letter_bin.empty(owner.keys, owner.token, -1)) == 2
    assert await binned(store) == []
    await assert_indexes_agree(owner)


@pytest.mark.parametrize("bound", ["entries", "bytes"])
async def test_dead_letters_take_the_room_of_the_bin_before_others_are_dropped(store: Store, bound: str) -> None:
    owner, ids = await made(store, 6)
    await discard(owner, *ids[:3])
    size = int(await store.reader.get(owner.keys.letter_bytes) or 0)
    most = {"letters_max": 6} if bound == "entries" else {"letters_max_bytes": size}
    await owner.dead_letter(letter(body=LONG), letter(body=LONG), **most)
    assert await dead_letter_store.dropped(store) == 0
    assert [each.letter.dead_id for each in await binned(store)] == [ids[2]]
    assert len(await all_letters(owner)) == 5


async def test_a_message_that_was_edited_names_its_original_which_the_bin_keeps(store: Store) -> None:
    owner, (first, *_) = await made(store, 1)
    (stored,) = await dead_letter_store.get(store, [first])
    step = dead_letter_store.redrive(owner.keys, owner.token, stored, FACTS_MAX, body=b'{"data":2}', who="ann")
    moved = await owner.do(step)
    assert (moved.outcome.value, moved.size) == ("moved", 10)
    assert await owner.do(step) == moved, "a repeated step moves nothing again"
    (kept,) = await binned(store)
    assert (kept.letter.body, kept.who, kept.edited_as) == (LONG, "ann", str(moved.id))
    inbox = await owner.hash(owner.keys.inbox(JOE))
    assert f"r{len(first)}:{first}" in inbox[str(moved.id)]
    assert 'b10:{"data":2}' in inbox[str(moved.id)]
    assert (await owner.facts("redriven"))[0]["edited"] is True
    await assert_indexes_agree(owner)


async def test_a_page_of_the_bin_is_what_is_wanted_the_last_discarded_first(store: Store) -> None:
    owner, ids = await made(store, 7)
    await discard(owner, *ids[:4], job="1-1")
    await discard(owner, *ids[4:])
    found, after = list[str](), ""
    while True:
        page = await dead_letter_bin.page(store, DeadLetterFilter(code="user.c0"), after, 1)
        found += [each.letter.dead_id for each in page.letters]
        after = page.next
        if not after:
            break
    assert found == [ids[6], ids[4], ids[2], ids[0]]
    page = await dead_letter_bin.page(store, DeadLetterFilter(), count=10, job="1-1")
    assert [each.letter.dead_id for each in page.letters] == ids[3::-1]


async def test_a_superseded_server_moves_nothing(store: Store) -> None:
    owner, ids = await made(store)
    await discard(owner, ids[0])
    await (await started(store, "b")).adopt_all()
    with pytest.raises(Fenced):
        await discard(owner, ids[1])
    with pytest.raises(Fenced):
        await restore(owner, ids[0])
    with pytest.raises(Fenced):
        await owner.do(dead_letter_bin.empty(owner.keys, owner.token, -1))
    assert [each.letter.dead_id for each in await binned(store)] == [ids[0]]


async def test_discards_and_restores_at_once_leave_each_dead_letter_in_one_place(store: Store) -> None:
    owner, ids = await made(store, 40)

    async def both(dead_id: str) -> None:
        for step in (
            dead_letter_store.discard(owner.keys, owner.token, [dead_id], FACTS_MAX, keeps=True),
            dead_letter_bin.restore(owner.keys, owner.token, [dead_id], FACTS_MAX),
        ):
            (answer,) = await store.run([step])
            assert not isinstance(answer, StoreError)

    await asyncio.gather(*map(both, [*ids, *ids]))
    there = [each.first or each.dead_id for each in await all_letters(owner)]
    kept = [each.letter.first or each.letter.dead_id for each in await binned(store)]
    assert sorted([*there, *kept]) == sorted(ids)
    await assert_indexes_agree(owner)
