"""Beyond a bound of the dead letters, the account that holds most gives up its oldest; others lose nothing to it."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.delivery.records import PendingDeadLetter
from crewel.storage import dead_letter_store
from crewel.storage.store import Store
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import Owner, owner_of

AMY, JOE, EVE, EVE_TOO = "client/amy/1", "client/joe/1", "client/eve/1", "client/eve/2"
MOST_BYTES = 100_000


def flood(number: int, receiver: str = EVE, size: int = 9_000) -> PendingDeadLetter:
    return letter(receiver=receiver, body=b'{"data":"%d %s %s"}' % (number, receiver.encode(), b"x" * size))


async def owner_with_letters(store: Store) -> Owner:
    """Of two subjects that have some dead letters, older than all that come."""
    owner = await owner_of(store, AMY, JOE, EVE, EVE_TOO)
    for receiver in (AMY, JOE):
        await owner.dead_letter(*(flood(number, receiver) for number in range(3)))
    return owner


async def receivers(owner: Owner) -> list[str]:
    return [each.receiver for each in await all_letters(owner)]


@pytest.mark.parametrize("bound", [{"letters_max_bytes": MOST_BYTES}, {"letters_max": 10}])
async def test_a_flood_displaces_its_own_dead_letters_only(store: Store, bound: dict[str, int]) -> None:
    owner = await owner_with_letters(store)
    for number in range(40):
        await owner.dead_letter(flood(number, EVE if number % 2 else EVE_TOO), **bound)
    kept = await all_letters(owner)
    assert [each.receiver for each in kept[:6]] == [AMY] * 3 + [JOE] * 3
    assert b'"39 ' in kept[-1].body
    numbers = [int(each.body.split(b'"')[3].split()[0]) for each in kept[6:]]
    assert numbers == list(range(40 - len(numbers), 40)), "the oldest of its own, of whichever session"
    assert await dead_letter_store.dropped(store) == 40 - len(numbers)
    await assert_indexes_agree(owner)


async def test_accounts_below_their_share_take_the_room_of_the_largest(store: Store) -> None:
    owner = await owner_of(store, AMY, EVE)
    await owner.dead_letter(*(flood(number) for number in range(10)), letters_max=10)
    for number in range(8):
        await owner.dead_letter(flood(number, AMY), letters_max=10)
    assert sorted(await receivers(owner)) == [AMY] * 5 + [EVE] * 5
    await assert_indexes_agree(owner)


async def test_a_body_for_many_sessions_counts_once_for_their_subject(store: Store) -> None:
    owner = await owner_with_letters(store)
    many = [flood(0, EVE if number % 2 else EVE_TOO, 5_000) for number in range(60)]
    await owner.dead_letter(*many, flood(9, AMY, 9_000), letters_max_bytes=81_000)
    # Joe has 28 KB, Amy 37 KB; Eve has 60 dead letters of 15 KB and one body.
    assert (await receivers(owner)).count(EVE) == 30
    assert (await receivers(owner)).count(AMY) < 4
    await assert_indexes_agree(owner)


async def test_dead_letters_that_leave_and_come_back_are_counted(store: Store) -> None:
    owner = await owner_with_letters(store)
    ids = [each.dead_id for each in await all_letters(owner)]
    await owner.do(dead_letter_store.discard(owner.keys, owner.token, ids[:1], 1000))
    await assert_indexes_agree(owner)
    await owner.do(dead_letter_store.discard(owner.keys, owner.token, ids[1:], 1000))
    await assert_indexes_agree(owner)
    assert await dead_letter_store.shares(store) == []


async def test_the_largest_accounts_are_shown(store: Store) -> None:
    owner = await owner_with_letters(store)
    await owner.dead_letter(*(flood(number) for number in range(5)))
    first, *others = await dead_letter_store.shares(store)
    assert (first.account, first.entries) == ("client/eve", 5)
    assert 45_000 < first.bytes < 50_000
    assert sorted((each.account, each.entries) for each in others) == [("client/amy", 3), ("client/joe", 3)]


class TestServersOfVersion10:
    """They write and remove dead letters without a word about accounts."""

    async def _forget_accounts(self, owner: Owner) -> None:
        """Let all that is known of accounts be gone, as in a store of 1.0."""
        shares = owner.keys.letter_shares
        of_accounts = [key async for key in owner.store.reader.scan_iter(match=f"{shares.of_account}*", count=1000)]
        await owner.store.reader.delete(shares.entries, shares.bytes, shares.texts, shares.charged, *of_accounts)

    async def test_dead_letters_of_before_are_charged(self, store: Store) -> None:
        owner = await owner_with_letters(store)
        await owner.dead_letter(*(flood(number) for number in range(30)))
        await self._forget_accounts(owner)
        await owner.dead_letter(flood(0, AMY), letters_max_bytes=MOST_BYTES)
        assert sorted(set(await receivers(owner))) == [AMY, EVE, JOE]
        assert (await receivers(owner))[:6] == [AMY] * 3 + [JOE] * 3
        await assert_indexes_agree(owner)

    async def test_dead_letters_that_they_remove_are_noticed(self, store: Store) -> None:
        owner = await owner_with_letters(store)
        await owner.dead_letter(*(flood(number) for number in range(30)))
        found: Any = await store.reader.xrange(owner.keys.dead)
        for place, fields in found:
            if fields[b"receiver"] == EVE.encode():
                await store.reader.xdel(owner.keys.dead, place)
        await owner.dead_letter(*(flood(number, JOE) for number in range(9)), letters_max=10)
        assert (await receivers(owner)).count(AMY) == 3
        assert (await receivers(owner)).count(JOE) == 7
