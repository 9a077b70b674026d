"""The last member of a group leaves, ends or fails a message while another node lives, which might have a member: what it has
received ends as on a single server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crewel.qos.names import group_queue
from crewel.storage import shared_queue_store
from crewel.storage.script_step import Step
from crewel.storage.store_connection import Done
from tests.broker.addressing.post import Clerk, come, ends, ids, letters, login, one, settled
from tests.broker.addressing.test_consumer_groups import WORK, join, member, publish
from tests.broker.stored_world import Receiver, StoredWorld, failed, origin
from tests.broker.world import OneOfSeveral

NODE = "cluster.enabled=true"
JOE = "client/joe/1"
ERROR = "user.update.error"
HELD = "user.update.holdback"
TIMEOUT = "communication.timeout"
GONE = "communication.noConnection.dead"


@pytest.fixture
def here(make_stored: Callable[..., StoredWorld]) -> StoredWorld:
    world = make_stored(NODE)
    assert isinstance(world.cluster, OneOfSeveral)
    world.cluster.has_receivers = True
    return world


@pytest.fixture
def there(make_stored: Callable[..., StoredWorld], here: StoredWorld) -> StoredWorld:
    """Another node."""
    return make_stored(NODE, prefix=here.prefix)


def leaves(joe: Receiver) -> None:
    assert joe.say("/meta/unsubscribe", subscription=WORK)["successful"]


def test_what_the_last_member_has_received_becomes_dead_letters_when_it_ends(
    here: StoredWorld, there: StoredWorld
) -> None:
    """The node learns later than the store that the members at the other node have gone."""
    joe, other = member(here, "joe/1"), member(there, "ann/1")
    here.broker.addressing.groups.add_elsewhere(group_queue(WORK, "workers"))
    wanted = publish(here, 1, 2)
    assert ids(come(joe)) == wanted
    leaves(other)
    joe.say("/meta/disconnect")
    assert letters(here) == [(JOE, GONE, each) for each in wanted]
    here.commit()
    assert ends(here) == {(each, "dead"): 1 for each in wanted}
    assert (here.broker.metrics.ended["dead"], here.broker.metrics.ended["lapsed"]) == (2, 0)


def test_what_the_last_member_without_a_name_has_received_lapses_when_it_ends(
    here: StoredWorld, there: StoredWorld
) -> None:
    joe, other = join(Receiver(here).started(settle="message")), member(there, "ann/1")
    here.broker.addressing.groups.add_elsewhere(group_queue(WORK, "workers"))
    (message_id,) = publish(here, 1)
    assert ids(come(joe)) == [message_id]
    leaves(other)
    joe.say("/meta/disconnect")
    assert letters(here) == []
    assert ends(here) == {(message_id, "lapsed"): 1}
    assert here.broker.metrics.ended["lapsed"] == 1


def test_a_failure_that_the_last_member_reports_after_it_has_left_makes_a_dead_letter(here: StoredWorld) -> None:
    joe = member(here, "joe/1")
    (message_id,) = publish(here, 1)
    (message,) = come(joe)
    leaves(joe)
    joe.take(failed(message, ERROR))
    (letter,) = here.letters()
    assert (letter.receiver, letter.code, letter.id, letter.attempts) == (JOE, ERROR, message_id, 1)
    assert ends(here) == {(message_id, "dead"): 1}
    assert here.inbox(joe.session) == []
    assert joe.session.mailbox.view().depth == 0


def test_a_failure_that_the_last_member_reports_while_it_ends_makes_a_dead_letter(here: StoredWorld) -> None:
    joe = member(here, "joe/1")
    (message_id,) = publish(here, 1)
    (message,) = come(joe)
    leaves(joe)
    joe.send(joe.message("/service/update", data=[failed(message, ERROR)]), joe.message("/meta/disconnect"))
    assert letters(here) == [(JOE, ERROR, message_id)]
    assert ends(here) == {(message_id, "dead"): 1}


@pytest.mark.parametrize("count", [1, 3])
def test_what_the_last_member_holds_back_after_it_has_left_stays_with_it(here: StoredWorld, count: int) -> None:
    joe = member(here, "joe/1")
    wanted = publish(here, *range(count))
    messages = come(joe)
    leaves(joe)
    joe.take(failed(messages[0], HELD))
    here.commit()
    assert (letters(here), ends(here)) == ([], {})
    assert here.inbox(joe.session) == [int(each) for each in wanted]
    here.wait(here.broker.mailboxes.dispatchers.activate(joe.session))
    again = come(joe)
    assert ids(again) == wanted
    assert [origin(each)["redeliver"] for each in again] == [1] * count
    settled(joe, *again)
    assert ends(here) == {(each, "settled"): 1 for each in wanted}
    assert here.inbox(joe.session) == []


def test_what_the_last_member_would_try_again_after_it_has_left_comes_again(here: StoredWorld) -> None:
    joe = member(here, "joe/1", dispatcher={"retries": 2, "delay": 1000})
    (message_id,) = publish(here, 1)
    (message,) = come(joe)
    leaves(joe)
    joe.take(failed(message, TIMEOUT))
    here.advance(2.0)
    assert ids(come(joe)) == [message_id]
    assert letters(here) == []


# The sole member stays


def sole(here: StoredWorld, session: str, queue: str, **asked: Any) -> tuple[Receiver, list[str]]:
    """The only session at any node that may have the messages, and the messages' ids."""
    if queue == "group":
        return member(here, session, **asked), publish(here, 1)
    return login(here, session, **asked), [Clerk(here).post("hi", one("joe"))]


