"""unsubscribe.lua: an interval of the log ends."""

from dataclasses import replace
from unittest.mock import ANY

import pytest

from crewel.errors import Fenced
from crewel.storage import session_store, shared_queue_store
from crewel.storage.store import Store
from tests.storage.owner import FACTS_MAX, JOE, Owner, change, started


async def test_a_subscription_ends_with_the_newest_message(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a b", "/c")
    (newest,) = await owner.publish("/a b")
    assert await owner.unsubscribe("/a b") == {"/a b": (0, newest)}
    record = await owner.record()
    assert record["c:/a b 0"] == str(newest)
    assert "s:/a b" not in record
    assert record["s:/c"] == "0"


async def test_unsubscribe_leaves_out_unknown_patterns(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    assert await owner.unsubscribe("/b", "/a", "/c") == {"/a": (0, newest)}


async def test_a_repeated_call_answers_the_same(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a", "/a 1", "/a 1 2")
    (first,) = await owner.publish("/a")
    await owner.unsubscribe("/a")
    await owner.subscribe("/a")
    (second,) = await owner.publish("/a")
    both = {"/a": (first, second), "/a 1": (0, second)}
    assert await owner.unsubscribe("/a", "/a 1") == both
    before = await owner.record()
    await owner.publish("/a")
    assert await owner.unsubscribe("/a", "/a 1") == both
    assert await owner.record() == before
    assert len(await owner.facts("unsubscribed")) == 2


async def test_a_repeated_call_knows_nothing_of_what_is_forgotten(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    await owner.unsubscribe("/a")
    await owner.commit(newest, change(forgotten=[("/a", 0)]))
    assert await owner.unsubscribe("/a") == {}


async def test_an_empty_interval_is_not_kept(store: Store) -> None:
    """Else forgetting it would forget the next one, which may begin at the same place."""
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    assert await owner.unsubscribe("/a") == {"/a": (0, 0)}
    assert not [field for field in await owner.record() if field.startswith("c:")]


async def test_forgetting_an_empty_interval_leaves_the_next_one(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    await owner.unsubscribe("/a")
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    await owner.unsubscribe("/a")
    await owner.commit(newest - 1, change(forgotten=[("/a", 0)]))
    assert (await owner.record())["c:/a 0"] == str(newest)
    await owner.commit(newest, change(forgotten=[("/a", 0)]))
    assert "c:/a 0" not in await owner.record()


@pytest.mark.parametrize("token", ["b", "never booted"])
async def test_others_cannot_unsubscribe_the_session(store: Store, token: str) -> None:
    owner = await started(store)
    await started(store, "b")
    await owner.login()
    await owner.subscribe("/a")
    with pytest.raises(Fenced):
        await Owner(store, token).unsubscribe("/a")
    assert (await owner.record())["s:/a"] == "0"


async def test_a_fact_tells_what_has_ended(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (first,) = await owner.publish("/a")
    await owner.subscribe("/b")
    (second,) = await owner.publish("/a")
    await owner.unsubscribe("/b", "/a", "/c")
    await owner.unsubscribe("/b")
    assert await owner.facts("unsubscribed") == [
        {"session": JOE, "patterns": ["/b", "/a"], "from": [first, 0], "until": second}
    ]


# Topics that are erased


async def erased(owner: Owner, *, ends: bool = True, tells: bool = True, why: str = "") -> session_store.Erased:
    step = session_store.erased(owner.keys, owner.token, JOE, "/a", FACTS_MAX, ends=ends, notifies=tells, why=why)
    answer: session_store.Erased = await owner.do(step)
    return answer


async def test_the_notice_lies_behind_all_that_was_published(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    answer = await erased(owner)
    assert (answer.interval, answer.stays, answer.prev) == ((0, newest), False, newest)
    assert answer.notice > newest
    assert (await owner.record())["n:/a"] == str(answer.notice)
    (later,) = await owner.publish("/a")
    assert later > answer.notice
    (joe,) = (await (await started(store, "c")).adopt_all()).values()
    assert joe.notices == {"/a": answer.notice}


async def test_a_repeated_erase_moves_the_notice(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    await owner.publish("/a")
    first = await erased(owner)
    second = await erased(owner)
    assert second.interval == first.interval
    assert second.notice > first.notice
    assert (await owner.record())["n:/a"] == str(second.notice)


@pytest.mark.parametrize("ends", [False, True])
async def test_erase_without_notice_leaves_none(store: Store, ends: bool) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    answer = await erased(owner, ends=ends, tells=False)
    assert answer == ((0, newest) if ends else None, False, 0, 0)
    assert "n:/a" not in await owner.record()


async def test_a_member_stays_in_a_group_for_which_something_waits(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe(options={"/a": b'{"group":"crew"}'})
    await owner.publish("/a", groups=("group:/a crew",))
    assert (await erased(owner, tells=False)).stays
    assert "p:/a" in await owner.record()
    await owner.do(shared_queue_store.discard(owner.keys, owner.token, "group:/a crew", None, FACTS_MAX))
    assert not (await erased(owner)).stays
    assert "p:/a" not in await owner.record()
    assert await owner.facts("ended") == [{"ended": [ANY]}]  # by the discard, and nothing has lapsed


async def test_a_settled_notice_leaves_the_record(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    answer = await erased(owner, ends=False)
    await owner.commit(answer.notice, replace(change(), noticed=("/a",)))
    assert "n:/a" not in await owner.record()


async def test_a_subscription_that_the_server_ends_says_why(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    answer = await erased(owner, why='{"errorCode":"x"}')
    assert (answer.interval, answer.stays, answer.prev) == ((0, newest), False, newest)
    assert (await owner.record())["n:/a"] == f'{answer.notice} {{"errorCode":"x"}}'
    (joe,) = (await (await started(store, "c")).adopt_all()).values()
    assert (joe.notices, joe.failed) == ({"/a": answer.notice}, {"/a": '{"errorCode":"x"}'})
