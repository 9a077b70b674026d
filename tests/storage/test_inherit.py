"""boot.lua with a tag, members.lua, inherit.lua and release.lua: several nodes on one store."""

from __future__ import annotations

import pytest

from crewel.delivery.records import LogId, SessionName
from crewel.errors import Fenced
from crewel.storage import node_leases, nodes, session_store
from crewel.storage.node_leases import ALONE, Claimed, Membership
from crewel.storage.nodes import Members, Slice
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, PROCESS, Owner, change

MINUTE_MS = 60_000
HERE = "127.0.0.1:9"


async def joined(store: Store, token: str, membership: Membership | None = None) -> Owner:
    """Return a node whose lease lasts for the whole test."""
    owner = Owner(store, token)
    member = Membership(f"tag-{token}", HERE) if membership is None else membership
    step = node_leases.claim(store.keys, token, f"node-{token}", PROCESS, MINUTE_MS, (), member)
    answer = await owner.do(step)
    assert not isinstance(answer, Claimed)
    return owner


async def die(owner: Owner) -> None:
    """Let the lease end, as time would."""
    await owner.store.reader.delete(owner.keys.lease(owner.token))


async def inherit(owner: Owner, count: int = 1000, dead: tuple[str, ...] = ()) -> Slice:
    found: Slice = await owner.do(nodes.inherit(owner.keys, owner.token, count, dead))
    return found


async def members(owner: Owner) -> Members:
    found: Members = await owner.do(nodes.members(owner.keys))
    return found


async def test_nodes_share_a_store_and_know_each_other(store: Store) -> None:
    first, _ = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    found = await members(first)
    assert found.tags == {"tag-a": "a", "tag-b": "b"}
    assert {token: (each.name, each.tag, each.link, each.sessions) for token, each in found.nodes.items()} == {
        "a": ("node-a", "tag-a", HERE, 1),
        "b": ("node-b", "tag-b", HERE, 0),
    }
    assert all(each.lives and each.process == PROCESS and each.since for each in found.nodes.values())


async def test_the_first_node_makes_the_secret(store: Store) -> None:
    await joined(store, "a")
    secret = await store.reader.get(store.keys.secret)
    await joined(store, "b")
    assert len(secret) == 64
    assert await store.reader.get(store.keys.secret) == secret


@pytest.mark.parametrize(
    ("first", "second"),
    [(ALONE, Membership("t", HERE)), (Membership("t", HERE), ALONE), (ALONE, ALONE)],
    ids=["a node beside a server", "a server beside a node", "two servers"],
)
async def test_who_shares_nothing_is_refused(store: Store, first: Membership, second: Membership) -> None:
    await joined(store, "a", first)
    answer = await Owner(store, "b").do(
        node_leases.claim(store.keys, "b", "heron", PROCESS, MINUTE_MS, membership=second)
    )
    assert isinstance(answer, Claimed)
    assert answer.token == "a"


