"""Histories: what publish.lua puts there, and history.lua, histories.lua, configure.lua, erase.lua and expire.lua find."""

import time
from random import Random
from typing import Any

import pytest

from crewel.delivery.records import Logged, LogId, Submission
from crewel.errors import Fenced
from crewel.storage import histories, log, shared_queue_store
from crewel.storage.histories import ChangeKind, History, Past, Pasts, StoredTopic, Wanted, Way
from crewel.storage.log import PublishOutcome
from crewel.storage.store import Store
from tests.storage.owner import FACTS_MAX, Owner, started

NEW, UNCHANGED, REFUSED = PublishOutcome.NEW, PublishOutcome.UNCHANGED, PublishOutcome.REFUSED
HOUR = 3_600_000_000  # microseconds


def kept(body: bytes = b"{}", channel: str = "/a", history_max: int = 3, **fields: Any) -> Submission:
    return Submission(channel, body, history_max=history_max, **fields)


def said(entry: Logged) -> tuple[str, str, dict[str, Any], str]:
    """What the note of a change says."""
    change = histories.change_of(entry)
    return change.kind, change.epoch, change.settings, change.by


async def read(owner: Owner, newest: int | None = None, channel: str = "/a", now: int = 0) -> histories.History:
    step = histories.history(owner.keys, owner.token, channel, newest=newest, now=now)
    found: History = await owner.do(step)
    return found


async def bodies(owner: Owner, newest: int | None = None, now: int = 0) -> list[bytes]:
    return [each.body for each in (await read(owner, newest, now=now)).entries]


async def pasts(
    owner: Owner, *wanted: Wanted, room: int = 100, max_bytes: int | None = None, taken: int = 0, now: int = 0
) -> list[Past]:
    step = histories.pasts(owner.keys, owner.token, wanted, room=room, max_bytes=max_bytes, taken=LogId(taken), now=now)
    found: Pasts = await owner.do(step)
    assert found.last == (await read(owner)).last
    return found.found


def ids_of(past: Past) -> list[LogId]:
    return [each.id for each in past.entries]


async def after(owner: Owner, since: int, channel: str = "/a", **how: int) -> Past:
    (found,) = await pasts(owner, Wanted(channel, Way.SINCE, since=LogId(since)), **how)
    return found


async def expire(owner: Owner, now_us: float, count: int = 100) -> list[tuple[str, int, int]]:
    found: histories.Expired = await owner.do(
        histories.expire(owner.keys, owner.token, int(now_us // 1000), count, FACTS_MAX)
    )
    return [*found.shortened]


def in_an_hour() -> int:
    return time.time_ns() // 1000 + HOUR


# Publishing


async def test_a_message_lies_in_the_log_and_in_the_history_alike(store: Store) -> None:
    owner = await started(store)
    whole = kept(b'{"data":1}', "/a b", sender="client/joe/1", excluded="client/joe/1", qos=b'{"priority":7}')
    appended = await owner.append([whole])
    assert appended.outcomes == [NEW]
    (entry,) = (await read(owner, channel="/a b")).entries
    assert entry == Logged(appended.ids[0], "/a b", whole.body, whole.sender, whole.excluded, whole.qos)
    assert await owner.log_ids() == appended.ids


async def test_the_history_keeps_the_newest_and_not_one_more(store: Store) -> None:
    owner = await started(store)
    ids = (await owner.append([kept(b"%d" % number) for number in range(250)])).ids
    found = await read(owner)
    assert [each.id for each in found.entries] == ids[-3:]
    assert found.total == 3


async def test_a_smaller_history_counts_from_the_next_message_on(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b"%d" % number, history_max=300, expires=in_an_hour()) for number in range(300)])
    await owner.append([kept(b"last", history_max=2)])
    assert await bodies(owner) == [b"299", b"last"]
    assert await store.reader.zcard(store.keys.expiry) == 1


async def test_plain_messages_leave_histories_alone(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b"1"), Submission("/a", b"2"), kept(b"3", key="x"), kept(b"4", key="x")])
    assert await bodies(owner) == [b"1", b"3"]


