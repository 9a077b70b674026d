"""adopt.lua: sessions of dead servers move to this one."""

import pytest

from crewel.delivery.records import LogId, PendingMessage, SessionName, SessionRecord
from crewel.errors import Fenced
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, Owner, change, started


async def test_a_session_comes_as_it_was_left(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE, id="secret", ack=True)
    await owner.subscribe("/a b", "/gone away", "/c/**")
    first, second = await owner.publish("/a b", "/a b")
    await owner.unsubscribe("/gone away")
    await owner.commit(second, change(opened=[first, second]), low=0)
    await owner.spill(first)
    heir = await started(store, "b")
    assert await heir.adopt() == [
        SessionRecord(
            JOE,
            {"id": "secret", "ack": True},
            own_cursor=second,
            batch=2000,
            subscriptions={"/a b": LogId(0), "/c/**": LogId(0)},
            closed=[("/gone away", LogId(0), second)],
            pending={second: PendingMessage(0, 10)},
            inbox={first: PendingMessage(0, 10)},
            owner_cursor=second,
        )
    ]
    record = await heir.record()
    assert (record["owner"], "at" in record, record["batch"]) == ("b", False, "2000")
    assert await cursor_of(heir) == second
    assert await store.reader.smembers(store.keys.own("b")) == {JOE.encode()}


async def heir_at(store: Store, cursor: int, token: str = "c") -> Owner:
    """A server that starts where the log is read up to there."""
    heir = await started(store, token)
    await heir.commit(cursor)
    return heir


async def cursor_of(owner: Owner) -> int:
    return int((await owner.node())["cursor"])


async def test_the_lowest_cursor_of_dead_servers_becomes_the_heirs(store: Store) -> None:
    """Sessions of other servers have a cursor of their own."""
    first, second = await started(store, "a"), await started(store, "b")
    await first.login(JOE)
    await second.login(ANN)
    await first.commit(100)
    await second.commit(70)
    heir = await heir_at(store, 300)
    records = await heir.adopt_all(count=1)
    found = {name: (record.own_cursor, record.owner_cursor) for name, record in records.items()}
    assert found == {JOE: (100, 70), ANN: (70, 70)}
    assert await cursor_of(heir) == 70
    assert [(await heir.record(name)).get("at") for name in (JOE, ANN)] == ["100", None]


async def test_a_dead_server_without_sessions_has_no_say(store: Store) -> None:
    first, second = await started(store, "a"), await started(store, "b")
    await first.login(JOE)
    await first.commit(100)
    await second.commit(70)
    heir = await heir_at(store, 300)
    await heir.adopt_all()
    assert await cursor_of(heir) == 100


async def test_a_session_keeps_the_cursor_of_its_own_until_it_is_in_step(store: Store) -> None:
    first, second = await started(store, "a"), await started(store, "b")
    await first.login(JOE)
    await second.login(ANN)
    await first.commit(100)
    await second.commit(70)
    third = await heir_at(store, 300)
    await third.adopt_all()
    await third.commit(90)
    records = await (await heir_at(store, 300, "d")).adopt_all()
    assert {name: record.own_cursor for name, record in records.items()} == {JOE: 100, ANN: 90}


async def test_a_session_is_in_step_once_it_has_caught_up(store: Store) -> None:
    first = await started(store, "a")
    await first.login(JOE)
    await first.login(ANN)
    await first.commit(100)
    second = await started(store, "b")  # further behind: nothing was published
    await second.adopt_all()
    await second.commit(500, change(JOE, caught_up=True))
    records = await (await started(store, "c")).adopt_all()
    assert {name: record.own_cursor for name, record in records.items()} == {JOE: 500, ANN: 100}


async def test_a_cursor_of_its_own_goes_when_it_is_the_heirs(store: Store) -> None:
    first, second = await started(store, "a"), await started(store, "b")
    await first.login(JOE)
    await first.commit(100)
    await second.adopt_all()  # it is behind
    await second.commit(100)
    (record,) = (await (await heir_at(store, 300)).adopt_all()).values()
    assert (record.own_cursor, record.owner_cursor) == (100, 100)
    assert "at" not in await second.record()


