"""subscribe.lua: an interval of the log begins."""

import pytest

from crewel.errors import Fenced
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, Owner, started


async def test_a_subscription_begins_after_the_newest_message(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    assert await owner.subscribe("/a") == {"/a": 0}
    (newest,) = await owner.publish("/a")
    assert await owner.subscribe("/b c/**", "/*") == {"/b c/**": newest, "/*": newest}
    record = await owner.record()
    assert (record["s:/a"], record["s:/b c/**"], record["s:/*"]) == ("0", str(newest), str(newest))


async def test_a_subscription_that_holds_stays_as_it_is(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    assert await owner.subscribe("/b", "/a") == {"/b": newest, "/a": 0}
    assert await owner.subscribe("/b", "/a") == {"/b": newest, "/a": 0}


async def test_subscription_begins_again_after_an_unsubscribe(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    await owner.unsubscribe("/a")
    assert await owner.subscribe("/a") == {"/a": newest}


@pytest.mark.parametrize("token", ["b", "never booted"])
async def test_others_cannot_subscribe_the_session(store: Store, token: str) -> None:
    owner = await started(store)
    await started(store, "b")
    await owner.login()
    before = await owner.record()
    with pytest.raises(Fenced):
        await Owner(store, token).subscribe("/a")
    assert await owner.record() == before


async def test_a_session_that_does_not_exist_cannot_subscribe(store: Store) -> None:
    owner = await started(store)
    with pytest.raises(Fenced):
        await owner.subscribe("/a", name=ANN)
    assert await store.reader.exists(store.keys.session(ANN)) == 0


async def test_a_session_that_is_ending_subscribes_to_nothing(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.close()
    before = await owner.record()
    assert await owner.subscribe("/a", "/b") == {}
    assert await owner.record() == before


async def test_a_fact_tells_what_is_new(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    await owner.subscribe("/b", "/a", "/c/**")
    await owner.subscribe("/b")
    assert await owner.facts("subscribed") == [
        {"session": JOE, "patterns": ["/a"], "from": 0},
        {"session": JOE, "patterns": ["/b", "/c/**"], "from": newest},
    ]