async def test_unchanged_publish_is_neither_stored_nor_delivered(store: Store) -> None:
    owner = await started(store)
    first = await owner.append([kept(b"1", forces_update=False)])
    same = await owner.append([kept(b"1", forces_update=False), kept(b"2"), kept(b"2", forces_update=False)])
    assert first.outcomes == [NEW]
    assert same.outcomes == [UNCHANGED, NEW, UNCHANGED]
    assert same.ids == [same.ids[0], same.ids[0] + 1, same.ids[0] + 2]
    assert await owner.log_ids() == [first.ids[0], same.ids[1]]
    assert await bodies(owner) == [b"1", b"2", b"2"]
    assert (await owner.facts("published"))[1] == {"first": same.ids[0], "channels": ["", "/a", ""]}
    assert (await owner.append([])).prev == same.ids[2]


async def test_without_a_history_nothing_is_the_same(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b"1")])
    again = await owner.append([kept(b"1", history_max=0, forces_update=False)])
    assert again.outcomes == [NEW]


async def test_unchanged_publish_is_new_after_the_expiry_of_the_former(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b"1", expires=2_000_000)])
    assert (await owner.append([kept(b"1", expires=2_000_000, forces_update=False)], now=1_999_999)).outcomes == [
        UNCHANGED
    ]
    assert (await owner.append([kept(b"1", forces_update=False)], now=2_000_000)).outcomes == [NEW]


async def test_a_readonly_topic_takes_one_message(store: Store) -> None:
    owner = await started(store)
    first = await owner.append([kept(b"1", is_only=True, key="x"), kept(b"2", is_only=True, key="y")])
    assert first.outcomes == [NEW, REFUSED]
    assert first.ids[1] == 0
    again = await owner.append(
        [kept(b"1", is_only=True, key="x"), kept(b"2", is_only=True, key="y"), kept(history_max=0, is_only=True)]
    )
    assert again.outcomes == [PublishOutcome.REPEATED, REFUSED, REFUSED]
    assert again.ids == [first.ids[0], 0, 0]
    assert await owner.log_ids() == [first.ids[0]]
    assert await bodies(owner) == [b"1"]


async def test_a_group_of_refused_messages_writes_nothing(store: Store) -> None:
    owner = await started(store)
    first = await owner.append([kept(b"1", is_only=True)])
    refused = await owner.append([kept(b"2", is_only=True)])
    assert (refused.prev, refused.ids) == (first.ids[0], [0])
    assert len(await owner.facts("published")) == 1


# Reading


async def test_reading_tells_epoch_last_and_total(store: Store) -> None:
    owner = await started(store)
    assert await read(owner) == History("", LogId(0), [], 0)
    ids = (await owner.append([kept(b"1"), kept(b"2"), Submission("/b", b"3")])).ids
    found = await read(owner, newest=1)
    assert (found.last, found.total, [each.id for each in found.entries]) == (ids[2], 2, [ids[1]])
    assert found.epoch


async def test_the_newest_so_many_come_oldest_first(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b"%d" % number, history_max=5000) for number in range(2500)])
    everything = [b"%d" % number for number in range(2500)]
    for newest in (0, 1, 999, 1000, 1001, 2499, 2500, 9999):
        assert await bodies(owner, newest) == everything[2500 - min(newest, 2500) :]
    assert await bodies(owner) == everything


async def test_reading_goes_on_after_an_entry_that_is_still_there(store: Store) -> None:
    owner = await started(store)
    ids = (await owner.append([kept(b"%d" % number) for number in range(4)])).ids
    found = await after(owner, ids[1])
    assert ids_of(found) == ids[2:]
    assert found.reaches
    assert not (await after(owner, ids[0])).reaches
    newest = await after(owner, ids[3])
    assert (newest.entries, newest.reaches, newest.newest) == ([], True, ids[3])
    assert ids_of(await after(owner, ids[0], room=1)) == ids[2:]  # one more than there is room for


