"""The order in which messages leave: by priority, then by age, on a real store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crewel.qos.connect import Burst
from tests.broker.stored_world import MESSAGE, MakeStored, Receiver, StoredWorld, data, failed, ok, origin
from tests.broker.world import Client, World, data_of


def store(world: StoredWorld, *messages: tuple[int, Any], channel: str = "/a") -> None:
    """Publish data with these priorities, stored."""
    for priority, value in messages:
        world.wait(world.broker.publish_stored(channel, value, qos={"priority": priority}))


def push(world: World, *messages: tuple[int, Any], channel: str = "/a") -> None:
    """The same, transient."""
    for priority, value in messages:
        world.broker.publish(channel, value, qos={"priority": priority})


def let_go(world: StoredWorld) -> None:
    """Let so much time pass that all clients count as gone."""
    world.advance(60.0)
    world.broker.sweep()
    assert all(session.mailbox.is_absent for session in world.broker.sessions.by_id.values())


class TestQueues:
    def test_a_client_that_only_listens_gets_the_highest_first(self, world: World) -> None:
        client = Client(world).joined("/a")
        push(world, (5, "a"), (1, "b"), (9, "c"), (5, "d"), (9, "e"))
        assert data_of(client.connect().answer) == ["c", "e", "a", "d", "b"]

    def test_stored_and_transient_ones_wait_in_one_order(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, (5, "a"), (9, "b"))
        push(stored, (7, "c"), (9, "d"))
        store(stored, (7, "e"))
        assert data(joe.take()) == ["b", "d", "c", "e", "a"]

    def test_the_highest_comes_first_of_what_waited_while_the_client_was_away(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        let_go(stored)
        store(stored, (5, "a"), (1, "b"), (9, "c"), (5, "d"), (9, "e"))
        assert data(joe.take()) == ["c", "e", "a", "d", "b"]

    def test_the_highest_comes_first_after_a_restart(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, (5, "a"), (1, "b"), (9, "c"))
        stored.commit()
        stored.crash()
        again = StoredWorld(*stored.sets, prefix=stored.prefix)
        joe.world = again
        store(again, (9, "d"), (5, "e"))
        assert data(joe.take()) == ["c", "d", "a", "e", "b"]
        again.close()

    def test_the_priority_is_told_unless_it_is_the_usual_one(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, (5, "a"), (9, "b"))
        assert [origin(each).get("priority") for each in joe.take()] == [9, None]


class TestSentAgain:
    def test_what_is_sent_again_stays_in_front(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, (5, "a"), (1, "b"))
        assert data(joe.take()) == ["a", "b"]
        joe.ack = 0
        store(stored, (9, "c"))
        assert data(joe.take()) == ["a", "b", "c"]

    def test_what_is_sent_again_is_not_overtaken_while_the_client_has_to_wait(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, (5, "a"), (1, "b"))
        for _ in range(2):
            assert data(joe.take()) == ["a", "b"]
            joe.ack = 0
        held = joe.reconnect(advice={"timeout": 0})  # it makes no progress, and has to pause
        assert held.is_held
        store(stored, (9, "c"))
        push(stored, (9, "d"), (5, "e"))
        stored.advance(0.2)
        assert data(joe.heard(held)) == ["a", "b", "c", "d", "e"]

    def test_what_does_not_fit_into_the_response_waits_as_all_others(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1")
        store(stored, (5, "a"), (1, "b"))
        assert data(joe.take()) == ["a", "b"]
        joe.ack = 0
        joe.session.log_in(replace(joe.session.asked, burst=Burst(1)))
        store(stored, (3, "c"))
        assert data(joe.take()) == ["a"]
        assert [data(joe.take()) for _ in range(3)] == [["c"], ["b"], []]

    def test_what_a_client_could_not_take_comes_again_in_its_place(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE, dispatcher={"retries": 5, "delay": 0})
        store(stored, (5, "a"), (9, "b"))
        b, a = joe.take()
        joe.tell(failed(b, "communication.noConnection"), failed(a, "communication.noConnection"))
        store(stored, (9, "c"), (7, "d"), (5, "e"))
        assert data(joe.take()) == ["b", "c", "d", "a", "e"]

    def test_what_is_held_back_comes_again_in_its_place(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, (5, "a"), (9, "b"))
        b, a = joe.take()
        joe.tell(failed(a, "user.update.holdback"))
        store(stored, (9, "c"), (1, "d"))
        assert joe.take(ok(b)) == []
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        assert data(joe.take()) == ["c", "a", "d"]

    def test_another_client_gets_it_all_again_in_order(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, (5, "a"), (9, "b"))
        assert data(joe.take()) == ["b", "a"]
        push(stored, (1, "c"), (7, "d"))
        store(stored, (9, "e"))
        other = Receiver(stored).taking_over(joe)
        assert data(other.take()) == ["b", "e", "d", "a", "c"]


QUEUE: dict[str, Any] = {"name": "joe/1", "queue": {"maxEntries": 2, "onOverflow": "dropOldest"}}


class TestGivingWay:
    """A full queue drops the oldest of the lowest priority, which may be what arrives."""

    SENT = ((5, "a"), (9, "b"), (1, "c"), (7, "d"), (5, "e"), (7, "f"))
    LEFT = ("b", "f")

    def test_of_a_client_that_only_listens(self, world: World) -> None:
        client = Client(world).joined("/a", ext={"session": QUEUE})
        push(world, *self.SENT)
        assert data_of(client.connect().answer) == [*self.LEFT]

    def test_of_transient_messages(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **QUEUE)
        push(stored, *self.SENT)
        assert data(joe.take()) == [*self.LEFT]

    def test_of_stored_ones(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **QUEUE)
        store(stored, *self.SENT)
        assert data(joe.take()) == [*self.LEFT]

    def test_of_those_that_wait_for_a_client_that_is_away(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **QUEUE)
        let_go(stored)
        store(stored, *self.SENT)
        assert data(joe.take()) == [*self.LEFT]
        reasons = [reason for _, reason, _ in stored.ended()]
        assert reasons.count("dropped") == len(self.SENT) - len(self.LEFT)

    @pytest.mark.parametrize("before", range(5))
    def test_of_a_client_that_goes_away_meanwhile_the_newest_are_left(self, stored: StoredWorld, before: int) -> None:
        joe = Receiver(stored).started("/a", **{**QUEUE, "queue": {**QUEUE["queue"], "maxEntries": 4}})
        store(stored, *((5, number) for number in range(before)))
        let_go(stored)
        store(stored, *((5, number) for number in range(before, 10)))
        assert data(joe.take()) == [6, 7, 8, 9]

    def test_what_is_sent_again_does_not_give_way(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **QUEUE)
        store(stored, (1, "a"))
        assert data(joe.take()) == ["a"]
        joe.ack = 0
        held = joe.reconnect()
        store(stored, (5, "b"), (9, "c"))
        assert data(joe.heard(held)) == ["a"]
        assert data(joe.take()) == ["c"]


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_login_has_no_message_whose_body_only_the_store_has(make_stored: MakeStored, is_sent: bool) -> None:
    world = make_stored("bayeux.allow_message_delivery_during_handshake=true")
    joe = Receiver(world).started("/a", name="joe/1", update=False)
    store(world, (5, 1), (5, 2))
    if is_sent:
        assert data(joe.take()) == [1, 2]
    let_go(world)
    other = Receiver(world).taking_over(joe, update=False, settle="batch")
    assert data(other.take()) == [1, 2]


class TestOperators:
    def test_operators_see_and_take_out_what_goes_first(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        store(stored, (5, "a"), (9, "b"), (1, "c"), (9, "d"))
        dispatchers = stored.broker.mailboxes.dispatchers
        peeked = stored.wait(dispatchers.peek(joe.session, 3))
        assert data(entry.fields for entry in peeked) == ["b", "d", "a"]
        stored.wait(dispatchers.skip(joe.session))
        stored.wait(dispatchers.remove(joe.session, 1))
        assert data(joe.take()) == ["a", "c"]
        assert [letter.receiver for letter in stored.letters()] == ["client/joe/1"]


class TestRefills:
    """Bodies that are not in memory are read a burst at a time; meanwhile others arrive."""

    @pytest.mark.parametrize(
        ("arriving", "order"),
        [
            ((9, "x"), ["x", "b", "a", "c"]),
            ((7, "x"), ["b", "x", "a", "c"]),
            ((5, "x"), ["b", "a", "c", "x"]),
            ((1, "x"), ["b", "a", "c", "x"]),
        ],
    )
    def test_what_arrives_meanwhile_has_its_place(
        self,
        stored: StoredWorld,
        joe: Receiver,
        monkeypatch: pytest.MonkeyPatch,
        arriving: tuple[int, Any],
        order: list[str],
    ) -> None:
        let_go(stored)
        store(stored, (5, "a"), (8, "b"), (5, "c"))
        found, to_come = stored.durability.backlog._found, [arriving]

        async def found_later(durable: Any, ids: Any) -> Any:
            for priority, value in [to_come.pop() for _ in to_come]:
                await stored.broker.publish_stored("/a", value, qos={"priority": priority})
            return await found(durable, ids)

        monkeypatch.setattr(stored.durability.backlog, "_found", found_later)
        assert data(joe.take() + joe.take()) == order

    def test_nothing_is_delivered_to_one_who_was_held_back_meanwhile(
        self, stored: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        let_go(stored)
        store(stored, (5, "a"), (8, "b"))
        dispatchers, found = stored.broker.mailboxes.dispatchers, stored.durability.backlog._found

        async def held_back(durable: Any, ids: Any) -> Any:
            monkeypatch.undo()
            await dispatchers.hold(joe.session, "operator")
            return await found(durable, ids)

        monkeypatch.setattr(stored.durability.backlog, "_found", held_back)
        assert joe.take() == []
        stored.wait(dispatchers.activate(joe.session))
        assert data(joe.take()) == ["b", "a"]
