"""Sending beside the log, and shared queues: send.lua, lease_queued.lua, requeue.lua, discard_waiting.lua, and what
publish.lua puts into the queues of groups."""

import re
import time
from collections.abc import Sequence
from typing import Any

import pytest

from crewel.delivery.records import EndReason, Logged, LogId, PendingMessage, SessionName, Submission
from crewel.errors import Fenced
from crewel.storage import dead_letter_store, log, session_store, shared_queue_store
from crewel.storage.dead_letter_store import RedriveOutcome
from crewel.storage.script_step import REMEMBERED_MS
from crewel.storage.shared_queue_store import (
    Addressed,
    Delivery,
    Discarded,
    Lease,
    Leased,
    Member,
    Requeued,
    SendOutcome,
    Sent,
)
from crewel.storage.store import Store
from tests.storage.dead_lettered import all_letters
from tests.storage.owner import ANN, FACTS_MAX, JOE, LETTERS_MAX, Owner, change, owner_of, started
from tests.storage.reading import last_id, queue_size, read_queue

JOE_2 = SessionName("client/joe/2")
SUBJECT = "client/joe"
GROUP = "group:/a/* workers"
OK, GONE, FULL = SendOutcome.OK, SendOutcome.GONE, SendOutcome.FULL
NOW = 1_800_000_000_000_000  # microseconds, as the clock of a server says
FAR = 9_000_000_000_000_000  # later than any test
TO_JOE = Delivery(SUBJECT, JOE, source=SUBJECT)
TO_SUBJECT = Delivery(SUBJECT, queue=SUBJECT)


async def send(owner: Owner, *deliveries: Delivery, key: str = "", **fields: Any) -> Sent:
    message = Addressed("/a/b", b"{}")._replace(**fields)
    return await owner.do(shared_queue_store.send(owner.keys, owner.token, message, deliveries, FACTS_MAX, key))  # type: ignore[no-any-return]


async def share(owner: Owner, count: int = 1, queue: str = GROUP, **fields: Any) -> list[LogId]:
    submissions = [Submission("/a/b", b"{}", groups=(queue,))._replace(**fields) for _ in range(count)]
    return (await owner.append(submissions)).ids


async def lease(owner: Owner, *members: tuple[str, int], queue: str = GROUP, now: int = 0) -> Lease:
    given = [Member(SessionName(name), room) for name, room in members]
    step = shared_queue_store.lease(owner.keys, owner.token, queue, given, FACTS_MAX, now)
    return await owner.do(step)  # type: ignore[no-any-return]


async def requeue(owner: Owner, name: str, *ids: LogId, attempts: int = 1, failed: bool = False) -> Requeued:
    step = shared_queue_store.requeue(
        owner.keys, owner.token, name, dict.fromkeys(ids, attempts), FACTS_MAX, failed=failed
    )
    return await owner.do(step)  # type: ignore[no-any-return]


async def waiting(owner: Owner, queue: str = GROUP) -> list[LogId]:
    return [each.id for each in await shared_queue_store.peek(owner.store, queue, 10_000)]


async def inbox(owner: Owner, name: str = JOE) -> dict[LogId, PendingMessage]:
    """What another server would find there."""
    record = (await started(owner.store, "heir")).token
    owner.token, before = record, owner.token
    found = (await owner.adopt_all())[name].inbox
    owner.token = before
    return found


async def texts(owner: Owner, name: str = JOE) -> dict[str, str]:
    return {field[2:]: text for field, text in (await owner.record(name)).items() if field.startswith("i:")}


def given(leased: Sequence[Leased]) -> list[tuple[str, LogId]]:
    return [(each.receiver, each.id) for each in leased]


# Sending


async def test_a_message_for_a_session_lies_in_its_inbox(store: Store) -> None:
    owner = await owner_of(store, JOE)
    (before,) = await owner.publish("/x")
    sent = await send(
        owner, Delivery(JOE, JOE), body=b'{"x":1}', sender=ANN, qos=b'{"priority":9}', priority=9, expires=FAR
    )
    assert (sent.prev, sent.is_repeated, sent.outcomes) == (before, False, [OK])
    assert sent.id > before
    assert await last_id(store) == sent.id
    assert await log.fetch_inbox(store, JOE, [sent.id]) == {
        sent.id: Logged(sent.id, "/a/b", b'{"x":1}', ANN, "", b'{"priority":9}', to=JOE)
    }
    assert await inbox(owner) == {sent.id: PendingMessage(0, 7, "/a/b", 9, FAR)}
    assert await owner.log_ids() == [before]