async def test_from_the_beginning_nothing_is_missing_until_something_has_left(store: Store) -> None:
    owner = await started(store)
    assert not (await after(owner, 0)).reaches
    await owner.do(histories.configure(store.keys, owner.token, "/a", b"{}", "e"))
    assert (await after(owner, 0)).reaches
    await owner.append([kept(expires=1_000_000), kept(), kept()])
    assert (await after(owner, 0)).reaches
    assert len((await after(owner, 0, now=1_000_000)).entries) == 2
    await expire(owner, 2_000_000)
    assert not (await after(owner, 0)).reaches
    await owner.do(histories.clear(store.keys, owner.token, "/a"))
    assert (await after(owner, 0)).reaches
    await owner.append([kept(), kept(), kept(), kept()])
    assert not (await after(owner, 0)).reaches
    await owner.do(histories.clear(store.keys, owner.token, "/a"))
    await owner.append([kept(expires=1_000_000)])
    await expire(owner, 2_000_000)
    assert not (await after(owner, 0)).reaches


async def test_history_leaves_out_expired_messages(store: Store) -> None:
    owner = await started(store)
    past, future = 1_000_000, 1_000_001
    messages = [kept(b"%d" % number, history_max=9, expires=past if number % 2 else future) for number in range(6)]
    ids = (await owner.append(messages)).ids
    assert await bodies(owner, now=past) == [b"0", b"2", b"4"]
    assert await bodies(owner, newest=2, now=past) == [b"2", b"4"]
    assert len(await bodies(owner, now=past - 1)) == 6
    found = await after(owner, ids[1], now=past)
    assert (found.reaches, ids_of(found), found.newest) == (True, [ids[2], ids[4]], ids[4])
    assert (await read(owner)).total == 6


async def test_of_several_histories_the_newest_messages_are_read_and_no_more(store: Store) -> None:
    """Whatever lies where: they are found as if all had been read."""
    owner, random = await started(store), Random(5)
    channels = ["/a", "/b", "/c", "/d"]
    messages = []
    for _ in range(600):
        channel = random.choice(["/a", "/a", "/a", "/b", "/b", "/c"])
        expires = random.choice([0, 0, 0, 1_000_000])
        messages.append(Submission(channel, b"%0*d" % (random.randrange(1, 99), 1), history_max=900, expires=expires))
    ids = (await owner.append(messages)).ids
    for _ in range(40):
        most = dict.fromkeys(channels, 0) | {each: random.randrange(0, 300) for each in random.sample(channels, 3)}
        room, max_bytes = random.randrange(0, 500), random.choice([None, random.randrange(0, 9000)])
        expected: dict[str, list[LogId]] = {each: [] for each in channels}
        left, size = room, 0
        for log_id, each in zip(reversed(ids), reversed(messages), strict=True):
            if each.expires or len(expected[each.channel]) >= most[each.channel]:
                continue
            if not left or (max_bytes is not None and size > max_bytes):
                break
            expected[each.channel].insert(0, log_id)
            left, size = left - 1, size + len(each.body)
        wanted = [Wanted(each, Way.NEWEST, most[each]) for each in channels]
        found = await pasts(owner, *wanted, room=room, max_bytes=max_bytes, now=1_000_000)
        assert {each: ids_of(past) for each, past in zip(channels, found, strict=True)} == expected


async def test_each_way_of_reading_has_a_room_of_its_own(store: Store) -> None:
    owner = await started(store)
    ids = (await owner.append([kept(b"%d" % number, history_max=9) for number in range(3)])).ids
    others = (await owner.append([Submission("/b", b"%d" % number, history_max=9) for number in range(3)])).ids
    since = [Wanted(each, Way.SINCE) for each in ("/a", "/b")]
    newest, alone = Wanted("/b", Way.NEWEST, 9), Wanted("/a", Way.ALONE, 5)
    found = await pasts(owner, *since, newest, alone, room=2)
    assert [ids_of(each) for each in found] == [ids, [], others[1:], ids]
    assert [each.newest for each in found] == [ids[2], others[2], others[2], ids[2]]


