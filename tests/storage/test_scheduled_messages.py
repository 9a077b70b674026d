"""schedule.lua, postpone.lua and cancel.lua, and the way of a scheduled message out of the list: by publish.lua."""

from typing import Any

import orjson
import pytest

from crewel.delivery.records import LogId, Submission
from crewel.errors import Fenced
from crewel.storage import log, scheduled_messages
from crewel.storage.log import PublishOutcome
from crewel.storage.scheduled_messages import Scheduled, Waiting
from crewel.storage.store import Store
from tests.storage.owner import FACTS_MAX, Owner, started
from tests.storage.reading import read_facts

GONE, NEW, REFUSED, UNCHANGED = (
    PublishOutcome.GONE,
    PublishOutcome.NEW,
    PublishOutcome.REFUSED,
    PublishOutcome.UNCHANGED,
)
MESSAGE = Waiting(5000, "/a", b'{"data":1}', "client/joe/1", "", b'{"persistent":true}', "subject joe")


async def schedule(owner: Owner, message: Waiting = MESSAGE, most: int = 0, key: str = "") -> Scheduled:
    publisher_key = key.rpartition(" ")[2]
    step = scheduled_messages.schedule(owner.keys, owner.token, message, most, FACTS_MAX, key, publisher_key)
    found: Scheduled = await owner.do(step)
    return found


def due(log_id: int, channel: str = "/a", **fields: Any) -> Submission:
    return Submission(channel, b'{"data":1}', key=str(log_id), is_due=True, **fields)


async def ids(store: Store, now_ms: int = 10_000) -> list[str]:
    return [each.id for each in await scheduled_messages.due(store, now_ms, 100)]


async def held(store: Store) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = await store.reader.hgetall(store.keys.scheduled_held)
    return found


async def facts(store: Store, kind: str) -> list[dict[str, Any]]:
    return [each.fields for each in await read_facts(store) if each.type == kind]


async def test_a_message_is_kept_as_it_was_given_until_it_is_due(store: Store) -> None:
    owner = await started(store, "a")
    kept = await schedule(owner)
    assert kept.id > kept.prev
    assert not kept.is_repeated
    assert await ids(store, 4999) == []
    (found,) = await scheduled_messages.due(store, 5000, 100)
    assert found == (str(kept.id), MESSAGE, 5000, "")
    assert await facts(store, "scheduled") == [{"id": kept.id, "channel": "/a", "at": 5000}]
    assert await facts(store, "published") == []


async def test_messages_are_due_in_the_order_of_their_times_and_then_of_their_ids(store: Store) -> None:
    owner = await started(store, "a")
    kept = [(await schedule(owner, MESSAGE._replace(due_ms=at))).id for at in (7000, 5000, 5000)]
    assert await ids(store) == [str(kept[1]), str(kept[2]), str(kept[0])]


async def test_the_step_that_publishes_it_takes_it_out_of_the_list(store: Store) -> None:
    owner = await started(store, "a")
    kept = await schedule(owner)
    first = await owner.append([due(kept.id), Submission("/b", b"{}")])
    again = await owner.append([due(kept.id), Submission("/b", b"{}")])
    assert first.outcomes == [NEW, NEW]
    assert again.outcomes == [GONE, NEW]
    assert again.ids[0] == 0
    assert await ids(store) == []
    assert await held(store) == {}
    assert [each.channel for each in await log.read(store, LogId(0), 10)] == ["/a", "/b", "/b"]
    told = (await facts(store, "published"))[0]
    assert told["scheduled"] == {str(first.ids[0]): kept.id}
    assert "keys" not in told


async def test_keys_and_schedules_of_one_group_do_not_mix(store: Store) -> None:
    owner = await started(store, "a")
    kept = await schedule(owner)
    keyed = Submission("/b", b"{}", key="joe /b k", publisher_key="k")
    appended = await owner.append([keyed, due(kept.id), keyed._replace(key="joe /b l", publisher_key="l")])
    (told,) = await facts(store, "published")
    assert told["keys"] == {str(appended.ids[0]): "k", str(appended.ids[2]): "l"}
    assert told["scheduled"] == {str(appended.ids[1]): kept.id}


async def test_its_history_and_its_groups_get_it(store: Store) -> None:
    owner = await started(store, "a")
    first, second = await schedule(owner), await schedule(owner)
    queue = "group:/a workers"
    appended = await owner.append([due(first.id, history_max=2, groups=(queue,), sender="client/joe/1")])
    assert await store.reader.xlen(store.keys.history("/a")) == 1
    assert await store.reader.hkeys(store.keys.queue_bodies(queue)) == [str(appended.ids[0]).encode()]
    same = await owner.append([due(second.id, history_max=2, forces_update=False)])
    assert same.outcomes == [UNCHANGED]
    assert await ids(store) == []


async def test_one_that_its_topic_refuses_stays(store: Store) -> None:
    owner = await started(store, "a")
    kept = await schedule(owner)
    await owner.append([Submission("/a", b"{}", history_max=1, is_only=True)])
    refused = await owner.append([due(kept.id, history_max=1, is_only=True)])
    assert refused.outcomes == [REFUSED]
    assert await ids(store) == [str(kept.id)]


async def test_one_that_was_refused_is_tried_later_and_says_why(store: Store) -> None:
    owner = await started(store, "a")
    kept = await schedule(owner)
    step = scheduled_messages.postpone(owner.keys, owner.token, str(kept.id), 9000, "readonly")
    assert await owner.do(step) == 1
    assert await ids(store, 8999) == []
    (found,) = await scheduled_messages.due(store, 9000, 100)
    assert (found.message.due_ms, found.next_ms, found.refusal) == (5000, 9000, "readonly")
    await owner.append([due(kept.id)])
    assert await owner.do(step) == 0
    assert await store.reader.hlen(store.keys.scheduled_refused) == 0