QUEUES = pytest.mark.parametrize("queue", ["group", "subject"])


@QUEUES
def test_what_a_sole_member_holds_back_stays_with_it(here: StoredWorld, there: StoredWorld, queue: str) -> None:
    joe, wanted = sole(here, "joe/1", queue)
    (message,) = come(joe)
    joe.take(failed(message, HELD))
    assert (letters(here), ends(here)) == ([], {})
    here.sweep_after(2.0)
    assert come(joe) == []
    here.wait(here.broker.mailboxes.dispatchers.activate(joe.session))
    (again,) = come(joe)
    assert (origin(again)["id"], origin(again)["redeliver"]) == (wanted[0], 1)
    settled(joe, again)
    assert ends(here) == {(wanted[0], "settled"): 1}


def test_what_a_sole_member_on_hold_has_becomes_dead_letters_when_it_ends(
    here: StoredWorld, there: StoredWorld
) -> None:
    joe = member(here, "joe/1")
    wanted = publish(here, 1, 2, 3)
    joe.take(failed(come(joe)[1], HELD))
    assert here.inbox(joe.session) == [int(each) for each in wanted]
    joe.say("/meta/disconnect")
    assert letters(here) == [(JOE, GONE, each) for each in wanted]
    assert ends(here) == {(each, "dead"): 1 for each in wanted}


def test_what_a_sole_member_on_hold_has_goes_to_one_that_joins_at_another_node(
    here: StoredWorld, there: StoredWorld
) -> None:
    joe = member(here, "joe/1")
    wanted = publish(here, 1, 2, 3)
    joe.take(failed(come(joe)[1], HELD))
    ann = member(there, "ann/1")
    here.broker.addressing.groups.add_elsewhere(group_queue(WORK, "workers"))
    here.sweep_after(2.0)
    there.sweep_after(2.0)
    messages = come(ann)
    assert (sorted(ids(messages)), here.inbox(joe.session)) == (wanted, [])
    settled(ann, *messages)
    assert ends(there) == {(each, "settled"): 1 for each in wanted}


@QUEUES
def test_what_a_sole_member_could_not_take_comes_again_after_each_pause(
    here: StoredWorld, there: StoredWorld, queue: str
) -> None:
    joe, wanted = sole(here, "joe/1", queue, dispatcher={"retries": 2, "delay": 10_000})
    (message,) = come(joe)
    for attempt in (1, 2):
        joe.take(failed(message, TIMEOUT))
        here.advance(8.0)
        assert come(joe) == []
        here.advance(3.0)
        (message,) = come(joe)
        assert (origin(message)["id"], origin(message)["redeliver"]) == (wanted[0], attempt)
    assert letters(here) == []
    settled(joe, message)
    assert ends(here) == {(wanted[0], "settled"): 1}


def test_the_last_retry_of_a_sole_member_makes_a_dead_letter(here: StoredWorld, there: StoredWorld) -> None:
    joe, (message_id,) = sole(here, "joe/1", "group", dispatcher={"retries": 1, "delay": 1000})
    joe.take(failed(come(joe)[0], TIMEOUT))
    here.advance(2.0)
    joe.take(failed(come(joe)[0], TIMEOUT))
    (letter,) = here.letters()
    assert (letter.receiver, letter.code, letter.id, letter.attempts) == (JOE, TIMEOUT, message_id, 2)
    assert ends(here) == {(message_id, "dead"): 1}


@pytest.mark.parametrize("code", [ERROR, "user.update.deadMessage"])
@QUEUES
def test_what_a_sole_member_rejects_is_one_dead_letter(
    here: StoredWorld, there: StoredWorld, queue: str, code: str
) -> None:
    joe, (message_id,) = sole(here, "joe/1", queue)
    joe.take(failed(come(joe)[0], code))
    (letter,) = here.letters()
    assert (letter.receiver, letter.code, letter.id, letter.attempts) == (JOE, code, message_id, 1)
    assert ends(here) == {(message_id, "dead"): 1}


def test_what_a_sole_member_holds_back_stays_with_it_over_a_restart(
    make_stored: Callable[..., StoredWorld], here: StoredWorld, there: StoredWorld
) -> None:
    joe, (message_id,) = sole(here, "joe/1", "group")
    joe.take(failed(come(joe)[0], HELD))
    here.commit()
    here.crash()
    there.crash()
    again = make_stored(prefix=here.prefix)
    back = Receiver(again).taking_over(joe)
    assert come(back) == []
    again.wait(again.broker.mailboxes.dispatchers.activate(back.session))
    assert ids(come(back)) == [message_id]
    assert letters(again) == []


