"""hold.lua, and the cause that close.lua keeps: what survives of a receiver's trouble."""

import pytest

from crewel.errors import Fenced
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, owner_of, started

HELD = b'{"active":false,"who":"op","since":17,"code":"user.update.holdback","id":"5","reason":"\\"no\\""}'
PLAIN = {"active": False, "who": "op", "since": 17, "code": "user.update.holdback", "id": "5", "reason": '"no"'}


async def test_hold_survives_the_adoption_of_the_session(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.login(ANN)
    await owner.hold(HELD)
    records = await (await started(store, "b")).adopt_all()
    assert records[JOE].dispatch == PLAIN
    assert records[ANN].dispatch is None


async def test_a_new_login_leaves_it(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.hold(HELD)
    await owner.login(JOE)
    assert (await owner.record())["d"].encode() == HELD


async def test_hold_can_be_changed_and_released(store: Store) -> None:
    owner = await owner_of(store, JOE)
    before = await owner.record()
    await owner.hold(HELD)
    await owner.hold(b'{"sink":true,"since":18,"code":"user.x","id":"6","reason":""}')
    assert (await owner.record())["d"].startswith('{"sink":true')
    await owner.hold(None)
    assert await owner.record() == before


async def test_facts_tell_each_change_once(store: Store) -> None:
    owner = await owner_of(store, JOE)
    for dispatch in (None, HELD, HELD, None, None):
        await owner.hold(dispatch)
    assert await owner.facts("held") == [{"session": JOE} | PLAIN]
    assert await owner.facts("released") == [{"session": JOE}]


@pytest.mark.parametrize("dispatch", [HELD, None])
async def test_others_cannot_hold_the_session(store: Store, dispatch: bytes | None) -> None:
    owner = await owner_of(store, JOE)
    await owner.hold(b'{"active":false}')
    before = await owner.record()
    with pytest.raises(Fenced):
        await (await started(store, "b")).hold(dispatch)
    assert await owner.record() == before


async def test_a_session_that_is_not_there_is_not_made(store: Store) -> None:
    owner = await owner_of(store, JOE)
    with pytest.raises(Fenced):
        await owner.hold(HELD, ANN)
    assert await owner.record(ANN) == {}


# What it died of


async def test_the_cause_of_an_end_is_found_by_who_finishes_it(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.login(ANN)
    last = await owner.close(JOE, ("communication.x", 'it said "no"'))
    await owner.close(ANN)
    records = await (await started(store, "b")).adopt_all()
    assert records[JOE].death == ("communication.x", 'it said "no"')
    assert records[JOE].ending == last
    assert records[ANN].death is None


async def test_the_first_cause_counts(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.close(JOE, ("communication.first", ""))
    await owner.close(JOE, ("communication.second", ""))
    await owner.close(JOE)
    assert (await owner.record())["death"] == '["communication.first",""]'
    await owner.close(JOE)


async def test_an_end_that_began_without_a_cause_gets_none(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.close(JOE)
    await owner.close(JOE, ("communication.late", ""))
    assert "death" not in await owner.record()
