"""What becomes of messages of shared queues when their receivers settle them or end: commit.lua and end.lua."""

import pytest

from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter, SessionName
from crewel.storage import shared_queue_store
from crewel.storage.session_store import SessionEnd
from crewel.storage.shared_queue_store import Addressed, Delivery, Member
from crewel.storage.store import Store
from tests.storage.owner import ANN, FACTS_MAX, JOE, Owner, change, owner_of, started
from tests.storage.reading import read_queue

JOE_2 = SessionName("client/joe/2")
SUBJECT = "client/joe"
ONE = "one:client/joe"


async def send(owner: Owner, *names: str, source: str = SUBJECT) -> LogId:
    """Send to these sessions of the subject; returns the id."""
    deliveries = [Delivery(SUBJECT, name, source=source) for name in names]
    step = shared_queue_store.send(owner.keys, owner.token, Addressed("/a", b"{}"), deliveries, FACTS_MAX)
    return (await owner.do(step)).id  # type: ignore[no-any-return]


async def receivers(owner: Owner, log_id: LogId) -> set[str]:
    found = await owner.store.reader.smembers(owner.keys.receivers(log_id, SUBJECT))
    return {name.decode() for name in found}


async def waiting(owner: Owner, queue: str = SUBJECT) -> list[LogId]:
    return [each.id for each in await shared_queue_store.peek(owner.store, queue, 100)]


def settled(name: SessionName, *ids: LogId, reason: EndReason = EndReason.SETTLED) -> list[Disposition]:
    return [Disposition(name, reason, ids)]


async def ended(owner: Owner) -> set[tuple[str, str, int]]:
    """Each end that the facts tell: whose, how, of what."""
    return {
        (each["session"], each["reason"], log_id)
        for fact in await owner.facts("ended")
        for each in fact["ended"]
        for log_id in each["ids"]
    }


# Commits