def test_a_member_on_hold_asks_once_for_what_its_other_group_leaves_to_it(
    here: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    joe, _ = member(here, "joe/1"), member(here, "ann/1")
    join(joe, "/jobs/b")
    (message_id,) = publish(here, 1, channel="/jobs/b")
    assert ids(come(joe)) == [message_id]
    submit, asked = here.store.submit, list[str]()

    def noted(steps: Sequence[Step[Any]], done: Done) -> None:
        asked.extend(step.script for step in steps)
        submit(steps, done)

    monkeypatch.setattr(here.store, "submit", noted)
    here.wait(here.broker.mailboxes.dispatchers.hold(joe.session, "an operator"))
    for _ in range(3):
        here.sweep_after(2.0)
        here.commit()
    assert asked.count("requeue") == 1
    assert here.inbox(joe.session) == [int(message_id)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_another_member_had_after_a_hold_comes_back_to_the_one_on_hold(
    make_stored: Callable[..., StoredWorld], is_restarted: bool
) -> None:
    """Also on a single server, and if a restart has made it forget what its members said."""
    world = make_stored()
    joe, ann = member(world, "joe/1"), member(world, "ann/1")
    (message_id,) = publish(world, 1)
    (message,) = come(joe)
    joe.take(failed(message, HELD))
    assert ids(come(ann)) == [message_id]
    if is_restarted:
        world.crash()
        world = make_stored(prefix=world.prefix)
        joe, ann = Receiver(world).taking_over(joe), Receiver(world).taking_over(ann)
    ann.say("/meta/disconnect")
    assert letters(world) == []
    world.wait(world.broker.mailboxes.dispatchers.activate(joe.session))
    (message,) = come(joe)
    assert (origin(message)["id"], origin(message)["redeliver"]) == (message_id, 2)


def test_what_two_members_would_try_again_comes_back_to_the_first_when_the_second_ends(
    here: StoredWorld,
) -> None:
    joe, ann = (member(here, each, dispatcher={"retries": 3, "delay": 10_000}) for each in ("joe/1", "ann/1"))
    (message_id,) = publish(here, 1)
    joe.take(failed(come(joe)[0], TIMEOUT))
    ann.take(failed(come(ann)[0], TIMEOUT))
    here.commit()
    assert here.inbox(ann.session) == [int(message_id)]
    ann.say("/meta/disconnect")
    here.advance(11.0)
    (message,) = come(joe)
    assert (letters(here), origin(message)["id"]) == ([], message_id)
    settled(joe, message)
    assert ends(here) == {(message_id, "settled"): 1}


def test_what_comes_back_to_a_member_that_rejected_it_is_a_dead_letter_though_the_other_would_try_again(
    here: StoredWorld,
) -> None:
    joe, ann = member(here, "joe/1"), member(here, "ann/1", dispatcher={"retries": 3, "delay": 10_000})
    (message_id,) = publish(here, 1)
    joe.take(failed(come(joe)[0], ERROR))
    ann.take(failed(come(ann)[0], TIMEOUT))
    ann.say("/meta/disconnect")
    here.commit()
    assert (letters(here), come(joe)) == ([(JOE, TIMEOUT, message_id)], [])


def test_a_member_of_another_node_gets_what_is_held_back_and_leaves_it_to_the_one_on_hold(
    here: StoredWorld, there: StoredWorld
) -> None:
    joe, ann = member(here, "joe/1"), member(there, "ann/1")
    there.broker.addressing.groups.add_elsewhere(group_queue(WORK, "workers"))
    (message_id,) = publish(here, 1)
    joe.take(failed(come(joe)[0], HELD))
    there.sweep_after(2.0)
    assert ids(come(ann)) == [message_id]
    ann.say("/meta/disconnect")
    there.commit()
    here.sweep_after(2.0)
    assert letters(here) == []
    here.wait(here.broker.mailboxes.dispatchers.activate(joe.session))
    (message,) = come(joe)
    settled(joe, message)
    assert ends(here) == {(message_id, "settled"): 1}


def test_all_that_waits_lapses_however_much_it_is(here: StoredWorld) -> None:
    queue = group_queue(WORK, "workers")
    here.broker.addressing.groups.add_elsewhere(queue)
    publish(here, *range(1001), persistent=True)
    assert [each.size for each in here.wait(shared_queue_store.queues(here.store))] == [1001]
    here.broker.addressing.groups.remove_elsewhere(queue)
    here.broker.addressing.shared_queues.end_queue(queue)
    here.commit()
    assert here.wait(shared_queue_store.queues(here.store)) == []
    assert here.broker.metrics.ended["lapsed"] == 1001
