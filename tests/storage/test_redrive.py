"""redrive.lua: a dead letter is sent again."""

import asyncio
from typing import Any

import pytest

from crewel.delivery.records import Disposition, EndReason, Logged, LogId, PendingDeadLetter, SessionName
from crewel.errors import Fenced
from crewel.storage import dead_letter_store, log, shared_queue_store
from crewel.storage.dead_letter_records import StoredDeadLetter
from crewel.storage.dead_letter_store import Redriven, RedriveOutcome
from crewel.storage.store import Store
from tests.storage.conftest import settings_for
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import ANN, FACTS_MAX, JOE, Owner, change, owner_of, started
from tests.storage.reading import last_id, read_queue
from tests.store_process import StoreProcess

MOVED, GONE = RedriveOutcome.MOVED, RedriveOutcome.GONE
NOTHING = LogId(0)


async def redrive(owner: Owner, each: StoredDeadLetter, **options: Any) -> Redriven:
    return await owner.do(dead_letter_store.redrive(owner.keys, owner.token, each, FACTS_MAX, **options))


async def one_letter(owner: Owner, each: PendingDeadLetter | None = None) -> StoredDeadLetter:
    (dead_id,) = await owner.dead_letter(letter() if each is None else each)
    (found,) = await dead_letter_store.get(owner.store, [dead_id])
    return found


async def everything(owner: Owner) -> dict[bytes, bytes | None]:
    reader = owner.store.reader
    return {key: await reader.dump(key) async for key in reader.scan_iter(match=f"{owner.keys.base}*")}


async def test_redrive_puts_the_message_into_the_inbox_of_its_receiver(store: Store) -> None:
    owner = await owner_of(store, JOE)
    (newest,) = await owner.publish("/a")
    each = await one_letter(owner, letter(body=b'{"data":"again"}'))
    outcome, log_id, size = await redrive(owner, each)
    assert (outcome, size) == (MOVED, 16)
    assert log_id > newest
    assert await last_id(store) == log_id
    assert (await owner.record())[f"i:{log_id}"] == "0:16:/a:9"
    assert await log.fetch_inbox(store, JOE, [log_id]) == {
        log_id: Logged(log_id, "/a", b'{"data":"again"}', ANN, "", b'{"priority":9}', each.dead_id)
    }
    assert await all_letters(owner) == []
    assert await owner.log_ids() == [newest]
    await assert_indexes_agree(owner)