async def test_cancelling_takes_it_out_once(store: Store) -> None:
    owner = await started(store, "a")
    first, second = await schedule(owner), await schedule(owner, MESSAGE._replace(channel="/b", account=""))
    wanted = [str(second.id), str(first.id), "17"]
    step = scheduled_messages.cancel(owner.keys, owner.token, wanted, FACTS_MAX, 'ann "a"')
    assert await owner.do(step) == 2
    assert await owner.do(step) == 0
    assert await facts(store, "cancelled") == [
        {"ids": [second.id, first.id], "channels": ["/b", "/a"], "who": 'ann "a"'}
    ]
    assert (await owner.append([due(first.id)])).outcomes == [GONE]
    assert await held(store) == {}


async def test_an_account_cancels_only_its_own(store: Store) -> None:
    owner = await started(store, "a")
    kept = [await schedule(owner, MESSAGE._replace(account=account)) for account in ("subject joe", "subject ann", "")]
    wanted = [str(each.id) for each in kept]
    step = scheduled_messages.cancel(owner.keys, owner.token, wanted, FACTS_MAX, "joe/1", "subject joe")
    assert await owner.do(step) == 1
    assert await facts(store, "cancelled") == [{"ids": [kept[0].id], "channels": ["/a"], "who": "joe/1"}]
    assert await held(store) == {b"subject ann": b"1", b"": b"1"}


async def test_an_account_has_at_most_so_many(store: Store) -> None:
    owner = await started(store, "a")
    kept = [await schedule(owner, most=2) for _ in range(3)]
    assert [each.id > 0 for each in kept] == [True, True, False]
    assert (await schedule(owner, MESSAGE._replace(account="subject ann"), most=2)).id
    assert await held(store) == {b"subject joe": b"2", b"subject ann": b"1"}
    await owner.append([due(kept[0].id)])
    assert (await schedule(owner, most=2)).id


async def test_a_repeated_key_keeps_nothing(store: Store) -> None:
    owner = await started(store, "a")
    first = await schedule(owner, key="joe /a k")
    again = await schedule(owner, MESSAGE._replace(due_ms=7000), key="joe /a k")
    assert (again.id, again.is_repeated) == (first.id, True)
    assert await ids(store) == [str(first.id)]
    assert [each["key"] for each in await facts(store, "scheduled")] == ["k"]


async def test_another_server_that_has_superseded_this_one_decides(store: Store) -> None:
    owner = await started(store, "a")
    kept = await schedule(owner)
    await store.reader.delete(store.keys.node(owner.token))
    steps = (
        scheduled_messages.schedule(owner.keys, owner.token, MESSAGE, 0, FACTS_MAX),
        scheduled_messages.postpone(owner.keys, owner.token, str(kept.id), 9000, "x"),
        scheduled_messages.cancel(owner.keys, owner.token, [str(kept.id)], FACTS_MAX),
    )
    for step in steps:
        with pytest.raises(Fenced):
            await owner.do(step)
    assert await ids(store) == [str(kept.id)]


async def test_pages_list_each_once(store: Store) -> None:
    owner = await started(store, "a")
    kept = [
        str((await schedule(owner, MESSAGE._replace(due_ms=5000 + n % 2, channel=f"/{'ab'[n % 3 == 0]}"))).id)
        for n in range(450)
    ]
    found, place = [], ""
    while True:
        page = await scheduled_messages.page(store, after=place, count=100)
        found += [each.id for each in page.messages]
        place = page.next
        if not place:
            break
    assert found == [*kept[::2], *kept[1::2]]
    on_b = await scheduled_messages.page(store, "/b", count=1000)
    assert len(on_b.messages) == 150
    assert [each.id for each in await scheduled_messages.get(store, [kept[3], "x", "1"])] == [kept[3]]
    assert await scheduled_messages.count(store) == 450


@pytest.mark.parametrize("is_last", [False, True])
async def test_a_page_goes_on_where_the_one_before_ended_though_its_last_message_was_postponed(
    store: Store, *, is_last: bool
) -> None:
    owner = await started(store, "a")
    kept = [str((await schedule(owner, MESSAGE._replace(due_ms=at))).id) for at in (5000, 6000, 7000)]
    first = await scheduled_messages.page(store, count=1)
    assert [each.id for each in first.messages] == kept[:1]
    await owner.do(scheduled_messages.postpone(owner.keys, owner.token, kept[0], 9000 if is_last else 6500, "x"))
    rest = await scheduled_messages.page(store, after=first.next)
    assert {*kept[1:]} <= {each.id for each in rest.messages}


@pytest.mark.parametrize("place", ["5", "-5", "5-", "x-5", "5-x", f"{'9' * 17}-5"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="next"):
        scheduled_messages.place_of(place)


async def test_what_was_asked_for_comes_back_byte_for_byte(store: Store) -> None:
    owner = await started(store, "a")
    message = Waiting(
        5000, "/a", b'{"data":"p1:x\\u0000"}', "", "client/joe/1", orjson.dumps({"key": "\x00:\n"}), "a:b 12:c"
    )
    await schedule(owner, message)
    (found,) = await scheduled_messages.due(store, 5000, 1)
    assert found.message == message
    await owner.append([due(int(found.id))])
    assert await held(store) == {}