async def test_the_newest_message_that_had_been_taken_is_told(store: Store) -> None:
    owner = await started(store)
    ids = (await owner.append([kept(b"%d" % number) for number in range(3)])).ids
    wanted = Wanted("/a", Way.NEWEST, 1), Wanted("/a", Way.SINCE), Wanted("/none", Way.NEWEST, 1)
    for taken, before in ((ids[0] - 1, 0), (ids[0], ids[0]), (ids[2] - 1, ids[1]), (ids[2] + 9, ids[2])):
        assert [each.before for each in await pasts(owner, *wanted, taken=taken)] == [before, before, 0]
        assert [each.newest for each in await pasts(owner, *wanted, taken=taken)] == [ids[2], ids[2], 0]


# Configuring and erasing


async def test_the_first_epoch_holds(store: Store) -> None:
    owner = await started(store)
    configure = histories.configure
    assert await owner.do(configure(store.keys, owner.token, "/a", b'{"historyMax":1}', "first")) == "first"
    assert await owner.do(configure(store.keys, owner.token, "/a", b'{"historyMax":2}', "second")) == "first"
    assert await histories.topics(store) == [StoredTopic("/a", {"historyMax": 2}, "first", 0, LogId(0))]
    await owner.append([kept()])
    assert (await read(owner)).epoch == "first"


async def test_a_smaller_history_is_cut_at_once(store: Store) -> None:
    owner = await started(store)
    ids = (await owner.append([kept(b"%d" % number, history_max=9) for number in range(5)])).ids
    configure = histories.configure
    epoch = (await read(owner)).epoch
    for most, left in ((9, 5), (5, 5), (2, 2)):
        settings = b'{"historyMax":%d}' % most
        assert await owner.do(configure(store.keys, owner.token, "/a", settings, "other")) == epoch
        assert [each.id for each in (await read(owner)).entries] == ids[-left:]
        assert (await after(owner, 0)).reaches is (left == 5)


async def test_an_epoch_can_be_renewed(store: Store) -> None:
    owner = await started(store)
    configure = histories.configure
    await owner.do(configure(store.keys, owner.token, "/a", b'{"x":1}', "first"))
    assert await owner.do(configure(store.keys, owner.token, "/a", b"", "second", renews=True)) == "second"
    assert await histories.topics(store) == [StoredTopic("/a", {"x": 1}, "second", 0, LogId(0))]


async def test_topics_with_a_history_are_known_without_settings(store: Store) -> None:
    owner = await started(store)
    channels = sorted(f"/a/{number}" for number in range(1200))
    ids: list[LogId] = []
    for start in range(0, 1200, 256):
        ids += (await owner.append([kept(channel=channel) for channel in channels[start : start + 256]])).ids
    found = await histories.topics(store)
    assert [each.channel for each in found] == channels
    assert [(each.entries, each.newest, each.settings) for each in found] == [(1, each, {}) for each in ids]
    assert all(each.epoch for each in found)


async def test_nothing_of_an_erased_topic_is_left(store: Store) -> None:
    owner = await started(store)
    await owner.do(histories.configure(store.keys, owner.token, "/a", b"{}", "e"))
    await owner.append([kept(b"%d" % number, history_max=1200, expires=in_an_hour()) for number in range(1200)])
    await owner.append([kept(channel="/b", expires=in_an_hour())])
    assert await owner.do(histories.erase(store.keys, owner.token, "/a", FACTS_MAX)) == 1200
    assert await store.reader.exists(store.keys.history("/a"), store.keys.topic("/a")) == 0
    assert [each.channel for each in await histories.topics(store)] == ["/b"]
    assert await store.reader.zcard(store.keys.expiry) == 1
    assert await owner.do(histories.erase(store.keys, owner.token, "/a", FACTS_MAX)) == 0
    assert await owner.facts("erased") == [{"channel": "/a", "messages": 1200}]


async def test_a_topic_of_which_messages_wait_is_marked_until_it_is_forgotten(store: Store) -> None:
    owner = await started(store)
    for _ in range(2):
        await owner.do(histories.erase(store.keys, owner.token, "/a", FACTS_MAX, ChangeKind.ERASED))
    assert await histories.topics(store) == [StoredTopic("/a", {}, "", 0, LogId(0), is_erased=True)]
    assert await owner.do(histories.forget(store.keys, owner.token, "/a")) == 1
    assert await owner.do(histories.forget(store.keys, owner.token, "/a")) == 0
    assert await histories.topics(store) == []
    assert await owner.facts("erased") == []