async def test_all_receivers_get_it_under_one_id(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    to_both = [Delivery(SUBJECT, name, source=SUBJECT) for name in (JOE, JOE_2)]
    sent = await send(owner, *to_both, Delivery("client/ann", queue="client/ann"), Delivery(JOE, JOE))
    assert sent.outcomes == [OK, OK, OK, OK]
    assert await texts(owner) == await texts(owner, JOE_2) == {str(sent.id): f"0:2:/a/b:5:0:{SUBJECT}"}
    assert await waiting(owner, "client/ann") == [sent.id]
    assert await store.reader.smembers(store.keys.receivers(sent.id, SUBJECT)) == {JOE.encode(), JOE_2.encode()}
    (fact,) = await owner.facts("addressed")
    assert fact == {"id": sent.id, "channel": "/a/b", "sessions": [JOE, JOE_2, JOE], "queues": ["client/ann"]}


async def test_send_to_more_receivers_than_lua_unpacks_answers_for_each(store: Store) -> None:
    """An error at the end of a script takes back nothing: the publisher would be refused what all receivers have."""
    owner = await owner_of(store)
    subjects = [f"client/j{number}" for number in range(8100)]
    deliveries = [Delivery(subject, queue=subject) for subject in subjects]
    sent = await send(owner, *deliveries, key="k")
    assert (sent.is_repeated, sent.outcomes) == (False, [OK] * len(subjects))
    again = await send(owner, *deliveries, key="k")
    assert (again.id, again.is_repeated, again.outcomes) == (sent.id, True, sent.outcomes)


async def test_send_skips_missing_and_full_receivers_only(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await owner.close(ANN)
    few, small = Delivery(JOE, JOE, max_entries=1), Delivery(JOE, JOE, max_bytes=3)
    queue = Delivery(SUBJECT, queue=SUBJECT, max_entries=1)
    first = await send(owner, Delivery(ANN, ANN), Delivery("client/eve/1", "client/eve/1"), few, queue)
    assert first.outcomes == [GONE, GONE, OK, OK]
    second = await send(owner, few, small, queue)
    assert second.outcomes == [FULL, FULL, FULL]
    assert list(await texts(owner)) == [str(first.id)]
    assert await waiting(owner, SUBJECT) == [first.id]
    assert len(await owner.facts("addressed")) == 1


async def test_without_deliveries_there_is_an_id(store: Store) -> None:
    owner = await owner_of(store)
    first = await send(owner)
    second = await send(owner)
    assert (first.prev, second.prev) == (0, first.id)
    assert second.outcomes == []
    assert second.id > first.id


async def test_a_repeat_answers_the_same_and_does_nothing(store: Store) -> None:
    owner = await owner_of(store, JOE)
    to = [TO_JOE, Delivery(ANN, ANN), TO_SUBJECT]
    first = await send(owner, *to, key="/a joe 7")
    await owner.publish("/x")
    assert await send(owner, *to, key="/a joe 7") == first._replace(is_repeated=True)
    assert await waiting(owner, SUBJECT) == [first.id]
    step = shared_queue_store.send(owner.keys, owner.token, Addressed("/a", b""), [TO_JOE], FACTS_MAX)
    once, again = await store.run([step, step])
    assert (again.id, again.is_repeated) == (once.id, True)
    assert (await send(owner, TO_JOE)).id != once.id


async def test_a_repeat_of_what_reached_none_is_sent(store: Store) -> None:
    owner = await owner_of(store, JOE)
    for deliveries, outcomes in (([], []), ([Delivery(ANN, ANN)], [GONE])):
        sent = await send(owner, *deliveries, key="k")
        assert (sent.outcomes, sent.reached) == (outcomes, frozenset())
    sent = await send(owner, TO_JOE, key="k")
    assert (sent.is_repeated, sent.outcomes, sent.reached) == (False, [OK], frozenset({SUBJECT}))
    assert (await send(owner, TO_JOE, key="k")).is_repeated


async def test_a_repeat_is_told_what_became_of_each_place(store: Store) -> None:
    owner = await owner_of(store, JOE)
    first = await send(owner, Delivery(ANN, ANN), TO_SUBJECT, key="k", publisher_key="k")
    again = await send(owner, TO_JOE, Delivery(SUBJECT, queue=SUBJECT), Delivery(ANN, ANN), key="k")
    assert (again.id, again.outcomes, again.reached) == (first.id, [SendOutcome.OTHER, OK, GONE], frozenset({SUBJECT}))
    assert await texts(owner) == {}


@pytest.mark.parametrize(
    ("deliveries", "beside"),
    [([Delivery(ANN, ANN), TO_JOE, TO_SUBJECT], []), ([TO_JOE], ["client/eve"]), ([], ["client/eve"])],
)
async def test_what_a_send_remembers_can_be_read_by_an_earlier_version(
    store: Store, deliveries: list[Delivery], beside: list[str]
) -> None:
    """As 1.0 matches it: the last id, the message's own, and the outcomes in their order."""
    owner = await owner_of(store, JOE)
    message = Addressed("/a", b"", publisher_key="k")
    step = shared_queue_store.send(store.keys, owner.token, message, deliveries, FACTS_MAX, "k", beside)
    (first,) = await store.run([step])
    remembered: Any = await store.reader.get(store.keys.once("send k"))
    assert re.fullmatch(rb"\d+ \d+( (ok|gone|full))*", remembered)
    assert remembered.decode().split() == [str(first.prev), str(first.id), *first.outcomes]
    for name in ("send k", "places send k"):
        assert 0 < await store.reader.pttl(store.keys.once(name)) <= REMEMBERED_MS


async def test_without_a_publishers_key_only_the_outcomes_are_remembered(store: Store) -> None:
    """What is repeated then is the step itself, with the same deliveries."""
    owner = await owner_of(store, JOE)
    await send(owner, TO_JOE, key="k")
    assert await store.reader.exists(store.keys.once("send k"))
    assert not await store.reader.exists(store.keys.once("places send k"))


async def test_what_goes_past_the_store_is_remembered(store: Store) -> None:
    owner = await owner_of(store, JOE)
    step = shared_queue_store.send(store.keys, owner.token, Addressed("/a", b""), [], FACTS_MAX, "k", ["client/eve"])
    once, again = await store.run([step, step])
    assert (once.is_repeated, again) == (False, once._replace(is_repeated=True))
    assert once.reached == {"client/eve"}


@pytest.mark.parametrize(
    ("outcomes", "found", "reached"), [("ok gone", [OK, GONE], {SUBJECT}), ("gone", [GONE], set()), ("", [], set())]
)
async def test_what_an_earlier_version_has_remembered_is_read(
    store: Store, outcomes: str, found: list[SendOutcome], reached: set[str]
) -> None:
    owner = await owner_of(store, JOE)
    await store.reader.set(store.keys.once("send k"), f"7 8 {outcomes}")
    sent = await send(owner, TO_JOE, Delivery(ANN, ANN), key="k")
    assert sent == Sent(LogId(7), LogId(8), True, found, frozenset(reached))


async def test_a_key_of_a_publish_is_another_one(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.append([Submission("/a", b"{}", key="x")])
    assert not (await send(owner, TO_JOE, key="x")).is_repeated
    assert (await owner.append([Submission("/a", b"{}", key="x")])).outcomes == [log.PublishOutcome.REPEATED]


# Queues


async def test_the_better_and_then_the_older_come_first(store: Store) -> None:
    owner = await owner_of(store, JOE)
    ids = [(await send(owner, TO_SUBJECT, priority=priority)).id for priority in (5, 0, 9, 5, 9, 0)]
    best_first = [ids[at] for at in (2, 4, 0, 3, 1, 5)]
    assert await waiting(owner, SUBJECT) == best_first
    found = await read_queue(store, SUBJECT, 2, start=1)
    assert [(each.logged.id, each.priority) for each in found] == [(ids[4], 9), (ids[0], 5)]
    assert given((await lease(owner, (JOE, 9), queue=SUBJECT)).leased) == [(JOE, each) for each in best_first]


async def test_queues_are_known_while_they_are_not_empty(store: Store) -> None:
    owner = await owner_of(store, JOE)
    before = time.time_ns() // 1000
    await send(owner, TO_SUBJECT)
    await send(owner, TO_SUBJECT)
    await share(owner)
    first, second = await shared_queue_store.queues(store)
    assert (first.name, first.size, second.name, second.size) == (SUBJECT, 2, GROUP, 1)
    assert before - 1000 <= first.touched <= second.touched <= time.time_ns() // 1000
    assert await queue_size(store, SUBJECT) == 2
    await lease(owner, (JOE, 9))
    assert [each.name for each in await shared_queue_store.queues(store)] == [SUBJECT]
    assert await store.reader.exists(store.keys.queue(GROUP), store.keys.queue_bodies(GROUP)) == 0


async def test_a_publish_puts_its_message_into_the_queues_of_groups(store: Store) -> None:
    owner = await owner_of(store)
    qos = b'{"priority":7,"lifeTime":9,"forceDestroy":true}'
    submission = Submission("/a/b", b'{"x":1}', ANN, "", "key", qos, expires=FAR, groups=(GROUP, "group:/** x"))
    (log_id,) = (await owner.append([submission, submission])).ids[:1]
    for queue in submission.groups:
        (found,) = await read_queue(store, queue, 9)
        assert found == (Logged(log_id, "/a/b", b'{"x":1}', ANN, "", qos), 7, 0, FAR, ())
    assert await owner.log_ids() == [log_id]
    assert await owner.facts("addressed") == [
        {"id": log_id, "channel": "/a/b", "sessions": [], "queues": list(submission.groups)}
    ]


async def test_groups_do_not_hear_what_says_the_same(store: Store) -> None:
    owner = await owner_of(store)
    first, _ = await share(owner, 2, history_max=1, forces_update=False)
    assert await waiting(owner) == [first]


# Leasing


async def test_a_leased_message_lies_in_the_inbox_and_knows_its_queue(store: Store) -> None:
    owner = await owner_of(store, JOE)
    qos = b'{"priority":7,"forceDestroy":true}'
    first, second = await share(owner, 2, sender=ANN, qos=qos, expires=FAR)
    found = await lease(owner, (JOE, 1))
    assert found == Lease([Leased(JOE, first, 2, "/a/b", 0, 7, FAR, ())], 1, 0)
    assert await waiting(owner) == [second]
    assert await log.fetch_inbox(store, JOE, [first]) == {first: Logged(first, "/a/b", b"{}", ANN, "", qos)}
    assert await inbox(owner) == {first: PendingMessage(0, 2, "/a/b", 7, FAR, GROUP)}
    assert await owner.facts("leased") == [{"queue": GROUP, "leases": [{"session": JOE, "ids": [first]}]}]
    assert await store.reader.exists(store.keys.receivers(first, GROUP)) == 0


async def test_each_goes_to_the_member_with_most_room(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    ids = await share(owner, 6)
    found = await lease(owner, (JOE, 1), (ANN, 3))
    assert given(found.leased) == [(ANN, ids[0]), (ANN, ids[1]), (JOE, ids[2]), (ANN, ids[3])]
    assert found.left == 2
    assert (await lease(owner, (JOE, 0), (ANN, 0))).leased == []
    assert (await lease(owner)).left == 2


async def test_strangers_and_those_who_are_ending_get_nothing(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    other = await started(store, "other")
    await other.login("client/eve/1")
    await owner.close(ANN)
    await share(owner, 3)
    found = await lease(owner, ("client/eve/1", 9), (ANN, 9), ("client/nobody/1", 9), (JOE, 1))
    assert [each.receiver for each in found.leased] == [JOE]


async def test_a_repeated_lease_answers_the_same(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await share(owner, 2)
    step = shared_queue_store.lease(owner.keys, owner.token, GROUP, [Member(JOE, 1)], FACTS_MAX)
    first, again = await store.run([step, step])
    assert first == again
    assert len(await waiting(owner)) == 1


async def test_many_are_leased_in_few_steps(store: Store) -> None:
    """The store does nothing else in the time of a step."""
    owner = await owner_of(store, JOE, ANN)
    ids: list[LogId] = []
    for _ in range(5):
        ids += await share(owner, 256)
    found = await lease(owner, (JOE, 600), (ANN, 601))
    assert [each.id for each in found.leased] == ids[:1000]
    assert found.left == 280
    found = await lease(owner, (JOE, 100), (ANN, 101))
    assert [each.id for each in found.leased] == ids[1000:1201]
    assert await waiting(owner) == ids[1201:]
    assert len(await texts(owner)) == 600


async def test_the_more_members_there_are_the_fewer_are_leased_in_one_step(store: Store) -> None:
    """For each message the store looks at each member."""
    names = [f"client/joe/{number}" for number in range(1, 501)]
    owner = await owner_of(store, *names)
    ids = await share(owner, 256)
    members = [(name, 9) for name in names]
    first = await lease(owner, *members)
    assert given(first.leased) == list(zip(names, ids, strict=False))[:200]
    rest = await lease(owner, *members)
    assert given(rest.leased) == list(zip(names, ids[200:], strict=False))


async def test_lease_leaves_out_expired_messages(store: Store) -> None:
    owner = await owner_of(store, JOE)
    old = (await send(owner, TO_SUBJECT, expires=1_000_000)).id
    new = (await send(owner, TO_SUBJECT, expires=FAR)).id
    found = await lease(owner, (JOE, 9), queue=SUBJECT, now=1_000_000)
    assert (given(found.leased), found.expired) == ([(JOE, new)], 1)
    assert await owner.facts("ended") == [{"ended": [{"session": SUBJECT, "reason": "expired", "ids": [old]}]}]
    assert await store.reader.exists(store.keys.expiry) == 0


async def test_lease_goes_by_the_clock_of_the_server(store: Store) -> None:
    """The store's clock may be set, and with it all would expire."""
    owner = await owner_of(store, JOE)
    sent = await send(owner, TO_SUBJECT, expires=1_000_000)
    found = await lease(owner, (JOE, 9), queue=SUBJECT, now=999_999)
    assert (given(found.leased), found.expired) == ([(JOE, sent.id)], 0)


# Putting back


async def test_requeued_message_keeps_its_place(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await owner.do(_join(owner, ANN))
    ids = await share(owner, 3, qos=b'{"forceDestroy":true}', expires=FAR)
    await lease(owner, (JOE, 2))
    assert await requeue(owner, JOE, *ids[:2], attempts=4) == Requeued(2)
    assert await waiting(owner) == ids
    assert await texts(owner) == {}
    assert await store.reader.exists(store.keys.inbox(JOE)) == 0
    assert await owner.facts("returned") == [{"queue": GROUP, "ids": ids[:2]}]
    assert await owner.facts("ended") == [{"ended": [{"session": JOE, "reason": "returned", "ids": ids[:2]}]}]
    again = await lease(owner, (JOE, 1))
    assert again.leased == [Leased(JOE, ids[0], 2, "/a/b", 4, 5, FAR, ())]


async def test_lease_avoids_sessions_that_failed_the_message(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2, ANN)
    await owner.do(_join(owner, ANN))
    (log_id,) = await share(owner)
    await lease(owner, (JOE, 1))
    await requeue(owner, JOE, log_id, failed=True)
    assert (await lease(owner, (JOE, 9), (JOE_2, 0))).leased == []
    assert given((await lease(owner, (JOE, 9), (JOE_2, 1))).leased) == [(JOE_2, log_id)]
    await requeue(owner, JOE_2, log_id, attempts=2, failed=True)
    (found,) = await read_queue(store, GROUP, 1)
    assert (found.attempts, found.failed) == (2, (JOE, JOE_2))
    (last,) = (await lease(owner, (JOE, 0), (JOE_2, 0))).leased
    assert (last.receiver, last.failed) == (JOE, (JOE, JOE_2))
    await requeue(owner, JOE, log_id, attempts=3, failed=True)
    assert (await lease(owner, (JOE, 9), (ANN, 1))).leased[0].failed == (JOE, JOE_2)


async def test_lease_passes_over_messages_that_no_free_member_may_have(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await owner.do(_join(owner, ANN))
    ids = await share(owner, 3)
    await lease(owner, (JOE, 1))
    await requeue(owner, JOE, ids[0], failed=True)
    found = await lease(owner, (JOE, 1), (ANN, 0))
    assert given(found.leased) == [(JOE, ids[1])]


async def test_lease_goes_on_behind_very_many_that_it_has_passed_over(store: Store) -> None:
    """A call takes a bounded time, and says where the next one begins."""
    owner = await owner_of(store, JOE, ANN)
    await owner.do(_join(owner, ANN))
    failed = [log_id for _ in range(4) for log_id in await share(owner, 250)]
    await lease(owner, (JOE, 1000), (ANN, 0))
    await requeue(owner, JOE, *failed, failed=True)
    fresh = await share(owner, 2)
    first = await lease(owner, (JOE, 1), (ANN, 0))
    assert (first.leased, first.left, first.after) == ([], 1002, f"4:{failed[-1]}")
    members = [Member(JOE, 9), Member(ANN, 0)]
    step = shared_queue_store.lease(owner.keys, owner.token, GROUP, members, FACTS_MAX, after=first.after)
    rest = await owner.do(step)
    assert (given(rest.leased), rest.after) == ([(JOE, fresh[0]), (JOE, fresh[1])], "")


async def test_lease_ends_only_so_many_expired_messages_in_one_step(store: Store) -> None:
    owner = await owner_of(store, JOE)
    for _ in range(4):
        await share(owner, 256, qos=b'{"forceDestroy":true}', expires=NOW)
    (last,) = await share(owner)
    first = await lease(owner, (JOE, 9), now=NOW)
    assert (first.leased, first.expired, first.left) == ([], 1000, 25)
    found = await lease(owner, (JOE, 9), now=NOW)
    assert (given(found.leased), found.expired, found.left) == ([(JOE, last)], 24, 0)


async def test_lease_waits_until_the_copy_of_another_group_is_settled(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    other = "group:/a/b others"
    (log_id,) = (await owner.append([Submission("/a/b", b"{}", groups=(GROUP, other))])).ids
    (subscribed,) = await owner.publish("/a/b", groups=(other,))
    await owner.commit(subscribed, change(opened=[subscribed]), low=0)
    assert given((await lease(owner, (JOE, 1))).leased) == [(JOE, log_id)]
    found = await lease(owner, (JOE, 9), (ANN, 1), queue=other)
    assert (given(found.leased), found.left) == ([(ANN, log_id)], 1)
    await owner.commit(subscribed, change(settled=[subscribed], removed=[log_id]))
    assert given((await lease(owner, (JOE, 9), queue=other)).leased) == [(JOE, subscribed)]


async def test_a_message_from_no_queue_stays(store: Store) -> None:
    owner = await owner_of(store, JOE)
    sent = await send(owner, Delivery(JOE, JOE))
    assert await requeue(owner, JOE, sent.id, LogId(7)) == Requeued(0)
    assert list(await texts(owner)) == [str(sent.id)]
    assert await owner.facts("ended") == []


async def test_a_repeated_put_back_answers_the_same(store: Store) -> None:
    owner = await owner_of(store, JOE)
    sent = await send(owner, TO_JOE)
    step = shared_queue_store.requeue(store.keys, owner.token, JOE, {sent.id: 1}, FACTS_MAX, failed=False)
    assert await store.run([step, step]) == [Requeued(1)] * 2
    assert len(await owner.facts("returned")) == 1


async def test_a_subjects_message_waits_again_when_the_last_one_gives_it_back(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    sent = await send(owner, TO_JOE, Delivery(SUBJECT, JOE_2, source=SUBJECT))
    assert await requeue(owner, JOE, sent.id) == Requeued(1)
    assert await waiting(owner, SUBJECT) == []
    assert await requeue(owner, JOE_2, sent.id) == Requeued(1)
    assert await waiting(owner, SUBJECT) == [sent.id]
    assert await store.reader.exists(store.keys.receivers(sent.id, SUBJECT)) == 0
    await lease(owner, (JOE, 9), queue=SUBJECT)
    assert await requeue(owner, JOE, sent.id) == Requeued(1)


async def test_message_requeued_to_a_group_without_members_stays(store: Store) -> None:
    owner = await owner_of(store, JOE)
    (log_id,) = await share(owner)
    await lease(owner, (JOE, 9))
    before = await texts(owner), await owner.record()
    for_one = await send(owner, TO_JOE)
    step = shared_queue_store.requeue(
        store.keys, owner.token, JOE, dict.fromkeys([log_id, for_one.id], 1), FACTS_MAX, failed=True
    )
    assert await store.run([step, step]) == [Requeued(1, (log_id,))] * 2
    assert await waiting(owner) == []
    assert (await texts(owner), await owner.record()) == before
    assert await owner.facts("ended") == [{"ended": [{"session": JOE, "reason": "returned", "ids": [for_one.id]}]}]


async def test_what_a_session_would_try_again_stays_where_all_others_have_failed_it(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await owner.do(shared_queue_store.keep(store.keys, owner.token, [GROUP], FACTS_MAX))
    (log_id,) = await share(owner)
    await lease(owner, (JOE, 9))
    step = shared_queue_store.requeue(
        owner.keys, owner.token, JOE, {log_id: 1}, FACTS_MAX, failed=True, tries_again=True
    )
    assert await store.run([step, step]) == [Requeued(0, (log_id,))] * 2
    await owner.do(_join(owner, ANN))
    again = shared_queue_store.requeue(
        owner.keys, owner.token, JOE, {log_id: 2}, FACTS_MAX, failed=True, tries_again=True
    )
    assert await owner.do(again) == Requeued(1)
    assert given((await lease(owner, (JOE, 9), (ANN, 1))).leased) == [(ANN, log_id)]
    last = shared_queue_store.requeue(
        owner.keys, owner.token, ANN, {log_id: 3}, FACTS_MAX, failed=True, tries_again=True
    )
    assert await owner.do(last) == Requeued(0, (log_id,))


# Discarding


@pytest.mark.parametrize("size", [2, 400_000])
async def test_the_channels_of_a_queue_are_read_in_portions(store: Store, size: int) -> None:
    owner = await owner_of(store, JOE)
    many = 1001 if size == 2 else 7
    for channel in ("/a/b", "/c", "/a/b"):
        for _ in range(0, many, 250):
            await share(owner, min(many, 250), channel=channel, body=b"x" * size)
    await share(owner, channel="/last")
    found = [channel async for channel in shared_queue_store.channels(store, GROUP)]
    assert set(found) == {"/a/b", "/c", "/last"}
    assert len(found) < 20
    assert [channel async for channel in shared_queue_store.channels(store, SUBJECT)] == []


async def test_discard_writes_a_fact(store: Store) -> None:
    owner = await owner_of(store, JOE)
    ids = await share(owner, 3)
    discard = shared_queue_store.discard
    some = discard(store.keys, owner.token, GROUP, [ids[1], LogId(5)], FACTS_MAX, reason=EndReason.ERASED)
    assert await store.run([some, some]) == [1, 0]
    assert await owner.do(discard(store.keys, owner.token, GROUP, None, FACTS_MAX)) == 2
    assert [fact["ended"] for fact in await owner.facts("ended")] == [
        [{"session": GROUP, "reason": "erased", "ids": [ids[1]]}],
        [{"session": GROUP, "reason": "dropped", "ids": [ids[0], ids[2]]}],
    ]
    assert await shared_queue_store.queues(store) == []


async def test_dead_lettered_queue_messages_leave_dead_letters(store: Store) -> None:
    owner = await owner_of(store, JOE)
    sent = await send(owner, TO_SUBJECT, sender=ANN)
    buried: Discarded = await owner.do(_dead_letter(owner))
    assert (buried.count, len(buried.letters)) == (1, 1)
    (letter,) = await owner.letters()
    assert (letter["receiver"], letter["code"], letter["sender"], letter["t"]) == (SUBJECT, "user.x", ANN, SUBJECT)
    assert await owner.facts("ended") == [
        {"ended": [{"session": SUBJECT, "reason": "dead", "code": "user.x", "ids": [sent.id]}]}
    ]


@pytest.mark.parametrize("ids", [[], [LogId(1)] * 1001])
def test_discard_refuses_too_many_ids_in_one_step(store: Store, ids: list[LogId]) -> None:
    with pytest.raises(ValueError, match="ids: expected"):
        shared_queue_store.discard(store.keys, "a", GROUP, ids, FACTS_MAX)


async def test_a_superseded_server_moves_nothing(store: Store) -> None:
    owner = await owner_of(store, JOE)
    sent = await send(owner, TO_JOE, TO_SUBJECT)
    keys, stranger = store.keys, Owner(store, "never booted")
    for step in (
        shared_queue_store.send(keys, "never booted", Addressed("/a", b""), [TO_SUBJECT], FACTS_MAX),
        shared_queue_store.lease(keys, "never booted", SUBJECT, [Member(JOE, 9)], FACTS_MAX),
        shared_queue_store.requeue(keys, "never booted", JOE, {sent.id: 1}, FACTS_MAX, failed=False),
        shared_queue_store.discard(keys, "never booted", SUBJECT, None, FACTS_MAX),
    ):
        with pytest.raises(Fenced):
            await stranger.do(step)
    assert await waiting(owner, SUBJECT) == [sent.id]
    assert list(await texts(owner)) == [str(sent.id)]


def _join(owner: Owner, name: str) -> Any:
    return session_store.subscribe(owner.keys, owner.token, name, (), FACTS_MAX, {"/a/*": b'[{"group":"workers"}]'})


async def test_a_letter_of_a_subject_waits_for_the_subject_again(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await send(owner, TO_SUBJECT, priority=9, qos=b'{"priority":9}', sender=ANN)
    await owner.do(_dead_letter(owner))
    (letter,) = await all_letters(owner)
    moved = await owner.do(dead_letter_store.redrive(store.keys, owner.token, letter, FACTS_MAX, max_entries=1))
    assert moved.outcome is RedriveOutcome.MOVED
    (found,) = await read_queue(store, SUBJECT, 9)
    assert (found.logged.id, found.logged.redrive_of, found.logged.to, found.priority) == (
        moved.id,
        letter.dead_id,
        SUBJECT,
        9,
    )
    (fact,) = await owner.facts("redriven")
    assert fact["session"] == SUBJECT
    await owner.do(_dead_letter(owner))
    await send(owner, TO_SUBJECT)
    (letter,) = await all_letters(owner)
    full = await owner.do(dead_letter_store.redrive(store.keys, owner.token, letter, FACTS_MAX, max_entries=1))
    assert full.outcome is RedriveOutcome.FULL


async def test_message_of_one_session_counts_for_its_subject(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await send(owner, Delivery(SUBJECT, queue=f"one:{SUBJECT}"))
    await owner.do(_dead_letter(owner, f"one:{SUBJECT}"))
    (letter,) = await all_letters(owner)
    assert letter.receiver == SUBJECT
    moved = await owner.do(dead_letter_store.redrive(store.keys, owner.token, letter, FACTS_MAX))
    assert await waiting(owner, SUBJECT) == [moved.id]


async def test_a_letter_of_a_group_waits_for_the_group_again_while_it_has_members(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await share(owner)
    await owner.do(_dead_letter(owner, GROUP))
    (letter,) = await all_letters(owner)
    assert letter.receiver == GROUP
    redrive = dead_letter_store.redrive(store.keys, owner.token, letter, FACTS_MAX)
    assert (await owner.do(redrive)).outcome is RedriveOutcome.NO_RECEIVER
    await owner.do(_join(owner, JOE))
    moved = await owner.do(redrive)
    assert await waiting(owner) == [moved.id]


@pytest.mark.parametrize("expires", [0, FAR])
async def test_an_edited_message_waits_in_the_queue_until_it_is_leased(store: Store, expires: int) -> None:
    owner = await owner_of(store, JOE)
    await send(owner, TO_SUBJECT, expires=expires)
    await owner.do(_dead_letter(owner))
    (letter,) = await all_letters(owner)
    assert not letter.is_edited
    for body in (b'{"data":2}', b""):  # the second time as it is
        moved = await owner.do(dead_letter_store.redrive(store.keys, owner.token, letter, FACTS_MAX, body=body))
        found = await lease(owner, (JOE, 9), queue=SUBJECT, now=NOW)
        assert found == Lease([Leased(JOE, moved.id, 10, "/a/b", 0, 5, 0, ())], 0, 0)
        await requeue(owner, JOE, moved.id, attempts=0)
        await owner.do(_dead_letter(owner))
        (letter,) = await all_letters(owner)
        assert letter.is_edited


async def test_a_message_that_an_operator_sends_again_does_not_expire(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await send(owner, TO_SUBJECT, expires=NOW)
    await owner.do(_dead_letter(owner))
    (letter,) = await all_letters(owner)
    assert not letter.is_edited
    moved = await owner.do(dead_letter_store.redrive(store.keys, owner.token, letter, FACTS_MAX))
    found = await lease(owner, (JOE, 9), queue=SUBJECT, now=NOW)
    assert found == Lease([Leased(JOE, moved.id, 2, "/a/b", 0, 5, 0, ())], 0, 0)
    assert await texts(owner) == {str(moved.id): f"0:2:/a/b:5:0:{SUBJECT}"}


def _dead_letter(owner: Owner, queue: str = SUBJECT) -> Any:
    bounds = FACTS_MAX, LETTERS_MAX
    return shared_queue_store.dead_letter(owner.keys, owner.token, queue, None, *bounds, code="user.x", reason="why")


async def test_what_lies_in_an_inbox_of_another_node_lies_in_the_log_for_that(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2, ANN)
    mine, others = (
        Delivery(JOE, JOE),
        [Delivery(SUBJECT, each, source=SUBJECT, is_elsewhere=1) for each in (JOE_2, ANN)],
    )
    sent = await send(owner, mine, *others, Delivery("client/eve/1", "client/eve/1", is_elsewhere=1), sender=ANN)
    assert sent.outcomes == [OK, OK, OK, GONE]
    (found,) = await log.read(store, LogId(0), 10)
    assert (found.id, found.channel, found.body, found.sender, found.to) == (sent.id, "/a/b", b"{}", ANN, JOE)
    waiting_there = PendingMessage(0, 2, "/a/b", source=SUBJECT)
    assert shared_queue_store.addressed(found) == {JOE_2: waiting_there, ANN: waiting_there}


async def test_the_log_has_what_lies_in_the_inbox_of_a_session_that_was_just_taken_over(store: Store) -> None:
    owner = await owner_of(store, JOE, JOE_2)
    heir = await started(store, "heir")
    (taken,) = await heir.adopt(1)
    sent = await send(owner, TO_JOE, Delivery(SUBJECT, JOE_2, source=SUBJECT))
    assert sent.outcomes == [OK, OK]
    (found,) = await log.read(store, LogId(0), 10)
    assert shared_queue_store.addressed(found) == {taken.name: PendingMessage(0, 2, "/a/b", source=SUBJECT)}
    (left,) = await heir.adopt()
    assert set(left.inbox) == {sent.id}
