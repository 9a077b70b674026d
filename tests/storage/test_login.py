"""login.lua: a session is made, or gets a new login."""

import pytest

from crewel.delivery.records import PendingMessage, SessionRecord
from crewel.errors import Fenced, StoreUnavailable
from crewel.storage import session_store, shared_queue_store
from crewel.storage.script_step import TooManySessions
from crewel.storage.session_store import LoggedIn
from crewel.storage.shared_queue_store import Addressed, Delivery
from crewel.storage.store import Store
from tests.storage.owner import ANN, FACTS_MAX, JOE, Owner, started


async def members(owner: Owner, key: str) -> set[str]:
    return {each.decode() for each in await owner.store.reader.smembers(key)}


async def test_a_new_session_is_stored(store: Store) -> None:
    owner = await started(store)
    (newest,) = await owner.publish("/a")
    assert await owner.login(JOE, id="secret", ack=True) == LoggedIn(JOE, True, 0, newest)
    assert await owner.record() == {"owner": "a", "r": '{"id":"secret","ack":true}', "batch": "1000"}
    assert await members(owner, store.keys.own("a")) == {JOE}
    assert await members(owner, store.keys.subject("joe")) == {JOE}


async def test_a_new_login_of_a_session_replaces_the_old_one(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE, id="old")
    await owner.subscribe("/a")
    assert await owner.login(JOE, id="new") == LoggedIn(JOE, False, 1000, 0)
    assert await owner.record() == {"owner": "a", "r": '{"id":"new"}', "batch": "2000", "s:/a": "0"}


async def test_a_repeated_login_takes_another_block_of_batch_numbers(store: Store) -> None:
    owner = await started(store)
    assert [(await owner.login()).batch for _ in range(3)] == [0, 1000, 2000]


async def test_the_store_numbers_sessions(store: Store) -> None:
    owner = await started(store)
    names = [(await owner.login(prefix)).name for prefix in ("client/joe/", "client/anonymous/", "client/joe/")]
    assert names == ["client/joe/-1", "client/anonymous/-2", "client/joe/-3"]
    assert await members(owner, store.keys.own("a")) == set(names)
    assert await owner.record("client/anonymous/-2") == {"owner": "a", "r": "{}", "batch": "1000"}


async def test_a_subject_has_so_many_sessions_at_most(store: Store) -> None:
    owner = await started(store)
    await owner.login("client/joe/1", 2)
    await owner.login("client/joe/", 2)
    with pytest.raises(TooManySessions) as caught:
        await owner.login("client/joe/", 2)
    assert caught.value.code == "user.configuration.maxSession"
    assert await store.reader.get(store.keys.names) == b"1"
    assert len(await owner.facts("opened-session")) == 2
    await owner.login(ANN, 2)


async def test_an_existing_session_is_not_one_too_many(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE, 1)
    assert not (await owner.login(JOE, 1)).is_new


async def test_a_subject_without_a_limit_has_any_number(store: Store) -> None:
    owner = await started(store)
    for _ in range(20):
        await owner.login("client/joe/", -1)


async def test_anonymous_sessions_are_not_counted(store: Store) -> None:
    owner = await started(store)
    for _ in range(3):
        await owner.login("client/anonymous/", 1)
    assert await store.reader.exists(store.keys.subject("anonymous")) == 0


async def test_a_place_is_free_again_after_a_session_has_ended(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE, 1)
    await owner.close()
    await owner.end()
    assert (await owner.login("client/joe/2", 1)).is_new


async def test_a_session_of_another_server_is_left_alone(store: Store) -> None:
    owner, other = await started(store), await started(store, "b")
    await owner.login(JOE, id="mine")
    before = await owner.record()
    with pytest.raises(Fenced):
        await other.login(JOE, id="theirs")
    assert await owner.record() == before


async def test_a_superseded_server_makes_no_session(store: Store) -> None:
    stranger = Owner(store, "never booted")
    for name in (JOE, "client/joe/"):
        with pytest.raises(Fenced):
            await stranger.login(name)
    assert await store.reader.exists(store.keys.session(JOE), store.keys.names, store.keys.own(stranger.token)) == 0


async def test_a_session_that_is_ending_takes_no_login(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE, id="old")
    await owner.close()
    before = await owner.record()
    with pytest.raises(StoreUnavailable, match="ending"):
        await owner.login(JOE, id="new")
    assert await owner.record() == before


async def test_a_fact_tells_of_a_new_session_only(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE)
    await owner.login(JOE)
    await owner.login("client/anonymous/")
    assert await owner.facts("opened-session") == [{"session": JOE}, {"session": "client/anonymous/-1"}]


async def test_a_session_is_recalled_as_the_store_has_it_by_its_owner_only(store: Store) -> None:
    owner, other = await started(store, "a"), await started(store, "b")
    answer = await owner.login(JOE, ack=True)
    message = Addressed("/a", b"{}")
    sent = await owner.do(shared_queue_store.send(owner.keys, owner.token, message, [Delivery(JOE, JOE)], FACTS_MAX))
    record = await owner.do(session_store.recall(owner.keys, owner.token, JOE, answer.batch))
    waiting = {sent.id: PendingMessage(0, 2, "/a")}
    assert record == SessionRecord(JOE, {"ack": True}, None, answer.batch, inbox=waiting)
    for token, name in ((other.token, JOE), (owner.token, ANN)):
        with pytest.raises(Fenced):
            await owner.do(session_store.recall(owner.keys, token, name, 0))