async def test_forgetting_a_mark_leaves_what_was_configured_since(store: Store) -> None:
    owner = await started(store)
    await owner.do(histories.erase(store.keys, owner.token, "/a", FACTS_MAX, ChangeKind.ERASED))
    await owner.do(histories.configure(store.keys, owner.token, "/a", b'{"x":1}', "e"))
    await owner.do(histories.forget(store.keys, owner.token, "/a"))
    assert await histories.topics(store) == [StoredTopic("/a", {"x": 1}, "e", 0, LogId(0))]


async def test_a_cleared_history_begins_a_new_epoch(store: Store) -> None:
    owner = await started(store)
    await owner.do(histories.configure(store.keys, owner.token, "/a", b'{"x":1}', "e"))
    await owner.append([kept(), kept()])
    assert await owner.do(histories.clear(store.keys, owner.token, "/a")) == 2
    (topic,) = await histories.topics(store)
    assert (topic.settings, topic.entries) == ({"x": 1}, 0)
    assert topic.epoch != "e"
    assert await owner.do(histories.clear(store.keys, owner.token, "/a", "mine")) == 0
    assert (await read(owner)).epoch == "mine"
    await owner.do(histories.clear(store.keys, owner.token, "/unknown"))
    assert len(await histories.topics(store)) == 1


# Expiring


async def test_expire_removes_messages_from_histories(store: Store) -> None:
    owner = await started(store)
    now = time.time_ns() // 1000
    times = [("/a", now + 1000), ("/a", 0), ("/b", now + 2500), ("/a", now + 1000), ("/a", now + HOUR)]
    await owner.append([kept(channel=channel, expires=when, history_max=9) for channel, when in times])
    assert await expire(owner, now - 1000) == []
    assert await expire(owner, now + 2000) == [("/a", 2, 2)]
    assert await expire(owner, now + 10_000) == [("/b", 1, 0)]
    assert await store.reader.exists(store.keys.history("/b")) == 0
    assert await store.reader.zcard(store.keys.expiry) == 1
    assert len(await owner.log_ids()) == 5


async def test_expire_removes_a_bounded_number(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(expires=1_000_000, history_max=9) for _ in range(5)])
    assert await expire(owner, 2_000_000, count=2) == [("/a", 2, 3)]
    assert await expire(owner, 2_000_000, count=9) == [("/a", 3, 0)]
    assert await expire(owner, 2_000_000) == []


async def test_expire_removes_messages_from_shared_queues(store: Store) -> None:
    owner = await started(store)
    queue, forced = "group:/a b", b'{"forceDestroy":true,"priority":8}'
    shared = [
        Submission("/a", b"{}", qos=qos, expires=1_000_000, groups=(queue,)) for qos in (forced, b"", forced, b"")
    ]
    ids = (await owner.append(shared)).ids
    assert await expire(owner, 2_000_000) == [(queue, 2, 2)]
    assert [each.id for each in await shared_queue_store.peek(store, queue, 9)] == [ids[1], ids[3]]
    assert await owner.facts("ended") == [{"ended": [{"session": queue, "reason": "expired", "ids": [ids[0], ids[2]]}]}]


async def test_expire_does_not_count_messages_that_are_gone(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(expires=1_000_000, history_max=1) for _ in range(3)])
    assert await store.reader.zcard(store.keys.expiry) == 1
    await store.reader.delete(store.keys.history("/a"))
    assert await owner.do(histories.expire(owner.keys, owner.token, 2000, 9, FACTS_MAX)) == (1, [])
    assert await store.reader.zcard(store.keys.expiry) == 0


