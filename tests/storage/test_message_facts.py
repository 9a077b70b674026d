"""Messages found by the idempotency key that the facts tell, and by a text in shared queues."""

import pytest

from crewel.delivery.records import LogId, Submission
from crewel.storage import message_bodies, message_facts, shared_queue_store
from crewel.storage.message_facts import earlier_id, messages_with_key
from crewel.storage.store import Store
from tests.storage.owner import FACTS_MAX, Owner, started


def keyed(channel: str, key: str) -> Submission:
    return Submission(channel, b"{}", key=f"joe {channel} {key}", publisher_key=key)


async def addressed(owner: Owner, key: str) -> LogId:
    message = shared_queue_store.Addressed("/c", b"{}", publisher_key=key)
    delivery = shared_queue_store.Delivery("client/joe", queue="client/joe")
    sent = await owner.do(
        shared_queue_store.send(owner.keys, owner.token, message, [delivery], FACTS_MAX, f"joe /c {key}")
    )
    return LogId(sent.id)


async def test_messages_with_a_key_are_found_on_all_channels_the_newest_first(store: Store) -> None:
    owner = await started(store)
    key = 'order/17 "late"'
    ids = (await owner.append([keyed("/a", key), Submission("/a", b"{}"), keyed("/b", key), keyed("/b", "18")])).ids
    last = await addressed(owner, key)
    found = await messages_with_key(store, key)
    assert [(each.id, each.channel) for each in found.messages] == [(last, "/c"), (ids[2], "/b"), (ids[0], "/a")]
    assert found.next == ""
    assert (await messages_with_key(store, "order/17")).messages == []
    assert (await messages_with_key(store, "/a")).messages == []


async def test_search_for_a_key_reads_a_bounded_number_and_continues(store: Store) -> None:
    owner = await started(store)
    ids = [(await owner.append([keyed(f"/a{number}", "x")])).ids[0] for number in range(5)]
    found, before = [], ""
    for _ in range(3):
        page = await messages_with_key(store, "x", before, count=2)
        found += [each.id for each in page.messages]
        before = page.next
    assert (found, before) == (ids[::-1], "")


async def test_search_for_a_key_stops_after_a_bounded_number_of_facts(store: Store) -> None:
    owner = await started(store)
    (log_id,) = (await owner.append([keyed("/a", "x")])).ids
    pipeline = store.reader.pipeline()
    for _ in range(message_facts._MOST_READ):
        pipeline.xadd(store.keys.facts, {"t": "closed-session", "d": '{"session":"client/joe/1"}'})
    await pipeline.execute()
    first = await messages_with_key(store, "x")
    assert (first.messages, bool(first.next)) == ([], True)
    assert [each.id for each in (await messages_with_key(store, "x", first.next)).messages] == [log_id]


@pytest.mark.parametrize(("number", "found"), [(2500, "7"), (message_facts._MOST_READ, "")])
async def test_the_id_before_a_redrive_is_found_among_many_facts_of_the_same_time(
    store: Store, number: int, found: str
) -> None:
    log_id = LogId(9_000_000)
    pipeline = store.reader.pipeline()
    for at in range(1, number + 1):
        pipeline.xadd(store.keys.facts, {"t": "closed-session", "d": '{"session":"client/joe/1"}'}, f"9000-{at}")
    redriven = f'{{"id":{log_id},"message":"7"}}'
    pipeline.xadd(store.keys.facts, {"t": "redriven", "d": redriven}, "9001-1")
    await pipeline.execute()
    assert await earlier_id(store, log_id) == found


async def test_search_of_queues_is_bounded_and_finds_each_message_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await started(store)
    both = ("group:/a x", "group:/a y")
    ids = (
        await owner.append([Submission("/a", b'{"data":"Soup %d"}' % number, groups=both) for number in range(3)])
    ).ids
    await owner.append([Submission("/a", b'{"data":"tea"}', groups=both)])
    found = await message_bodies.search_queues(store, "soup")
    assert ([each.id for each in found.messages], found.is_partial) == (ids[::-1], False)
    assert await message_bodies.search_queues(store, "b13:") == ([], False)  # what the packing adds is no text
    assert [each.id for each in (await message_bodies.search_queues(store, "soup", 2)).messages] == ids[:0:-1]
    monkeypatch.setattr(message_bodies, "_MOST_READ", 4)
    assert (await message_bodies.search_queues(store, "soup")).is_partial
