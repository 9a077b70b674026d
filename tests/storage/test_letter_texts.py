"""The texts of dead letters: one copy, however many letters have it, and none without a letter; and the bounds in bytes."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.delivery.records import LogId, PendingDeadLetter, SessionName, Submission
from crewel.storage import dead_letter_store, facts, log, shared_queue_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.dead_letter_store import RedriveOutcome
from crewel.storage.occupancy import occupied
from crewel.storage.store import Store
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import FACTS_MAX, JOE, LETTERS_MAX, Owner, started

BODY = b'{"channel":"/a","data":"%s"}' % (b"x" * 1000)
NAMES = [SessionName(f"client/joe/{number}") for number in range(1, 6)]


async def owner_of(store: Store, *names: str) -> Owner:
    owner = await started(store)
    for name in names:
        await owner.login(name)
        await owner.subscribe("/a", name=name)
    return owner


async def texts(owner: Owner) -> list[bytes]:
    found: Any = await owner.store.reader.hvals(owner.keys.letter_texts)
    return list(found)


async def published(owner: Owner, body: bytes, qos: bytes = b"") -> LogId:
    (log_id,) = (await owner.append([Submission("/a", body, qos=qos)])).ids
    return log_id


async def test_letters_of_one_message_share_its_body(store: Store) -> None:
    owner = await owner_of(store, *NAMES)
    log_id = await published(owner, BODY)
    await owner.commit(log_id, letters=[PendingDeadLetter(name, log_id, "user.x", "why") for name in NAMES])
    assert await texts(owner) == [BODY]
    assert [(each.receiver, each.body) for each in await all_letters(owner)] == [(name, BODY) for name in NAMES]
    page = await dead_letter_store.page(store, DeadLetterFilter(receiver=NAMES[2]))
    assert [each.body for each in page.letters] == [BODY]
    await assert_indexes_agree(owner)


async def test_a_commit_says_the_body_of_a_transient_message_once(store: Store) -> None:
    owner = await owner_of(store, *NAMES)
    owner.number += 1
    commit = owner.next_commit(0, letters=[letter(receiver=name, body=BODY) for name in NAMES])
    (step,) = log.commit(store.keys, owner.token, commit, FACTS_MAX, LETTERS_MAX)
    assert step.arguments.count(BODY) == 1
    await owner.do(step)
    assert [(each.receiver, each.body) for each in await all_letters(owner)] == [(name, BODY) for name in NAMES]
    assert await texts(owner) == [BODY]


async def test_a_long_qos_is_shared_too(store: Store) -> None:
    owner = await owner_of(store, *NAMES)
    qos = b'{"clientProperties":{"p":"%s"}}' % (b"y" * 500)
    log_id = await published(owner, b"{}", qos)
    await owner.commit(log_id, letters=[PendingDeadLetter(name, log_id, "user.x", "why") for name in NAMES])
    assert await texts(owner) == [qos]
    assert {each.qos for each in await all_letters(owner)} == {qos}


@pytest.mark.parametrize("way", ["discard", "redrive", "redrive to the channel", "bound"])
async def test_a_text_goes_with_its_last_letter(store: Store, way: str) -> None:
    owner = await owner_of(store, JOE)
    await owner.dead_letter(letter(body=BODY), letter(body=BODY))
    for left in (1, 0):
        first = (await all_letters(owner))[0]
        if way == "discard":
            await owner.do(dead_letter_store.discard(owner.keys, owner.token, [first.dead_id], FACTS_MAX))
        elif way == "bound":
            await owner.dead_letter(letter(body=b"{}"), letters_max=2)
        else:
            step = dead_letter_store.redrive(owner.keys, owner.token, first, FACTS_MAX, to_channel=way != "redrive")
            moved = await owner.do(step)
            assert moved.outcome is RedriveOutcome.MOVED
            assert moved.size == len(BODY)
        assert await texts(owner) == [BODY] * left
        await assert_indexes_agree(owner)


async def test_a_redriven_letter_has_its_body_again(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.dead_letter(letter(body=BODY))
    (found,) = await all_letters(owner)
    moved = await owner.do(dead_letter_store.redrive(owner.keys, owner.token, found, FACTS_MAX))
    packed: Any = await store.reader.hget(owner.keys.inbox(JOE), str(moved.id))
    assert BODY in packed


async def test_letters_that_an_older_server_wrote_are_read_and_leave(store: Store) -> None:
    owner = await owner_of(store, JOE)
    old = {"id": "1", "received": "1", "receiver": JOE, "code": "user.x", "reason": "why", "attempts": "1"}
    fields: Any = {**old, "channel": "/a", "body": BODY, "sender": "", "qos": ""}
    dead_id: Any = await store.reader.xadd(owner.keys.dead, fields)
    await owner.dead_letter(letter(body=BODY))
    assert [each.body for each in await all_letters(owner)] == [BODY, BODY]
    before = await store.reader.get(owner.keys.letter_bytes)
    assert await owner.do(dead_letter_store.discard(owner.keys, owner.token, [dead_id.decode()], FACTS_MAX)) == 1
    assert await store.reader.get(owner.keys.letter_bytes) == before
    await assert_indexes_agree(owner)


async def test_a_queue_that_is_buried_shares_the_bodies(store: Store) -> None:
    owner = await owner_of(store)
    to_joe = shared_queue_store.Delivery("client/joe", queue="client/joe")
    for _ in range(3):
        message = shared_queue_store.Addressed("/a", BODY)
        await owner.do(shared_queue_store.send(owner.keys, owner.token, message, [to_joe], FACTS_MAX))
    step = shared_queue_store.dead_letter(
        owner.keys, owner.token, "client/joe", None, FACTS_MAX, LETTERS_MAX, code="user.x", reason="why"
    )
    assert (await owner.do(step)).count == 3
    assert await texts(owner) == [BODY]


async def test_the_oldest_letters_give_way_beyond_the_bound_in_bytes(store: Store) -> None:
    owner = await owner_of(store, JOE)
    for number in range(20):
        body = b'{"channel":"/a","data":"%d %s"}' % (number, b"x" * 1000)
        await owner.dead_letter(letter(body=body), letters_max_bytes=10_000)
    kept = await all_letters(owner)
    assert 4 <= len(kept) <= 9
    assert kept[-1].body.startswith(b'{"channel":"/a","data":"19 ')
    assert await dead_letter_store.dropped(store) == 20 - len(kept)
    assert int(await store.reader.get(owner.keys.letter_bytes) or 0) <= 10_000
    await assert_indexes_agree(owner)


async def test_a_shared_body_counts_once_against_the_bound(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.dead_letter(*(letter(body=b"{%s}" % (b" " * 100_000)) for _ in range(100)), letters_max_bytes=200_000)
    assert len(await all_letters(owner)) == 100


async def test_the_oldest_facts_give_way_beyond_the_bound_in_bytes(store: Store) -> None:
    owner = await owner_of(store)
    for number in range(2000):
        await store.reader.xadd(owner.keys.facts, {"t": "ended", "d": b"x" * 1000 + b"%d" % number})
    before = (await occupied(store)).facts
    assert await owner.do(facts.trim(owner.keys, 1_000_000)) > 900
    assert (await occupied(store)).facts < 1_000_000 < before
    assert await owner.do(facts.trim(owner.keys, 1_000_000)) == 0
    newest: Any = await store.reader.xrevrange(owner.keys.facts, count=1)
    assert newest[0][1][b"d"].endswith(b"1999")
