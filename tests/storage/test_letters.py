"""Dead letters as commit.lua and end.lua store them: their fields, their indexes, their bound."""

from dataclasses import replace

import pytest

from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from crewel.storage.store import Store
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import ANN, JOE, LETTERS_MAX, Owner, change, started


async def owner_of_both(store: Store) -> Owner:
    owner = await started(store)
    for name in (JOE, ANN):
        await owner.login(name)
    return owner


async def test_a_commit_tells_where_its_letters_are(store: Store) -> None:
    owner = await owner_of_both(store)
    found = await owner.dead_letter(letter("user.b", ANN, message_id="1"), letter("user.a", JOE, message_id="2"))
    assert [each.id for each in await dead_letter_store.get(store, found)] == ["1", "2"]
    assert [each.dead_id for each in await all_letters(owner)] == found
    await assert_indexes_agree(owner)


async def test_a_repeated_commit_tells_of_no_letters(store: Store) -> None:
    owner = await owner_of_both(store)
    owner.number = 1
    (step,) = owner.steps(owner.next_commit(1, letters=[letter()]))
    assert len((await owner.do(step)).letters) == 1
    assert (await owner.do(step)).letters == []
    assert len(await all_letters(owner)) == 1


async def test_letters_of_a_session_that_another_server_owns_are_not_told(store: Store) -> None:
    owner, other = await owner_of_both(store), await started(store, "b")
    await other.login("client/bob/1")
    found = await owner.dead_letter(letter(receiver="client/bob/1"), letter(receiver=JOE))
    assert [each.receiver for each in await dead_letter_store.get(store, found)] == [JOE]
    assert len(found) == 1


async def test_the_end_of_a_session_tells_where_its_letters_are(store: Store) -> None:
    owner = await owner_of_both(store)
    (log_id,) = await owner.publish("/a")
    await owner.commit(log_id, change(opened=[log_id]), low=0)
    await owner.close()
    told = (
        [Disposition(JOE, EndReason.DEAD, (log_id,))],
        [PendingDeadLetter(JOE, log_id, "user.x", "why"), letter(message_id="5")],
    )
    found = (await owner.end(*told)).letters
    assert [each.id for each in await dead_letter_store.get(store, found)] == [str(log_id), "5"]
    assert (await owner.end(*told)).letters == []
    await assert_indexes_agree(owner)


async def test_a_stored_message_is_told_from_one_that_never_was(store: Store) -> None:
    owner = await owner_of_both(store)
    (log_id,) = await owner.publish("/a", sender=ANN, qos=b'{"priority":1}')
    await owner.commit(log_id, change(opened=[log_id]), low=0)
    stored, live = await owner.dead_letter(
        PendingDeadLetter(JOE, log_id, "user.x", "it said so", 3), letter(body=b'{"data":2}')
    )
    assert await dead_letter_store.get(store, [stored, live]) == [
        StoredDeadLetter(
            dead_id=stored,
            id=str(log_id),
            received=f"{log_id}000",
            receiver=JOE,
            channel="/a",
            code="user.x",
            reason="it said so",
            attempts=3,
            returns=0,
            sender=ANN,
            qos=b'{"priority":1}',
            body=b'{"channel":"/a"}',
            is_persistent=True,
            redrive_of="",
        ),
        StoredDeadLetter(
            dead_id=live,
            id="7-1-t",
            received="1795000000123",
            receiver=JOE,
            channel="/a",
            code="user.x",
            reason="why",
            attempts=2,
            returns=0,
            sender=ANN,
            qos=b'{"priority":9}',
            body=b'{"data":2}',
            is_persistent=False,
            redrive_of="",
        ),
    ]


async def test_an_empty_letter_is_in_no_index_of_channels(store: Store) -> None:
    owner = await owner_of_both(store)
    await owner.dead_letter(PendingDeadLetter(JOE, LogId(77), "user.x", "why"))
    (found,) = await all_letters(owner)
    assert (found.channel, found.body, found.code) == ("", b"", "user.x")
    await assert_indexes_agree(owner)


async def test_get_leaves_out_missing_dead_letters(store: Store) -> None:
    owner = await owner_of_both(store)
    first, second = await owner.dead_letter(letter(), letter())
    found = await dead_letter_store.get(store, [second, "1-1", "no id", "9" * 40 + "-0", first])
    assert [each.dead_id for each in found] == [second, first]
    assert await dead_letter_store.get(store, []) == []


