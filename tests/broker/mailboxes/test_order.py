"""In which order messages go out that were held back, come from a history, or wait after a restart; and which of
several receivers gets the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.addressing.post import Clerk, come, login, one, settled
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, failed, store
from tests.broker.world import Client

HELD, GONE = "user.update.holdback", "communication.timeout"
WORK = "/jobs/a"


def publish(world: StoredWorld, channel: str, value: Any, priority: int = 5) -> None:
    world.wait(world.broker.publish_stored(channel, value, qos={"priority": priority}))
    world.settle()


def activated(world: StoredWorld, joe: Receiver) -> list[Any]:
    """What comes once an operator has activated the session."""
    world.wait(world.broker.mailboxes.dispatchers.activate(joe.session))
    return data(come(joe))


class TestActivation:
    def test_the_held_message_comes_before_younger_ones_of_its_priority_and_lower_ones(
        self, stored: StoredWorld
    ) -> None:
        joe = login(stored, "joe/1", "/a")
        publish(stored, "/a", "held")
        joe.take(*[failed(each, HELD) for each in joe.take()])
        publish(stored, "/a", "low", 3)
        publish(stored, "/a", "younger")
        assert activated(stored, joe) == ["held", "younger", "low"]

    def test_what_has_a_higher_priority_comes_before_it(self, stored: StoredWorld) -> None:
        joe = login(stored, "joe/1", "/a")
        publish(stored, "/a", "held")
        joe.take(*[failed(each, HELD) for each in joe.take()])
        publish(stored, "/a", "younger")
        publish(stored, "/a", "urgent", 9)
        assert activated(stored, joe) == ["urgent", "held", "younger"]

    def test_the_same_holds_of_transient_messages(self, stored: StoredWorld) -> None:
        joe = login(stored, "joe/1", "/a")
        stored.broker.publish("/a", "held")
        joe.take(*[failed(each, HELD) for each in joe.take()])
        stored.broker.publish("/a", "younger")
        stored.broker.publish("/a", "urgent", qos={"priority": 9})
        assert activated(stored, joe) == ["urgent", "held", "younger"]


class TestHistory:
    @pytest.fixture
    def reader(self, stored: StoredWorld) -> Client:
        for number, priority in ((1, 5), (2, 9), (3, 5), (4, 9)):
            qos = {"priority": priority, "history": {"maxEntries": 10}}
            stored.wait(stored.broker.publish_stored("/h", number, qos=qos))
        return login(stored, "joe/1")

    @pytest.mark.parametrize(("newest_first", "wanted"), [(True, [4, 2, 3, 1]), (False, [2, 4, 1, 3])])
    def test_initial_messages_come_by_priority_and_then_as_asked(
        self, reader: Receiver, newest_first: bool, wanted: list[int]
    ) -> None:
        asked = {"history": {"numEntries": -1, "newestFirst": newest_first}}
        assert reader.say("/meta/subscribe", subscription="/h", ext={"subscribe": asked})["successful"]
        assert data(come(reader)) == wanted


class TestRestart:
    def test_the_count_of_failures_begins_at_zero(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = login(world, "joe/1", "/a", dispatcher={"retries": 1, "delay": 60000})
        store(world, "/a", 1)
        joe.take(*[failed(each, GONE) for each in joe.take()])
        assert joe.session.mailbox._dispatcher.failures == 1
        world.commit()
        world.crash()
        again = make_stored(prefix=world.prefix)
        joe.world = again
        (message,) = come(joe)  # and it does not wait for the delay
        joe.take(failed(message, GONE))
        assert joe.is_known
        assert again.letters() == []


class TestOneOfSeveral:
    def test_idle_members_of_a_group_take_turns(self, stored: StoredWorld) -> None:
        members = [login(stored, f"joe/{number}") for number in (1, 2)]
        for each in members:
            each.say("/meta/subscribe", subscription=WORK, ext={"subscribe": {"group": "workers"}})
        assert turns(stored, members, lambda number: publish(stored, WORK, number)) == {0: 5, 1: 5}

    def test_idle_sessions_of_a_subject_take_turns(self, stored: StoredWorld) -> None:
        clerk = Clerk(stored)
        members = [login(stored, f"joe/{number}") for number in (1, 2)]
        assert turns(stored, members, lambda number: clerk.post(number, one("joe"))) == {0: 5, 1: 5}

    def test_one_that_joins_later_gets_no_more_than_its_turn(self, stored: StoredWorld) -> None:
        clerk = Clerk(stored)
        members = [login(stored, "joe/1")]
        turns(stored, members, lambda number: clerk.post(number, one("joe")))
        members.append(login(stored, "joe/2"))
        assert turns(stored, members, lambda number: clerk.post(number, one("joe"))) == {0: 5, 1: 5}

    def test_sessions_that_acknowledge_nothing_take_turns(self, stored: StoredWorld) -> None:
        clerk = Clerk(stored)
        members = []
        for number in (1, 2):
            client = Client(stored)
            assert client.handshake(ext={"session": {"name": f"joe/{number}"}})["successful"]
            client.send(client.message("/meta/connect"))
            members.append(client)
        for number in range(10):
            clerk.post(number, one("joe"))
        got = [len([each for each in client.connect().answer if "data" in each]) for client in members]
        assert got == [5, 5]


def turns(world: StoredWorld, members: list[Receiver], post: Callable[[int], object]) -> Counter[int]:
    """How many of ten messages each member gets, if each settles what it has before the next one comes."""
    got: Counter[int] = Counter()
    for number in range(10):
        post(number)
        for place, each in enumerate(members):
            messages = come(each)
            got[place] += len(messages)
            settled(each, *messages)
    return +got