async def test_nothing_is_inherited_from_a_node_that_lives(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    assert await inherit(second) == Slice([], [])
    assert (await first.record())["owner"] == "a"


async def test_an_heir_gets_the_sessions_as_they_were_left(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE, id="secret", ack=True)
    await first.subscribe("/a")
    ids = await first.publish("/a", "/a")
    await first.commit(ids[0], change(opened=[ids[0]]), low=0)
    await die(first)
    finished, (record,) = await inherit(second)
    assert finished == ["a"]
    assert (record.name, record.own_cursor, record.batch, list(record.pending)) == (JOE, ids[0], 2000, [ids[0]])
    assert (await second.record())["owner"] == "b"
    assert (await members(second)).tags == {"tag-a": "b", "tag-b": "b"}


async def test_a_node_that_is_known_to_be_dead_has_no_lease(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    assert [each.name for each in (await inherit(second, dead=("a",))).records] == [JOE]


async def test_every_step_of_a_zombie_is_refused_from_the_first_slice_on(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    await first.login(ANN)
    await die(first)
    moved = [each.name for each in (await inherit(second, 1)).records]
    left = ANN if moved == [JOE] else JOE
    for step in (
        first.publish("/a"),
        first.commit(0, change(left, batch=3000)),
        first.login(SessionName("client/eve/1")),
        first.login(left),
        first.trim(),
    ):
        with pytest.raises(Fenced):
            await step
    with pytest.raises(Fenced):
        await first.do(node_leases.renew(first.keys, "a", PROCESS, MINUTE_MS))
    with pytest.raises(Fenced):
        await inherit(first)


async def test_a_lease_that_has_ended_is_renewed_unless_there_is_an_heir(store: Store) -> None:
    first = await joined(store, "a")
    await die(first)
    await first.do(node_leases.renew(first.keys, "a", PROCESS, MINUTE_MS))
    assert (await members(first)).nodes["a"].lives


async def test_the_record_of_a_dead_node_keeps_the_log_until_it_is_released(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    await first.subscribe("/a")
    ids = await second.publish("/a", "/a")
    await second.commit(ids[-1])
    await die(first)
    finished, _ = await inherit(second)
    await second.trim()
    assert await second.log_ids() == ids
    await second.commit(ids[-1], change(opened=[ids[1]], caught_up=True), low=ids[0])
    assert await second.do(nodes.release(second.keys, "b", finished)) == 1
    await second.trim()
    assert await second.log_ids() == [ids[1]]
    assert await second.nodes() == {"b"}


async def test_an_heir_that_dies_in_the_middle_has_an_heir(store: Store) -> None:
    first, second, third = [await joined(store, token) for token in "abc"]
    await first.login(JOE)
    await first.login(ANN)
    await first.commit(70)
    await die(first)
    await inherit(second, 1)
    assert await inherit(third) == Slice([], [])  # the second one is at work
    await die(second)
    finished, records = await inherit(third)
    assert {each.name: each.own_cursor for each in records} == {JOE: LogId(70), ANN: LogId(70)}
    assert sorted(finished) == ["a", "b"]
    assert set((await members(third)).tags.values()) == {"c"}
    for token in ("a", "b"):
        assert (await members(third)).nodes[token].heir == "c"
    with pytest.raises(Fenced):
        await second.do(nodes.release(second.keys, "b", ["a"]))
    assert await third.do(nodes.release(third.keys, "c", finished)) == 2


async def test_what_a_dead_heir_had_not_committed_keeps_the_log_until_it_has_moved_on(store: Store) -> None:
    first, second, third = [await joined(store, token) for token in "abc"]
    for name in (JOE, ANN):
        await first.login(name)
        await first.subscribe("/a", name=name)
    ids = await third.publish("/a", "/a")
    for other in (second, third):
        await other.commit(ids[-1])
    await die(first)
    await inherit(second)
    await die(second)
    finished, _ = await inherit(third, 1)  # one of two: all of the first node's, not all of the second one's
    await third.commit(ids[-1], low=0)
    await third.do(nodes.release(third.keys, "c", finished))
    await third.commit(ids[-1])
    await third.trim()
    assert await third.log_ids() == ids


async def test_another_heirs_dead_are_not_released(store: Store) -> None:
    first, second, third = [await joined(store, token) for token in "abc"]
    await first.login(JOE)
    await die(first)
    finished, _ = await inherit(second)
    assert await third.do(nodes.release(third.keys, "c", finished)) == 0
    assert await third.nodes() == {"a", "b", "c"}


async def test_a_server_of_its_own_adopts_what_an_heir_had_not_finished(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    await first.login(ANN)
    await first.commit(70)
    await die(first)
    await inherit(second, 1)
    await die(second)
    alone = await joined(store, "c", ALONE)
    records = await alone.adopt_all()
    assert {name: record.own_cursor for name, record in records.items()} == {JOE: LogId(70), ANN: LogId(70)}
    assert await alone.nodes() == {"c"}


async def test_a_tag_is_forgotten_by_the_node_that_it_leads_to_and_by_no_other(store: Store) -> None:
    first, second, third = [await joined(store, token) for token in "abc"]
    await first.login(JOE)
    await die(first)
    await inherit(second)
    assert (await members(second)).tags == {"tag-a": "b", "tag-b": "b", "tag-c": "c"}
    assert await third.do(nodes.untag(third.keys, third.token, ["tag-a", "tag-b", "unknown"])) == 0
    assert await second.do(nodes.untag(second.keys, second.token, ["tag-a", "unknown"])) == 1
    assert (await members(second)).tags == {"tag-b": "b", "tag-c": "c"}
    with pytest.raises(Fenced):
        await first.do(nodes.untag(first.keys, first.token, ["tag-a"]))


async def test_the_heir_of_an_heir_knows_how_long_the_client_has_been_awaited(store: Store) -> None:
    first, second = await joined(store, "a"), await joined(store, "b")
    await first.login(JOE)
    await first.do(session_store.away(first.keys, "a", {SessionName(JOE): 2 * MINUTE_MS}))
    await die(first)
    assert [(each.awaited_since_ms, each.ends_ms) for each in (await inherit(second)).records] == [(0, 2 * MINUTE_MS)]
    third = await joined(store, "c")
    await die(second)
    [record] = (await inherit(third)).records
    assert record.awaited_since_ms > 0
    assert record.ends_ms == 2 * MINUTE_MS
    await die(third)
    [again] = (await inherit(await joined(store, "d"))).records
    assert (again.awaited_since_ms, again.ends_ms) == (record.awaited_since_ms, record.ends_ms)
