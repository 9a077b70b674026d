"""close.lua: the end of a session begins."""

import pytest

from crewel.errors import Fenced
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, Owner, change, started


async def test_all_subscriptions_end_with_the_newest_message(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a b")
    (first,) = await owner.publish("/a b")
    await owner.subscribe("/c", "/d")
    (second,) = await owner.publish("/c")
    await owner.unsubscribe("/d")
    await owner.commit(second, change(opened=[first]))
    await owner.subscribe("/empty")
    assert await owner.close() == second
    record = await owner.record()
    del record["owner"], record["r"], record["batch"], record[f"o:{first}"]
    assert record == {
        "ending": str(second),
        "c:/a b 0": str(second),
        f"c:/c {first}": str(second),
        f"c:/d {first}": str(second),
    }


async def test_a_repeated_close_answers_the_same(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    assert await owner.close() == newest
    before = await owner.record()
    await owner.publish("/a")
    assert await owner.close() == newest
    assert await owner.record() == before


@pytest.mark.parametrize("token", ["b", "never booted"])
async def test_others_cannot_close_the_session(store: Store, token: str) -> None:
    owner = await started(store)
    await started(store, "b")
    await owner.login()
    with pytest.raises(Fenced):
        await Owner(store, token).close()
    assert "ending" not in await owner.record()


async def test_a_session_that_does_not_exist_cannot_be_closed(store: Store) -> None:
    owner = await started(store)
    with pytest.raises(Fenced):
        await owner.close(ANN)
    assert await store.reader.exists(store.keys.session(ANN)) == 0


async def test_a_fact_tells_what_has_ended(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a", "/b/**")
    (newest,) = await owner.publish("/a")
    await owner.close()
    await owner.close()
    (fact,) = await owner.facts("unsubscribed")
    assert sorted(fact.pop("patterns")) == ["/a", "/b/**"]
    assert fact == {"session": JOE, "from": [0, 0], "until": newest}


async def test_without_subscriptions_there_is_no_fact(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    assert await owner.close() == 0
    assert await owner.facts("unsubscribed") == []