async def test_settled_by_one_it_is_settled_for_the_subject(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    await owner.commit(log_id, change(removed=[log_id]), ended=settled(JOE, log_id))
    assert await receivers(owner, log_id) == set()
    left = await owner.end(
        letters=[PendingDeadLetter(JOE_2, log_id, "user.x", "why")], name=JOE_2, returning={log_id: 1}
    )
    assert left == SessionEnd([], [log_id], [])
    assert await waiting(owner) == []
    assert await ended(owner) == {(JOE, "settled", log_id), (JOE_2, "returned", log_id)}
    assert await owner.facts("returned") == []


async def test_the_facts_are_the_same_in_both_orders(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    left = await owner.end(
        letters=[PendingDeadLetter(JOE_2, log_id, "user.x", "why")], name=JOE_2, returning={log_id: 1}
    )
    await owner.commit(log_id, change(removed=[log_id]), ended=settled(JOE, log_id))
    assert left == SessionEnd([], [log_id], [])
    assert await waiting(owner) == []
    assert await receivers(owner, log_id) == set()
    assert await ended(owner) == {(JOE, "settled", log_id), (JOE_2, "returned", log_id)}
    assert await owner.facts("returned") == []


async def test_dead_for_one_it_is_still_open_for_the_others(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    dead = PendingDeadLetter(JOE, log_id, "user.update.deadMessage", "why")
    ends = settled(JOE, log_id, reason=EndReason.DEAD)
    await owner.commit(log_id, change(removed=[log_id]), ended=ends, letters=[dead])
    assert await receivers(owner, log_id) == {JOE_2, f"!{JOE}"}
    assert (await owner.end(name=JOE_2, returning={log_id: 1})).returned == [log_id]
    assert await waiting(owner) == [log_id]
    assert await receivers(owner, log_id) == set()


async def test_for_whom_it_has_died_it_does_not_come_again(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    dead = PendingDeadLetter(JOE, log_id, "user.update.error", "why")
    ends = settled(JOE, log_id, reason=EndReason.DEAD)
    await owner.commit(log_id, change(removed=[log_id]), ended=ends, letters=[dead])
    await owner.end(name=JOE_2, returning={log_id: 1})
    step = shared_queue_store.lease(owner.keys, owner.token, SUBJECT, [Member(JOE, 9)], FACTS_MAX)
    assert await owner.do(step) == shared_queue_store.Lease([], 1, 0)
    await owner.login(JOE_2)
    members = [Member(JOE, 9), Member(JOE_2, 1)]
    found = await owner.do(shared_queue_store.lease(owner.keys, owner.token, SUBJECT, members, FACTS_MAX))
    assert [(each.receiver, each.failed) for each in found.leased] == [(JOE_2, (JOE,))]
    await owner.end(name=JOE_2, returning={log_id: 2})
    (again,) = await read_queue(store, SUBJECT, 1)
    assert again.failed == (JOE,)


async def test_dead_for_all_nothing_is_left_of_it(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    for name in (JOE, JOE_2):
        ends = settled(name, log_id, reason=EndReason.DEAD)
        letters = [PendingDeadLetter(name, log_id, "user.x", "why")]
        await owner.commit(log_id, change(name, removed=[log_id]), ended=ends, letters=letters)
    assert await receivers(owner, log_id) == set()


async def test_a_commit_that_is_repeated_settles_nothing_again(store: Store) -> None:
    owner = await owner_of(store, JOE)
    log_id = await send(owner, JOE)
    owner.number = 1
    commit = owner.next_commit(log_id, change(removed=[log_id]), ended=settled(JOE, log_id))
    await owner.apply(commit)
    again = await send(owner, JOE)
    await owner.apply(commit)
    assert await receivers(owner, again) == {JOE}


async def test_end_removes_messages_addressed_to_one_session(store: Store) -> None:
    owner = await owner_of(store, JOE)
    log_id = await send(owner, JOE, source="")
    leased = await send(owner, JOE, source=ONE)
    assert await receivers(owner, log_id) == set()
    await owner.commit(leased, change(removed=[log_id, leased]), ended=settled(JOE, log_id, leased))
    assert await owner.record() == {"owner": "a", "r": "{}", "batch": "1000"}
    assert await store.reader.exists(store.keys.inbox(JOE)) == 0


# Ends


async def test_the_last_one_that_has_it_gives_it_back(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    first = await owner.end(
        settled(JOE, log_id, reason=EndReason.DEAD),
        [PendingDeadLetter(JOE, log_id, "user.x", "")],
        returning={log_id: 3},
    )
    assert first == SessionEnd([], [log_id], [])
    assert await waiting(owner) == []
    await owner.end(name=JOE_2, returning={log_id: 4})
    (found,) = await read_queue(store, SUBJECT, 1)
    assert (found.logged.id, found.attempts, found.failed, found.logged.to) == (log_id, 4, (), SUBJECT)
    assert await owner.letters() == []
    assert await ended(owner) == {(JOE, "returned", log_id), (JOE_2, "returned", log_id)}
    assert await owner.facts("returned") == [{"queue": SUBJECT, "ids": [log_id]}]


async def test_end_requeues_messages_leased_from_the_subject(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    to_queue = Delivery(SUBJECT, queue=SUBJECT)
    step = shared_queue_store.send(owner.keys, owner.token, Addressed("/a", b"{}", priority=9), [to_queue], FACTS_MAX)
    log_id = (await owner.do(step)).id
    await owner.do(shared_queue_store.lease(owner.keys, owner.token, SUBJECT, [Member(JOE, 1)], FACTS_MAX))
    assert await receivers(owner, log_id) == {JOE}
    assert (await owner.end(returning={log_id: 1})).returned == [log_id]
    assert await waiting(owner) == [log_id]
    assert await receivers(owner, log_id) == set()


async def test_end_requeues_a_message_that_only_this_session_had(store: Store) -> None:
    owner = await owner_of(store, JOE)
    log_id = await send(owner, JOE, source=ONE)
    assert (await owner.end(returning={log_id: 1})).returned == [log_id]
    assert await waiting(owner, ONE) == [log_id]


async def test_settling_with_the_end_settles_for_the_subject(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    await owner.end(settled(JOE, log_id))
    assert await receivers(owner, log_id) == set()
    assert (await owner.end(name=JOE_2, returning={log_id: 1})).returned == [log_id]
    assert await ended(owner) == {(JOE, "settled", log_id), (JOE_2, "returned", log_id)}


async def test_dead_message_of_the_end_stays_open_for_other_sessions(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    log_id = await send(owner, JOE, JOE_2)
    await owner.end(settled(JOE, log_id, reason=EndReason.DEAD), [PendingDeadLetter(JOE, log_id, "user.x", "why")])
    assert await receivers(owner, log_id) == {JOE_2, f"!{JOE}"}


async def test_end_requeues_messages_unknown_to_the_owner(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    ours = await send(owner, JOE, JOE_2)
    own = await send(owner, JOE)
    one = await send(owner, JOE, source=ONE)
    plain = await send(owner, JOE, source="")
    left = await owner.end()
    assert sorted(left.returned) == [ours, own, one]
    assert len(left.letters) == 1
    assert [letter["id"] for letter in await owner.letters()] == [str(plain)]
    assert (await waiting(owner), await waiting(owner, ONE)) == ([own], [one])
    assert await ended(owner) == {
        *((JOE, "returned", each) for each in (ours, own, one)),
        (JOE, "dead", plain),
    }


async def test_letters_come_in_their_order_less_what_went_back(store: Store) -> None:
    owner = await owner_of(store, JOE)
    ids = [await send(owner, JOE, source=source) for source in ("", SUBJECT, "", SUBJECT)]
    letters = [PendingDeadLetter(JOE, each, "user.x", f"letter {number}") for number, each in enumerate(ids)]
    plain = [Disposition(JOE, EndReason.DEAD, (ids[0], ids[2]))]
    left = await owner.end(plain, letters, returning={ids[1]: 1, ids[3]: 1})
    assert left.returned == [ids[1], ids[3]]
    assert [each["reason"] for each in await owner.letters()] == ["letter 0", "letter 2"]
    assert len(left.letters) == 2


async def test_a_repeated_end_gives_nothing_back_again(store: Store) -> None:
    owner = await owner_of(store, JOE)
    log_id = await send(owner, JOE)
    await owner.end(returning={log_id: 1})
    assert await owner.end(returning={log_id: 1}) == SessionEnd([], [], [])
    assert len(await owner.facts("returned")) == 1


@pytest.mark.parametrize("source", [SUBJECT, ONE])
async def test_adopted_session_knows_the_source_queue_of_its_messages(store: Store, source: str) -> None:
    owner = await owner_of(store, JOE, ANN)
    log_id = await send(owner, JOE, source=source)
    heir = await started(store, "b")
    record = (await heir.adopt_all())[JOE]
    assert record.inbox[log_id].source == source
    assert (await heir.end(returning={log_id: 1})).returned == [log_id]
    assert await waiting(heir, source) == [log_id]
