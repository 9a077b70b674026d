"""claim.lua, unclaim.lua, and what login.lua makes of them: names of sessions that are not stored, on several nodes."""

from __future__ import annotations

import pytest

from crewel.errors import Fenced
from crewel.storage import nodes, session_store, transient_sessions
from crewel.storage.script_step import NameTaken, TooManySessions
from crewel.storage.store import Store
from crewel.storage.transient_sessions import TransientSession
from tests.storage.owner import FACTS_MAX, JOE, Owner
from tests.storage.test_inherit import die, inherit, joined


async def claim(owner: Owner, name: str, most: int = -1, *, takes_ptp: bool = True) -> None:
    await owner.do(transient_sessions.claim(owner.keys, owner.token, name, most, takes_ptp=takes_ptp))


async def login(owner: Owner, name: str, most: int = -1) -> str:
    step = session_store.login(owner.keys, owner.token, name, {}, most, FACTS_MAX)
    answer: session_store.LoggedIn = await owner.do(step)
    return answer.name


async def test_a_name_is_given_once_whoever_stores_it(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await claim(first, "client/joe/1")
    await claim(first, "client/joe/1")
    for refused in (claim(second, "client/joe/1"), login(second, "client/joe/1")):
        with pytest.raises(NameTaken):
            await refused
    await login(second, "client/ann/1")
    with pytest.raises(NameTaken):
        await claim(first, "client/ann/1")
    await claim(second, "client/joe/11")  # no other name that begins so is in the way


async def test_a_name_is_free_when_its_session_has_ended_or_its_node_is_dead(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await claim(first, "client/joe/1", takes_ptp=False)
    await claim(first, "client/joe/2")
    assert await first.do(transient_sessions.unclaim(store.keys, "a", "client/joe/1")) == 1
    assert await first.do(transient_sessions.unclaim(store.keys, "a", "client/joe/1")) == 0
    await claim(second, "client/joe/1")
    await die(first)
    await inherit(second)
    await login(second, "client/joe/2")
    assert not await store.reader.exists(store.keys.unstored("a"))
    with pytest.raises(Fenced):
        await claim(first, "client/joe/3")


async def test_the_sessions_of_a_subject_are_counted_at_all_nodes(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await claim(first, "client/joe/1", 2)
    await login(second, JOE.replace("/1", "/2"), 2)
    for refused in (claim(second, "client/joe/3", 2), login(first, "client/joe/", 2)):
        with pytest.raises(TooManySessions):
            await refused
    await claim(second, "client/joel/1", 1)  # another subject
    await second.close("client/joe/2")  # one whose end has begun does not count
    await claim(second, "client/joe/3", 2)


async def test_sessions_are_found_by_name_and_by_subject(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await claim(first, "client/joe/1")
    await claim(second, "client/joe/-7", takes_ptp=False)
    await claim(second, "client/joel/1")
    found = await transient_sessions.of_subject(store, "joe", ["a", "b", "c"])
    assert found == [TransientSession("client/joe/1", "a", True), TransientSession("client/joe/-7", "b", False)]
    assert await transient_sessions.of_name(store, "client/joe/1", ["b"]) == []
    await claim(second, "client/joe/-7")  # it has another wish now
    assert await transient_sessions.of_name(store, "client/joe/-7", ["a", "b"]) == [
        TransientSession("client/joe/-7", "b", True)
    ]
    assert [await nodes.owner(store, name, ["a", "b"]) for name in ("client/joe/1", "client/x/1")] == ["a", ""]