async def test_a_slice_holds_so_many_sessions_at_most(store: Store) -> None:
    names = {SessionName(f"client/u{number}/1") for number in range(130)}
    first, second = await started(store, "a"), await started(store, "b")
    for number, name in enumerate(names):
        await (first, second)[number % 2].login(name)
    heir = await started(store, "c")
    sizes, found = [], set()
    while adopted := await heir.adopt(60):
        sizes.append(len(adopted))
        found.update(record.name for record in adopted)
    assert sizes == [60, 60, 10]
    assert found == names
    assert await store.reader.scard(store.keys.own("c")) == 130


async def test_a_slice_of_large_sessions_is_smaller(store: Store) -> None:
    first = await started(store, "a")
    names = [SessionName(f"client/u{number}/1") for number in range(120)]
    for name in names:
        await first.login(name)
    await first.commit(10_000, *(change(name, opened=range(1, 1501)) for name in names))
    heir = await started(store, "b")
    sizes = []
    while adopted := await heir.adopt(1000):
        sizes.append(len(adopted))
        assert all(len(record.pending) == 1500 for record in adopted)
    assert sum(sizes) == 120
    assert 20 < max(sizes) <= 50  # Redis walks through a set in other portions than Valkey


async def test_a_server_without_sessions_is_forgotten(store: Store) -> None:
    first = await started(store, "a")
    await first.login(JOE)
    await first.login(ANN)
    await started(store, "idle")
    heir = await started(store, "b")
    await heir.adopt(1)
    assert await heir.nodes() >= {"a", "b"}
    await heir.adopt(1)
    assert await heir.adopt(1) == []
    assert await heir.nodes() == {"b"}
    for token in ("a", "idle"):
        assert await store.reader.exists(store.keys.node(token), store.keys.own(token)) == 0


async def test_low_is_lowered_to_what_the_sessions_need(store: Store) -> None:
    first = await started(store, "a")
    await first.login(JOE)
    ids = await first.publish("/a", "/a", "/a", "/a")
    await first.commit(ids[2], change(opened=[ids[1]]), low=ids[0])
    heir = await started(store, "b")
    assert (await heir.node())["low"] == str(ids[3])
    await heir.adopt()
    assert (await heir.node())["low"] == str(ids[0])
    await heir.trim()
    assert await heir.log_ids() == ids[1:]


async def test_low_is_not_raised(store: Store) -> None:
    heir = await started(store, "b")
    (newest,) = await heir.publish("/a")
    first = await started(store, "a")
    await first.login(JOE)
    await heir.adopt_all()
    assert (await heir.node())["low"] == "0"
    assert (await heir.record())["at"] == str(newest)


async def test_ones_own_sessions_stay_as_they_are(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    before = await owner.record()
    assert await owner.adopt() == []
    assert await owner.record() == before
    assert await owner.nodes() == {"a"}


async def test_batch_numbers_go_on_after_those_of_all_former_owners(store: Store) -> None:
    await (await started(store, "a")).login()
    batches = [(await (await started(store, token)).adopt())[0].batch for token in "bcd"]
    assert batches == [2000, 3000, 4000]


async def test_a_superseded_server_adopts_nothing(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    before = await owner.record()
    with pytest.raises(Fenced):
        await Owner(store, "never booted").adopt()
    assert await owner.record() == before
    assert await owner.nodes() == {"a"}


async def test_a_session_whose_end_has_begun_comes_too(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await owner.subscribe("/a")
    (newest,) = await owner.publish("/a")
    await owner.close()
    (record,) = await (await started(store, "b")).adopt()
    assert record.ending == newest
    assert record.closed == [("/a", 0, newest)]
    assert record.subscriptions == {}


async def test_after_an_unknown_outcome_another_token_gets_all(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE)
    await owner.login(ANN)
    await owner.commit(100)
    await (await started(store, "lost its answer")).adopt(1)
    records = await (await started(store, "b")).adopt_all()
    assert {name: record.own_cursor for name, record in records.items()} == {JOE: 100, ANN: 100}


async def test_a_name_without_a_session_does_no_harm(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE)
    await store.reader.sadd(store.keys.own("a"), "client/gone/1")
    heir = await started(store, "b")
    assert set(await heir.adopt_all()) == {JOE}
    assert await store.reader.smembers(store.keys.own("b")) == {JOE.encode()}
    assert await store.reader.exists(store.keys.session("client/gone/1")) == 0
