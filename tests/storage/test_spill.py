"""spill.lua: open messages are copied from the log to an inbox."""

import pytest

from crewel.delivery.records import Logged, LogId, Submission
from crewel.errors import Fenced
from crewel.storage import log
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, Owner, change, started

ODD = Submission("/a:b 3:", b'\x00\xff{"data":"1:2"}c5:x', ANN, JOE, "", b'{"priority":1}')


async def owner_with_open(store: Store, count: int = 3) -> tuple[Owner, list[LogId]]:
    owner = await started(store)
    await owner.login()
    ids = await owner.publish(*["/a"] * count)
    await owner.commit(ids[-1], change(opened=ids), low=0)
    return owner, ids


async def test_the_messages_lie_in_the_inbox_as_they_lay_in_the_log(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    ids = (await owner.append([ODD, Submission("/a", b"")])).ids
    await owner.commit(ids[-1], change(opened=ids))
    assert await owner.spill(*ids) == ids
    assert await log.fetch_inbox(store, JOE, ids) == {
        ids[0]: Logged(ids[0], ODD.channel, ODD.body, ODD.sender, ODD.excluded, ODD.qos),
        ids[1]: Logged(ids[1], "/a", b""),
    }


async def test_the_record_says_where_they_are(store: Store) -> None:
    owner, ids = await owner_with_open(store)
    await owner.spill(ids[0], ids[2])
    record = await owner.record()
    assert {field: value for field, value in record.items() if field[:2] in ("o:", "i:")} == {
        f"i:{ids[0]}": "0:10",
        f"o:{ids[1]}": "0:10",
        f"i:{ids[2]}": "0:10",
    }


async def test_a_repeated_spill_answers_the_same(store: Store) -> None:
    owner, ids = await owner_with_open(store)
    assert await owner.spill(*ids[:2]) == ids[:2]
    before = await owner.record()
    assert await owner.spill(*ids[:2]) == ids[:2]
    assert await owner.record() == before


async def test_spill_copies_open_messages_only(store: Store) -> None:
    owner, ids = await owner_with_open(store)
    await owner.commit(ids[-1], change(settled=[ids[1]]))
    assert await owner.spill(*ids, LogId(5)) == [ids[0], ids[2]]
    assert await store.reader.hlen(store.keys.inbox(JOE)) == 2


async def test_spill_leaves_messages_open_that_the_log_lost(store: Store) -> None:
    owner, ids = await owner_with_open(store)
    await store.reader.xdel(store.keys.log, f"{ids[1]}-0")
    assert await owner.spill(*ids) == [ids[0], ids[2]]
    assert f"o:{ids[1]}" in await owner.record()


async def test_a_commit_removes_what_is_settled_from_the_inbox(store: Store) -> None:
    owner, ids = await owner_with_open(store)
    await owner.spill(*ids)
    await owner.commit(ids[-1], change(removed=[ids[0], ids[2]]))
    assert await store.reader.hkeys(store.keys.inbox(JOE)) == [b"%d" % ids[1]]
    assert [field for field in await owner.record() if field.startswith("i:")] == [f"i:{ids[1]}"]


@pytest.mark.parametrize("token", ["b", "never booted"])
async def test_others_cannot_move_messages_of_the_session(store: Store, token: str) -> None:
    owner, ids = await owner_with_open(store)
    await started(store, "b")
    before = await owner.record()
    with pytest.raises(Fenced):
        await Owner(store, token).spill(*ids)
    assert await owner.record() == before
    assert await store.reader.exists(store.keys.inbox(JOE)) == 0
