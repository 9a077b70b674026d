"""The last member of a group leaves or ends while another node lives, which might have a member: what it has received ends as
on a single server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crewel.qos.names import group_queue
from tests.broker.addressing.post import come, ends, ids, letters, settled
from tests.broker.addressing.test_consumer_groups import WORK, join, member, publish
from tests.broker.stored_world import Receiver, StoredWorld, failed, origin
from tests.broker.world import OneOfSeveral

NODE = "cluster.enabled=true"
JOE = "client/joe/1"
ERROR = "user.update.error"
HELD = "user.update.holdback"
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
    assert joe.session.mailbox.depth == 0


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
    joe.take(failed(message, "communication.timeout"))
    here.advance(2.0)
    assert ids(come(joe)) == [message_id]
    assert letters(here) == []
