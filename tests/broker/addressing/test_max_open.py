"""`maxOpen` of sessions whose messages come from the queue of their subject: one after the other, also when an operator blocks
the subject, which ends its sessions, or redrives dead letters."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from crewel.admin.administration import Administration
from crewel.bayeux.message import Fields
from crewel.broker.dead_letters.redrive import Chosen, Limits
from tests.broker.addressing.post import Clerk, come, login, one, queue
from tests.broker.stored_world import Receiver, StoredWorld, data, failed, ok, store

ONE: dict[str, Any] = {"maxOpen": 1, "dispatcher": {"retries": -1, "delay": 0}}


def only(messages: list[Fields]) -> Fields:
    """The only message that came."""
    (message,) = messages
    return message


def all_one_by_one(receiver: Receiver) -> list[Any]:
    """Everything that waits, each message settled before the next may come."""
    got = []
    while messages := come(receiver):
        got.append(only(messages)["data"])
        receiver.tell(ok(messages[0]))
    return got


class TestSubject:
    def test_what_waits_for_a_subject_comes_one_by_one(self, world: StoredWorld, clerk: Clerk) -> None:
        for number in (1, 2, 3):
            clerk.post(number, queue("client/joe"))
        joe = login(world, "joe/1", **ONE)
        assert all_one_by_one(joe) == [1, 2, 3]

    def test_a_limit_counts_together_with_what_comes_by_a_subscription(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", "/a", **ONE)
        store(world, "/a", 1)
        clerk.post(2, "client/joe")
        store(world, "/a", 3)
        assert all_one_by_one(joe) == [1, 2, 3]

    def test_of_sessions_that_share_each_has_no_more_than_it_asked_for(self, world: StoredWorld, clerk: Clerk) -> None:
        slow, quick = (login(world, f"joe/{number}", **ONE) for number in (1, 2))
        for number in range(6):
            clerk.post(number, one("client/joe", waits=True))
        kept = only(come(slow))["data"]
        assert sorted([kept, *all_one_by_one(quick)]) == list(range(6))
        assert come(slow) == []


class TestBlocked:
    """An operator blocks the subject, which ends its sessions, and lets it in again."""

    @pytest.fixture
    def joe(self, world: StoredWorld, clerk: Clerk) -> Receiver:
        """A client with one message open and two that wait behind it."""
        joe = login(world, "joe/1", **ONE)
        for number in (1, 2, 3):
            clerk.post(number, one("client/joe", waits=True))
        assert data(come(joe)) == [1]
        return joe

    def block(self, world: StoredWorld, joe: Receiver) -> None:
        admin = Administration(world.broker)
        assert world.wait(admin.block("joe", [joe.session], "an operator")) == 1
        world.commit()
        refused = Receiver(world).handshake(ext={"ack": True, "session": {"name": "joe/1", **ONE}})
        assert not refused["successful"]
        world.wait(admin.set_blocked("joe", is_blocked=False))

    def test_what_waited_comes_one_by_one(self, world: StoredWorld, joe: Receiver) -> None:
        self.block(world, joe)
        assert all_one_by_one(login(world, "joe/1", **ONE)) == [1, 2, 3]

    def test_what_comes_while_it_is_blocked_comes_behind_that(
        self, world: StoredWorld, clerk: Clerk, joe: Receiver
    ) -> None:
        admin = Administration(world.broker)
        world.wait(admin.block("joe", [joe.session], "an operator"))
        world.commit()
        clerk.post(4, one("client/joe", waits=True))
        world.wait(admin.set_blocked("joe", is_blocked=False))
        assert all_one_by_one(login(world, "joe/1", **ONE)) == [1, 2, 3, 4]


class TestRedriven:
    SURE: ClassVar[dict[str, Any]] = {"settle": "message", "maxOpen": 1}

    def redrive(self, world: StoredWorld) -> None:
        chosen = Chosen(ids=[each.dead_id for each in world.letters()])
        report = world.wait(world.broker.dead_letters.redrive.redrive(chosen, Limits()))
        world.settle()
        assert report.done == len(chosen.ids or ())

    def test_dead_letters_come_again_one_by_one_behind_what_is_older(self, world: StoredWorld) -> None:
        joe = Receiver(world).started("/a", name="joe/1", **self.SURE)
        store(world, "/a", 1, 2)
        for number in (1, 2):
            message = only(joe.take())
            assert message["data"] == number
            joe.tell(failed(message, "user.no"))
        store(world, "/a", 3, 4)
        opened = only(joe.take())
        self.redrive(world)
        assert joe.take() == []
        joe.tell(ok(opened))
        assert all_one_by_one(joe) == [4, 1, 2]

    def test_those_of_a_subject_too(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", **ONE)
        for number in (1, 2, 3):
            clerk.post(number, queue("client/joe"))
        for number in (1, 2):
            message = only(come(joe))
            assert message["data"] == number
            joe.tell(failed(message, "user.no"))
        opened = only(come(joe))
        self.redrive(world)
        assert come(joe) == []
        joe.tell(ok(opened))
        assert all_one_by_one(joe) == [1, 2]