async def test_redrive_to_the_channel_puts_the_message_into_the_log(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    outcome, log_id, size = await redrive(owner, each, to_channel=True)
    assert (outcome, size) == (MOVED, 10)
    assert await log.read(store, LogId(0), 10) == [
        Logged(log_id, "/a", b'{"data":1}', ANN, "", b'{"priority":9}', each.dead_id)
    ]
    assert await last_id(store) == log_id
    assert await store.reader.exists(store.keys.inbox(JOE)) == 0
    assert await all_letters(owner) == []
    assert (await owner.facts("published"))[-1] == {"first": log_id, "channels": ["/a"]}
    await assert_indexes_agree(owner)


async def test_redrive_to_the_channel_puts_the_message_into_the_queues_of_groups(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    groups = ("group:/a x", "group:/** y")
    moved = await redrive(owner, each, to_channel=True, groups=groups)
    assert moved.outcome is MOVED
    logged = Logged(moved.id, "/a", b'{"data":1}', ANN, "", b'{"priority":9}', each.dead_id)
    assert await log.read(store, LogId(0), 10) == [logged]
    for queue in groups:
        assert await read_queue(store, queue, 9) == [(logged, 9, 0, 0, ())]
    assert (await owner.facts("published"))[-1] == {"first": moved.id, "channels": ["/a"]}
    assert await owner.facts("addressed") == [{"id": moved.id, "channel": "/a", "sessions": [], "queues": list(groups)}]


async def test_the_channel_needs_no_receiver(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    await owner.close()
    await owner.end()
    assert (await redrive(owner, each, to_channel=True)).outcome is MOVED


async def test_a_publisher_that_must_not_hear_it_does_not_hear_it_from_the_channel_either(store: Store) -> None:
    owner = await owner_of(store, JOE)
    (old,) = await owner.publish("/a", excluded=ANN)
    each = await one_letter(owner, PendingDeadLetter(JOE, old, "user.x", "why"))
    log_id = (await redrive(owner, each, to_channel=True)).id
    assert (await log.fetch(store, [log_id]))[log_id].excluded == ANN


async def test_redriven_message_that_dies_again_is_counted(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    for returns in (1, 2, 3):
        before, log_id = each.dead_id, (await redrive(owner, each)).id
        await owner.commit(log_id)
        each = await one_letter(owner, PendingDeadLetter(JOE, log_id, "user.again", "why", 1))
        assert (each.returns, each.redrive_of, each.is_persistent) == (returns, before, True)
        assert (each.id, each.received, each.body) == (str(log_id), f"{log_id}000", b'{"data":1}')
        await owner.commit(log_id, change(removed=[log_id]))
    log_id = (await redrive(owner, each, to_channel=True)).id
    (back,) = await log.read(store, LogId(0), 10)
    assert (back.id, back.redrive_of) == (log_id, each.dead_id)
    each = await one_letter(owner, PendingDeadLetter(JOE, log_id, "user.again", "why", 1))
    assert (each.returns, each.redrive_of) == (4, back.redrive_of)
    assert await dead_letter_store.returned(store) == 4


async def test_facts_tell_of_each(store: Store) -> None:
    owner = await owner_of(store, JOE)
    first, second = await one_letter(owner), await one_letter(owner, letter("user.y", channel="/b"))
    one, two = await redrive(owner, first), await redrive(owner, second, to_channel=True)
    assert await owner.facts("redriven") == [
        {
            "letter": first.dead_id,
            "message": "7-1-t",
            "id": one.id,
            "session": JOE,
            "code": "user.x",
            "returns": 1,
        },
        {
            "letter": second.dead_id,
            "message": "7-1-t",
            "id": two.id,
            "channel": "/b",
            "code": "user.y",
            "returns": 1,
        },
    ]


async def test_a_letter_is_moved_once(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    assert (await redrive(owner, each)).outcome is MOVED
    for to_channel in (False, True):
        before = await everything(owner)
        assert await redrive(owner, each, to_channel=to_channel) == (GONE, NOTHING, 0)
        assert await everything(owner) == before


@pytest.mark.parametrize("to_channel", [False, True])
async def test_a_step_that_is_repeated_answers_the_same(store: Store, to_channel: bool) -> None:
    owner = await owner_of(store, JOE)
    step = dead_letter_store.redrive(store.keys, owner.token, await one_letter(owner), FACTS_MAX, to_channel=to_channel)
    first = await owner.do(step)
    before = await everything(owner)
    assert await owner.do(step) == first
    assert await everything(owner) == before
    assert first.outcome is MOVED


async def test_memory_of_a_redrive_expires(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await redrive(owner, await one_letter(owner))
    (key,) = [key async for key in store.reader.scan_iter(match=f"{store.keys.base}k:redrive*", count=1000)]
    assert 100_000 < await store.reader.pttl(key) <= 120_000


async def test_a_receiver_that_another_server_owns_gets_it(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    heir = await started(store, "b")
    outcome, log_id, _ = await redrive(heir, each)
    assert outcome is MOVED
    assert (await owner.record())["owner"] == "a"
    (told,) = await log.read(store, LogId(0), 10)  # where the other one learns of it
    (waiting,) = shared_queue_store.addressed(told).values()
    assert (told.id, told.body, told.redrive_of, waiting.size) == (log_id, each.body, each.dead_id, len(each.body))
    assert list(shared_queue_store.addressed(told)) == [JOE]
    records = await heir.adopt_all()
    assert list(records[JOE].inbox) == [log_id]


async def test_without_a_receiver_it_stays(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    await owner.close()
    refused = (RedriveOutcome.NO_RECEIVER, NOTHING, 0)
    before = await everything(owner)
    assert await redrive(owner, each) == refused
    assert await everything(owner) == before
    await owner.end()
    assert await redrive(owner, each) == refused
    assert await all_letters(owner) == [each]
    await owner.login(JOE)
    assert (await redrive(owner, each)).outcome is MOVED


async def test_a_session_that_ends_before_it_hears_of_it_leaves_a_letter(store: Store) -> None:
    owner = await owner_of(store, JOE)
    known = (await redrive(owner, await one_letter(owner))).id
    lapsed = (await redrive(owner, await one_letter(owner))).id
    each = await one_letter(owner, letter(body=b'{"data":"again"}'))
    unknown = (await redrive(owner, each)).id
    await owner.close()
    ended = [Disposition(JOE, EndReason.DEAD, (known,)), Disposition(JOE, EndReason.LAPSED, (lapsed,))]
    found = await dead_letter_store.get(
        store, (await owner.end(ended, [PendingDeadLetter(JOE, known, "user.x", "why")])).letters
    )
    assert [(left.id, left.code) for left in found] == [
        (str(known), "user.x"),
        (str(unknown), "communication.noConnection.dead"),
    ]
    assert (found[1].body, found[1].redrive_of, found[1].returns) == (b'{"data":"again"}', each.dead_id, 1)
    assert (await owner.facts("ended"))[-1]["ended"] == [
        {"session": JOE, "reason": "dead", "code": "user.x", "ids": [known]},
        {"session": JOE, "reason": "lapsed", "ids": [lapsed]},
        {"session": JOE, "reason": "dead", "code": "communication.noConnection.dead", "ids": [unknown]},
    ]
    await assert_indexes_agree(owner)


async def test_a_receiver_that_has_enough_waiting_gets_no_more(store: Store) -> None:
    owner = await owner_of(store, JOE)
    ids = await owner.publish("/a", "/a")
    await owner.commit(ids[-1], change(opened=ids), low=0)
    await owner.spill(ids[0])
    each = await one_letter(owner)
    for bounds in ({"max_entries": 2}, {"max_bytes": 29}, {"max_entries": 2, "max_bytes": 30}):
        before = await everything(owner)
        assert await redrive(owner, each, **bounds) == (RedriveOutcome.FULL, NOTHING, 0)
        assert await everything(owner) == before
    assert (await redrive(owner, each, max_entries=3, max_bytes=30)).outcome is MOVED
    each = await one_letter(owner)
    assert (await redrive(owner, each, max_entries=3)).outcome is RedriveOutcome.FULL
    assert (await redrive(owner, each)).outcome is MOVED


async def test_redrive_counts_the_backlog_once_for_many_dead_letters(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.commit(1000, change(opened=range(1, 501)))
    await owner.dead_letter(*(letter() for _ in range(100)))
    await store.reader.config_resetstat()
    outcomes = [(await redrive(owner, each, max_entries=590)).outcome for each in (await all_letters(owner))[:90]]
    counted: Any = await store.reader.info("commandstats")
    assert set(outcomes) == {MOVED}
    assert counted["cmdstat_hgetall"]["calls"] < 30
    (last, *_) = await all_letters(owner)
    assert (await redrive(owner, last, max_entries=590)).outcome is RedriveOutcome.FULL


async def test_room_that_is_made_is_seen_at_once(store: Store) -> None:
    owner = await owner_of(store, JOE)
    first, second = await one_letter(owner), await one_letter(owner)
    log_id = (await redrive(owner, first, max_entries=1, max_bytes=10)).id
    assert (await redrive(owner, second, max_entries=1, max_bytes=10)).outcome is RedriveOutcome.FULL
    await owner.commit(log_id, change(removed=[log_id]))
    assert (await redrive(owner, second, max_entries=1, max_bytes=10)).outcome is MOVED


async def test_a_letter_of_which_nothing_is_left_stays(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner, PendingDeadLetter(JOE, LogId(77), "user.x", "why"))
    for to_channel in (False, True):
        assert (await redrive(owner, each, to_channel=to_channel)).outcome is RedriveOutcome.EMPTY
    assert await all_letters(owner) == [each]


async def test_a_superseded_server_moves_nothing(store: Store) -> None:
    owner = await owner_of(store, JOE)
    each = await one_letter(owner)
    await (await started(store, "b")).adopt_all()
    before = await everything(owner)
    with pytest.raises(Fenced):
        await redrive(owner, each)
    assert await everything(owner) == before


async def test_ids_rise_also_when_the_clock_does_not(store: Store) -> None:
    owner = await owner_of(store, JOE)
    far = 9_007_199_254_740_000  # of the year 2255
    await store.reader.set(store.keys.last, far)
    ids = [(await redrive(owner, await one_letter(owner))).id for _ in range(3)]
    assert ids == [far + 1, far + 2, far + 3]
    assert await owner.publish("/a") == [far + 4]
    assert await store.reader.get(store.keys.last) == b"%d" % (far + 4)


async def test_two_stores_at_once_move_each_letter_once(server: StoreProcess, store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.dead_letter(*(letter(message_id=str(number)) for number in range(60)))
    every = await all_letters(owner)
    async with asyncio.timeout(30):
        other_store = Store(settings_for(f"storage.url={server.url}", f"storage.prefix={store.keys.base[:-9]}"))
        assert other_store.keys.base == store.keys.base
        await other_store.open()
        try:
            other = await started(other_store, "b")
            answers = await asyncio.gather(
                *(redrive(one, each, to_channel=one is other) for each in every for one in (owner, other))
            )
        finally:
            await other_store.close()
    moved = [answer for answer in answers if answer.outcome is MOVED]
    assert len(moved) == len({answer.id for answer in moved}) == len(every)
    assert {answer.outcome for answer in answers} == {MOVED, GONE}
    places = [int(field[2:]) for field in await owner.record() if field.startswith("i:")] + await owner.log_ids()
    assert sorted(places) == sorted(answer.id for answer in moved)
    assert await all_letters(owner) == []
    await assert_indexes_agree(owner)


async def test_a_name_with_quotes_stays_whole_in_the_facts(store: Store) -> None:
    owner = await started(store)
    name = SessionName('client/j"o\\e/1')
    await owner.login(name)
    each = await one_letter(owner, letter('user."x"', name))
    assert (await redrive(owner, each)).outcome is MOVED
    (fact,) = await owner.facts("redriven")
    assert (fact["session"], fact["code"]) == (name, 'user."x"')