async def test_the_newest_letter(store: Store) -> None:
    owner = await owner_of_both(store)
    assert await dead_letter_store.newest(store) == ""
    *_, last = await owner.dead_letter(letter(), letter())
    assert await dead_letter_store.newest(store) == last


# The bound


async def test_the_oldest_letters_leave_their_indexes_and_are_counted(store: Store) -> None:
    owner = await owner_of_both(store)
    assert await dead_letter_store.dropped(store) == 0
    places = await owner.dead_letter(*(letter(f"user.c{number}") for number in range(5)), letters_max=3)
    assert [each.dead_id for each in await all_letters(owner)] == places[2:]
    assert await dead_letter_store.dropped(store) == 2
    await assert_indexes_agree(owner)
    places += await owner.dead_letter(letter("user.new"), letters_max=3)
    assert [each.dead_id for each in await all_letters(owner)] == places[3:]
    assert await dead_letter_store.dropped(store) == 3
    await assert_indexes_agree(owner)


async def test_the_end_of_a_session_keeps_the_bound(store: Store) -> None:
    owner = await owner_of_both(store)
    await owner.dead_letter(*(letter() for _ in range(LETTERS_MAX)))
    await owner.close()
    await owner.end([], [letter("user.last") for _ in range(3)])
    assert await dead_letter_store.count(store, DeadLetterFilter()) == LETTERS_MAX
    assert await dead_letter_store.count(store, DeadLetterFilter(code="user.last")) == 3
    assert await dead_letter_store.dropped(store) == 3


async def test_a_bound_that_was_lowered_is_reached_in_steps(store: Store) -> None:
    owner = await owner_of_both(store)
    await owner.dead_letter(*(letter() for _ in range(2500)), letters_max=5000)
    left = []
    for _ in range(3):
        await owner.dead_letter(letter(), letters_max=10)
        left.append(await dead_letter_store.count(store, DeadLetterFilter()))
    assert left == [1500, 500, 10]
    assert await dead_letter_store.dropped(store) == 2493
    await assert_indexes_agree(owner)


async def test_a_bound_of_nothing_keeps_nothing(store: Store) -> None:
    owner = await owner_of_both(store)
    await owner.dead_letter(letter(), letter(), letters_max=0)
    assert await all_letters(owner) == []
    assert await dead_letter_store.dropped(store) == 2
    await assert_indexes_agree(owner)


async def test_a_commit_without_letters_does_not_look_at_the_bound(store: Store) -> None:
    owner = await owner_of_both(store)
    await owner.dead_letter(letter(), letter())
    await owner.dead_letter(letters_max=1)
    assert len(await all_letters(owner)) == 2


async def test_an_index_of_one_letter_is_small(store: Store) -> None:
    """The store sets 4 KiB aside for a new stream, and there may be as many channels as letters."""
    owner = await owner_of_both(store)
    await owner.dead_letter(letter(channel="/only/here"))
    size = await store.reader.memory_usage(store.keys.dead_letters_by("channel", "/only/here"))
    assert size is not None
    assert size < 1000


@pytest.mark.parametrize("count", [300])
async def test_an_index_of_many_letters_takes_few_bytes_for_each(store: Store, count: int) -> None:
    owner = await owner_of_both(store)
    await owner.dead_letter(*(letter() for _ in range(count)))
    size = await store.reader.memory_usage(store.keys.dead_letters_by("code", "user.x"), samples=0)
    assert size is not None
    assert size / count < 40


async def test_the_code_as_given_stays_with_a_stored_message_and_with_another(store: Store) -> None:
    owner = await owner_of_both(store)
    (log_id,) = await owner.publish("/a")
    await owner.commit(log_id, change(opened=[log_id]), low=0)
    made = [replace(each, given="resource.x") for each in (PendingDeadLetter(JOE, log_id, "user.x", ""), letter())]
    stored, live, plain = await owner.dead_letter(*made, letter())
    found = await dead_letter_store.get(store, [stored, live, plain])
    assert [each.given for each in found] == ["resource.x", "resource.x", ""]


async def test_the_code_as_given_stays_with_what_a_session_leaves(store: Store) -> None:
    owner = await owner_of_both(store)
    (log_id,) = await owner.publish("/a")
    await owner.commit(log_id, change(opened=[log_id]), low=0)
    await owner.close()
    made = PendingDeadLetter(JOE, log_id, "user.x", "", given="resource.x")
    ended = await owner.end([Disposition(JOE, EndReason.DEAD, (log_id,))], [made])
    assert [each.given for each in await dead_letter_store.get(store, ended.letters)] == ["resource.x"]
