"""publish.lua: messages enter the log, all or none, under rising ids."""

import time

import pytest

from crewel.delivery.records import Logged, LogId, Submission
from crewel.errors import Fenced
from crewel.storage import log
from crewel.storage.log import PublishOutcome
from crewel.storage.store import Store
from tests.storage.owner import Owner, started
from tests.storage.reading import last_id

HOUR = 3_600_000_000  # microseconds


async def test_ids_are_microseconds_of_the_clock_and_follow_one_another(store: Store) -> None:
    owner = await started(store)
    before = time.time_ns() // 1000
    appended = await owner.append([Submission("/a", b"{}") for _ in range(3)])
    first = appended.ids[0]
    assert before <= first <= time.time_ns() // 1000
    assert appended == log.Appended(LogId(0), [first, first + 1, first + 2], [PublishOutcome.NEW] * 3)


async def test_prev_is_the_newest_id_before_the_call(store: Store) -> None:
    owner = await started(store)
    first = await owner.append([Submission("/a", b"{}"), Submission("/a", b"{}")])
    second = await owner.append([Submission("/a", b"{}")])
    assert second.prev == first.ids[-1]
    assert second.ids[0] > second.prev
    assert await last_id(store) == second.ids[0]


async def test_ids_rise_while_the_clock_is_behind(store: Store) -> None:
    owner = await started(store)
    ahead = time.time_ns() // 1000 + HOUR
    await store.reader.set(store.keys.last, ahead)
    assert await owner.publish("/a", "/b") == [ahead + 1, ahead + 2]
    assert await owner.publish("/a") == [ahead + 3]
    assert await owner.log_ids() == [ahead + 1, ahead + 2, ahead + 3]


async def test_an_id_is_not_given_again_after_the_log_lost_its_tail(store: Store) -> None:
    owner = await started(store)
    kept, *lost = await owner.publish("/a", "/a", "/a")
    for each in lost:
        await store.reader.xdel(store.keys.log, f"{each}-0")
    await store.reader.set(store.keys.last, kept)
    assert (await owner.publish("/a"))[0] > lost[-1]


async def test_an_entry_says_what_the_publish_said(store: Store) -> None:
    owner = await started(store)
    whole = Submission("/a b/c", b'{"data":"\xc3\xa9\\u0000"}', "client/joe/1", "client/joe/1", "", b'{"priority":7}')
    bare = Submission("/a", b"")
    ids = (await owner.append([whole, bare])).ids
    assert await log.read(store, LogId(0), 10) == [
        Logged(ids[0], whole.channel, whole.body, whole.sender, whole.excluded, whole.qos),
        Logged(ids[1], "/a", b""),
    ]
    entries = await store.reader.xrange(store.keys.log)
    assert set(entries[1][1]) == {b"c", b"b"}


async def test_a_key_publishes_once(store: Store) -> None:
    owner = await started(store)
    once = Submission("/a", b"{}", key="/a joe 17")
    first = await owner.append([once])
    again = await owner.append([once])
    assert again == log.Appended(first.ids[0], first.ids, [PublishOutcome.REPEATED])
    assert await owner.log_ids() == first.ids


async def test_a_key_counts_within_one_call_too(store: Store) -> None:
    owner = await started(store)
    keys = ("x", "", "y", "x", "y")
    appended = await owner.append([Submission("/a", b"{}", key=key) for key in keys])
    first = appended.ids[0]
    assert appended.ids == [first, first + 1, first + 2, first, first + 2]
    assert [each is PublishOutcome.REPEATED for each in appended.outcomes] == [False, False, False, True, True]
    assert await owner.log_ids() == [first, first + 1, first + 2]


async def test_the_fact_tells_the_keys_as_their_publishers_gave_them(store: Store) -> None:
    owner = await started(store)
    keys = ("order/17", "", 'say "hi"', "order/17")
    submissions = [
        Submission("/a", b"{}", "client/joe/1", key=key and f"joe /a {key}", publisher_key=key) for key in keys
    ]
    topical = Submission("/b", b"{}", key="joe /b 5", history_max=3, groups=("group:/b x",), publisher_key="5")
    ids = (await owner.append([*submissions, topical])).ids
    await owner.append([Submission("/a", b"{}")])
    told = [fact.get("keys") for fact in await owner.facts("published")]
    assert told == [{str(ids[0]): "order/17", str(ids[2]): 'say "hi"', str(ids[4]): "5"}, None]
    entries = await log.read(store, LogId(0), 10)
    assert [(each.channel, each.sender) for each in entries][:2] == [("/a", "client/joe/1")] * 2


async def test_different_keys_publish_apart(store: Store) -> None:
    owner = await started(store)
    appended = await owner.append([Submission("/a", b"{}", key="x"), Submission("/a", b"{}", key="y")])
    assert appended.outcomes == [PublishOutcome.NEW] * 2


async def test_a_key_is_remembered_as_long_as_asked_for(store: Store) -> None:
    owner = await started(store)
    await owner.append([Submission("/a", b"{}", key="x")], once_ms=50_000)
    assert 40_000 < await store.reader.pttl(store.keys.once("x")) <= 50_000


async def test_a_superseded_server_appends_nothing(store: Store) -> None:
    stranger = Owner(store, "never booted")
    with pytest.raises(Fenced):
        await stranger.publish("/a")
    assert await last_id(store) == 0
    assert await store.reader.exists(store.keys.log, store.keys.facts, store.keys.last) == 0


async def test_publish_writes_one_fact_a_group(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a", "/b c", "/a")
    assert await owner.facts("published") == [{"first": ids[0], "channels": ["/a", "/b c", "/a"]}]


async def test_the_fact_leaves_out_what_was_published_before(store: Store) -> None:
    owner = await started(store)
    once = Submission("/once", b"{}", key="x")
    await owner.append([once])
    ids = (await owner.append([once, Submission("/a", b"{}"), once, Submission("/b", b"{}")])).ids
    await owner.append([once])
    facts = await owner.facts("published")
    assert facts[1:] == [{"first": ids[1], "channels": ["/a", "/b"]}]
    assert ids[3] == ids[1] + 1


async def test_256_large_messages_go_at_once(store: Store) -> None:
    owner = await started(store)
    submissions = [
        Submission(f"/a/{number}", b"x" * 10_000, "client/joe/1", "client/joe/2", f"key {number}", b"{}")
        for number in range(256)
    ]
    appended = await owner.append(submissions)
    assert appended.ids == list(range(appended.ids[0], appended.ids[0] + 256))
    assert len(await owner.log_ids()) == 256


async def test_facts_are_bounded(store: Store) -> None:
    owner = await started(store)
    steps = [log.append(store.keys, "a", [Submission("/a", b"{}")], facts_max=50) for _ in range(600)]
    await store.run(steps)
    assert 50 <= await store.reader.xlen(store.keys.facts) < 200
    newest = (await owner.facts("published"))[-1]
    assert newest["first"] == await last_id(store)
