"""end.lua: everything of a session leaves the store."""

import pytest

from crewel.delivery.records import Disposition, EndReason, PendingDeadLetter
from crewel.errors import Fenced
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, Owner, change, started


async def owner_of_joe(store: Store) -> Owner:
    owner = await started(store)
    await owner.login(JOE)
    await owner.subscribe("/a", "/b/**")
    return owner


async def traces(owner: Owner, name: str) -> list[str]:
    """Where the store still knows the name."""
    found = []
    async for key in owner.store.reader.scan_iter(match=owner.keys.base.replace("{", "\\{") + "*"):
        is_member = await owner.store.reader.type(key) == b"set" and await owner.store.reader.sismember(key, name)
        if name in key.decode() or is_member:
            found.append(key.decode())
    return found


async def test_nothing_of_the_session_is_left(store: Store) -> None:
    owner = await owner_of_joe(store)
    first, second = await owner.publish("/a", "/a")
    await owner.commit(second, change(opened=[first, second]), low=0)
    await owner.spill(first)
    await owner.login(ANN)
    assert set(await traces(owner, JOE)) == {
        store.keys.session(JOE),
        store.keys.inbox(JOE),
        store.keys.own("a"),
        store.keys.subject("joe"),
    }
    await owner.close()
    await owner.end([Disposition(JOE, EndReason.LAPSED, (first, second))])
    assert await traces(owner, JOE) == []
    assert await store.reader.exists(store.keys.subject("joe")) == 0
    assert set(await traces(owner, ANN)) == {store.keys.session(ANN), store.keys.own("a"), store.keys.subject("ann")}


async def test_an_anonymous_session_leaves_nothing_either(store: Store) -> None:
    owner = await started(store)
    name = (await owner.login("client/anonymous/")).name
    await owner.close(name)
    await owner.end(name=name)
    assert await traces(owner, name) == []


async def test_letters_take_their_messages_along(store: Store) -> None:
    owner = await owner_of_joe(store)
    first, second = await owner.publish("/a", "/b/c", sender=ANN)
    await owner.commit(second, change(opened=[first, second]), low=0)
    await owner.spill(first)
    await owner.close()
    letters = [
        PendingDeadLetter(JOE, each, "communication.noConnection.dead", "it has ended", 1) for each in (first, second)
    ]
    await owner.end([Disposition(JOE, EndReason.DEAD, (first, second))], letters)
    found = await owner.letters()
    assert [each["id"] for each in found] == [str(first), str(second)]
    assert [each["channel"] for each in found] == ["/a", "/b/c"]
    assert [each["body"] for each in found] == ['{"channel":"/a"}', '{"channel":"/b/c"}']
    assert {(each["receiver"], each["sender"], each["attempts"]) for each in found} == {(JOE, ANN, "1")}
    assert {(each["code"], each["reason"]) for each in found} == {("communication.noConnection.dead", "it has ended")}


async def test_session_with_more_ends_than_lua_unpacks_ends(store: Store) -> None:
    owner = await owner_of_joe(store)
    (first,) = await owner.publish("/a")
    await owner.commit(first, change(opened=[first]), low=0)
    await owner.close()
    await owner.end([Disposition(JOE, EndReason.LAPSED, (first,))] * 8100)
    assert await traces(owner, JOE) == []
    (fact,) = await owner.facts("ended")
    assert len(fact["ended"]) == 8100


async def test_facts_tell_what_became_of_its_messages(store: Store) -> None:
    owner = await owner_of_joe(store)
    ids = await owner.publish("/a", "/a", "/a")
    await owner.commit(ids[-1], change(opened=ids), low=0)
    await owner.close()
    ended = [Disposition(JOE, EndReason.DEAD, (ids[0],)), Disposition(JOE, EndReason.LAPSED, (ids[1], ids[2]))]
    await owner.end(ended, [PendingDeadLetter(JOE, ids[0], "user.x", "why")])
    assert await owner.facts("ended") == [
        {
            "ended": [
                {"session": JOE, "reason": "dead", "code": "user.x", "ids": [ids[0]]},
                {"session": JOE, "reason": "lapsed", "ids": [ids[1], ids[2]]},
            ]
        }
    ]
    assert await owner.facts("closed-session") == [{"session": JOE}]


async def test_an_end_without_messages_has_one_fact(store: Store) -> None:
    owner = await owner_of_joe(store)
    await owner.close()
    await owner.end()
    assert await owner.facts("ended") == []
    assert await owner.facts("closed-session") == [{"session": JOE}]


async def test_a_repeated_end_changes_nothing(store: Store) -> None:
    owner = await owner_of_joe(store)
    (log_id,) = await owner.publish("/a")
    await owner.close()
    end = [Disposition(JOE, EndReason.DEAD, (log_id,))], [PendingDeadLetter(JOE, log_id, "user.x", "why")]
    await owner.end(*end)
    await owner.end(*end)
    assert (
        len(await owner.letters()) == len(await owner.facts("ended")) == len(await owner.facts("closed-session")) == 1
    )


@pytest.mark.parametrize("token", ["b", "never booted"])
async def test_others_cannot_end_the_session(store: Store, token: str) -> None:
    owner = await owner_of_joe(store)
    await started(store, "b")
    before = await owner.record()
    with pytest.raises(Fenced):
        await Owner(store, token).end()
    assert await owner.record() == before
    assert await owner.facts("closed-session") == []
