"""What is asked for a subscription, and who is a member of a group: subscribe.lua, unsubscribe.lua, end.lua."""

from collections.abc import Mapping

from crewel.delivery.records import LogId, Submission
from crewel.storage import shared_queue_store
from crewel.storage.shared_queue_store import Member
from crewel.storage.store import Store
from tests.storage.owner import ANN, FACTS_MAX, JOE, Owner, owner_of, started
from tests.storage.reading import queue_size

PATTERN = "/a b/*"
QUEUE = f"group:{PATTERN} x"
IN_X = {PATTERN: b'[{"group":"x","filter":"data.n"}]'}


async def members(owner: Owner, queue: str = QUEUE) -> set[str]:
    return {name.decode() for name in await owner.store.reader.smembers(owner.keys.members(queue))}


async def share(owner: Owner, count: int, queue: str = QUEUE) -> list[LogId]:
    return (await owner.append([Submission("/a b/c", b"{}", groups=(queue,)) for _ in range(count)])).ids


async def joined(owner: Owner, *names: str, options: Mapping[str, bytes] | None = None) -> None:
    for name in names:
        assert await owner.subscribe(name=name, options=options or IN_X) == {}


async def lapsed(owner: Owner) -> list[dict[str, object]]:
    return [each for fact in await owner.facts("ended") for each in fact["ended"] if each["reason"] == "lapsed"]


# Options


async def test_options_are_found_by_who_adopts_the_session(store: Store) -> None:
    owner = await owner_of(store, JOE)
    options = {"/a": b'[{"filter":"data.n"},{"local":false}]', "/b": b'{"notify":false}', **IN_X}
    (newest,) = await owner.publish("/a")
    assert await owner.subscribe("/a", "/b", "/c", options=options) == {"/a": newest, "/b": newest, "/c": newest}
    heir = await started(store, "b")
    record = (await heir.adopt_all())[JOE]
    assert record.subscriptions == {"/a": newest, "/b": newest, "/c": newest}
    assert record.options == {
        "/a": [{"filter": "data.n"}, {"local": False}],
        "/b": {"notify": False},
        PATTERN: [{"group": "x", "filter": "data.n"}],
    }


async def test_a_later_subscribe_replaces_the_options_and_nothing_else(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.subscribe("/a", "/b", options={"/a": b'{"x":1}', "/b": b'{"x":1}'})
    await owner.publish("/a")
    assert await owner.subscribe("/a", options={"/a": b'{"x":2}'}) == {"/a": 0}
    assert (await owner.record())["p:/a"] == '{"x":2}'
    assert await owner.subscribe("/a") == {"/a": 0}
    record = await owner.record()
    assert "p:/a" not in record
    assert record["p:/b"] == '{"x":1}'


async def test_options_end_with_the_subscription(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.subscribe("/a", "/b", options={"/a": b'{"x":1}', "/b": b'{"x":1}'})
    await owner.unsubscribe("/a")
    record = await owner.record()
    assert {field for field in record if field.startswith("p:")} == {"p:/b"}


async def test_facts_tell_of_options_and_groups(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.subscribe("/a", options={"/a": b'{"x":1}'})
    await owner.subscribe("/a", options={"/a": b'{"x":1}'})
    await joined(owner, JOE)
    await owner.subscribe("/a")
    assert await owner.facts("subscribed") == [
        {"session": JOE, "patterns": ["/a"], "from": 0, "options": {"/a": {"x": 1}}},
        {
            "session": JOE,
            "patterns": [],
            "from": 0,
            "groups": [QUEUE],
            "options": {PATTERN: [{"group": "x", "filter": "data.n"}]},
        },
        {"session": JOE, "patterns": [], "from": 0, "options": {"/a": {}}},
    ]
    assert await owner.unsubscribe("/a", PATTERN) == {"/a": (0, 0)}
    assert await owner.facts("unsubscribed") == [
        {"session": JOE, "patterns": ["/a"], "from": [0], "until": 0, "groups": [QUEUE]}
    ]


# Members


async def test_a_member_is_owed_nothing_by_the_log(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await joined(owner, JOE, ANN, JOE)
    assert await members(owner) == {JOE, ANN}
    assert "s:" + PATTERN not in await owner.record()


async def test_one_pattern_takes_several_groups_beside_a_subscription(store: Store) -> None:
    owner = await owner_of(store, JOE)
    both = {PATTERN: b'[{"group":"x"},{"group":"y"},{"filter":"data.n"}]'}
    assert await owner.subscribe(PATTERN, options=both) == {PATTERN: 0}
    assert await members(owner) == await members(owner, f"group:{PATTERN} y") == {JOE}
    assert await owner.subscribe(PATTERN, options={PATTERN: b'[{"group":"y"}]'}) == {PATTERN: 0}
    assert await members(owner) == set()
    assert await members(owner, f"group:{PATTERN} y") == {JOE}
    assert await owner.unsubscribe(PATTERN) == {PATTERN: (0, 0)}
    assert await members(owner, f"group:{PATTERN} y") == set()


async def test_the_last_member_takes_along_what_waits(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await joined(owner, JOE, ANN)
    ids = await share(owner, 2500)
    await owner.unsubscribe(PATTERN)
    assert await queue_size(store, QUEUE) == 2500
    assert await owner.unsubscribe(PATTERN, name=ANN) == {}
    assert await lapsed(owner) == [{"session": QUEUE, "reason": "lapsed", "ids": ids}]
    assert await shared_queue_store.queues(store) == []
    assert await store.reader.exists(store.keys.queue(QUEUE), store.keys.queue_bodies(QUEUE)) == 0


async def test_the_last_member_that_joins_another_group_takes_it_along_too(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await joined(owner, JOE)
    ids = await share(owner, 1)
    await owner.subscribe(PATTERN)
    assert await members(owner) == set()
    assert await lapsed(owner) == [{"session": QUEUE, "reason": "lapsed", "ids": ids}]


async def test_the_last_member_that_ends_takes_along_what_it_was_leased_too(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await joined(owner, JOE, ANN)
    first, second = await share(owner, 2)
    for name in (ANN, JOE):
        await owner.do(shared_queue_store.lease(store.keys, owner.token, QUEUE, [Member(name, 1)], FACTS_MAX))
        await owner.close(name)
        leased = first if name == ANN else second
        left = await owner.end(name=name, returning={leased: 1})
        if name == ANN:
            assert left.returned == [first]
            assert await lapsed(owner) == []
            await owner.do(shared_queue_store.discard(store.keys, owner.token, QUEUE, [first], FACTS_MAX))
    assert (left.returned, left.lapsed) == ([], [second])
    assert await lapsed(owner) == [{"session": JOE, "reason": "lapsed", "ids": [second]}]
    assert await members(owner) == set()
    assert await shared_queue_store.queues(store) == []


async def test_ending_session_joins_no_group(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.close()
    await joined(owner, JOE)
    assert await members(owner) == set()


async def test_a_group_is_left_once(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await joined(owner, JOE, ANN)
    await owner.unsubscribe(PATTERN)
    await owner.unsubscribe(PATTERN)
    assert await members(owner) == {ANN}
    assert len(await owner.facts("unsubscribed")) == 1