async def test_a_superseded_server_reads_and_changes_nothing(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(expires=1_000_000)])
    stranger = Owner(store, "never booted")
    for step in (
        histories.history(store.keys, stranger.token, "/a", newest=1),
        histories.pasts(
            store.keys, stranger.token, [Wanted("/a", Way.NEWEST, 1)], room=1, max_bytes=None, taken=LogId(0)
        ),
        histories.configure(store.keys, stranger.token, "/a", b"{}", "e"),
        histories.erase(store.keys, stranger.token, "/a", FACTS_MAX),
        histories.clear(store.keys, stranger.token, "/a"),
        histories.expire(store.keys, stranger.token, 9_000_000, 9),
    ):
        with pytest.raises(Fenced):
            await stranger.do(step)
    assert (await read(owner)).total == 1


# Bytes


async def test_the_oldest_messages_go_when_a_history_has_too_many_bytes(store: Store) -> None:
    owner = await started(store)
    bodies_of = [b'"%d%b"' % (number, b"x" * 1000) for number in range(100)]
    for body in bodies_of:
        await owner.append([kept(body, history_max=1000)], history_max_bytes=20_000)
    left = await bodies(owner)
    assert left == bodies_of[-len(left) :]
    assert 18 <= len(left) <= 19, "each takes some bytes beside its body"


async def test_a_message_larger_than_the_bound_is_kept_alone(store: Store) -> None:
    owner = await started(store)
    for body in (b'"1"', b'"2"', b'"%b"' % (b"x" * 5000)):
        await owner.append([kept(body, history_max=10)], history_max_bytes=1000)
    assert await bodies(owner) == [b'"%b"' % (b"x" * 5000)]


async def test_large_message_makes_room_in_the_history_within_few_publishes(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b'"%d"' % number, history_max=1000) for number in range(200)])
    for _ in range(5):
        await owner.append([kept(b'"%b"' % (b"x" * 5000), history_max=1000)], history_max_bytes=11_000)
    assert len(await bodies(owner)) == 2


async def test_message_dropped_for_bytes_leaves_the_expiry_and_breaks_positions(store: Store) -> None:
    owner = await started(store)
    first = (await owner.append([kept(b'"%b"' % (b"x" * 900), expires=in_an_hour())], history_max_bytes=1500)).ids[0]
    await owner.append([kept(b'"%b"' % (b"y" * 900), expires=in_an_hour())], history_max_bytes=1500)
    assert await store.reader.zcard(store.keys.expiry) == 1
    assert not (await after(owner, first)).reaches
    assert not (await after(owner, 0)).reaches


async def test_a_reading_stops_at_so_many_bytes_with_one_message_more(store: Store) -> None:
    owner = await started(store)
    await owner.append([kept(b'"%03d%b"' % (number, b"x" * 995), history_max=1000) for number in range(300)])
    step = histories.history(owner.keys, owner.token, "/a", newest=None, max_bytes=150_000)
    found: histories.History = await owner.do(step)
    assert len(found.entries) == 151
    assert found.entries[-1].body.startswith(b'"299')


async def test_changes_are_noted_in_the_log_for_other_nodes(store: Store) -> None:
    owner = await started(store)
    keys, token = owner.keys, owner.token
    await owner.do(histories.configure(keys, token, "/quiet", b"{}", "e"))
    for _ in range(2):  # a repeated call changes nothing
        await owner.do(histories.configure(keys, token, "/a", b'{"historyMax":2}', "e", author=token))
    await owner.do(histories.clear(keys, token, "/a", "f", author=token))
    for kind in (ChangeKind.ERASED, ChangeKind.FORCED, ChangeKind.ENDED):
        await owner.do(histories.erase(keys, token, "/a", FACTS_MAX, kind, author=token))
    entries = await log.read(store, LogId(0), 100)
    assert [each.channel for each in entries] == ["/a"] * 5
    assert [said(each) for each in entries] == [
        ("configured", "e", {"historyMax": 2}, token),
        ("cleared", "f", {"historyMax": 2}, token),
        ("erased", "", {}, token),
        ("forced", "", {}, token),
        ("ended", "", {}, token),
    ]
    assert int(await store.reader.get(keys.last)) == entries[-1].id
    assert shared_queue_store.addressed(entries[0]) == {}  # for a node of the version before
