"""Persistent messages on the way that they mostly take, for all who hear a channel at once; and who leaves that way, when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crewel.delivery.records import EndReason
from tests.broker.stored_world import Receiver, StoredWorld, data
from tests.broker.world import Client, data_of


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    return Receiver(stored).started("/a", name="joe/1", update=False)


@pytest.fixture
def ann(stored: StoredWorld) -> Receiver:
    return Receiver(stored).started("/a", name="ann/1", update=False)


def store(world: StoredWorld, *values: Any, **qos: Any) -> list[int]:
    return [int(world.wait(world.broker.publish_stored("/a", value, qos=qos))) for value in values]


def let_go(world: StoredWorld) -> None:
    world.advance(60.0)
    world.broker.sweep()


def is_booked(world: StoredWorld) -> bool:
    """Whether nothing is left to be applied."""
    return not world.access.node.fan_out.records


def waiting(client: Receiver) -> list[int]:
    assert client.session.durable is not None
    return list(client.session.durable.open)


class TestTogether:
    def test_all_get_it_and_it_is_booked_once_it_is_committed(
        self, stored: StoredWorld, joe: Receiver, ann: Receiver
    ) -> None:
        ids = store(stored, 1, 2)
        assert not is_booked(stored)
        for client in (joe, ann):
            assert data(client.take()) == [1, 2]
            client.reconnect()
        assert not is_booked(stored)
        settled = [(f"client/{name}/1", "settled", log_id) for name in ("ann", "joe") for log_id in ids]
        assert sorted(stored.ended()) == settled
        assert is_booked(stored)
        assert stored.broker.metrics.ended[EndReason.SETTLED] == 4

    def test_what_is_not_acknowledged_survives(
        self, stored: StoredWorld, make_stored: Callable[..., StoredWorld], joe: Receiver, ann: Receiver
    ) -> None:
        first, second = store(stored, 1, 2)
        joe.take()
        joe.reconnect()
        assert sorted(stored.ended()) == [("client/joe/1", "settled", first), ("client/joe/1", "settled", second)]
        stored.crash()
        again = make_stored(prefix=stored.prefix)
        for client in (joe, ann):
            client.world = again
        assert data(ann.take()) == [1, 2]
        assert joe.reconnect().is_held

    def test_and_so_does_what_no_commit_has_seen(
        self, stored: StoredWorld, make_stored: Callable[..., StoredWorld], joe: Receiver
    ) -> None:
        stored.commit()
        store(stored, 1)
        stored.crash()
        again = make_stored(prefix=stored.prefix)
        joe.world = again
        assert data(joe.take()) == [1]

    def test_others_hear_it_too(self, stored: StoredWorld, joe: Receiver) -> None:
        plain = Client(stored).joined("/a")
        held = plain.connect()
        store(stored, 1)
        stored.settle()
        assert data_of(held.answer) == [1]
        assert data(joe.take()) == [1]

    def test_how_long_it_took_is_told(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1, 2)
        for client in (joe, ann):
            client.take()
            client.reconnect()
        stored.commit()
        (settled,) = [each for each in stored.broker.events._taken() if each["type"] == "settled"]
        assert (settled["channel"], settled["count"]) == ("/a", 4)


class TestChanges:
    def test_who_comes_later_hears_what_comes_later(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, 1)
        ann = Receiver(stored).started("/a", update=False)
        store(stored, 2)
        assert (data(joe.take()), data(ann.take())) == ([1, 2], [2])

    def test_who_unsubscribes_hears_no_more(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1)
        joe.say("/meta/unsubscribe", subscription="/a")
        stored.settle()
        store(stored, 2)
        assert (data(joe.take()), data(ann.take())) == ([1], [1, 2])
        stored.commit()
        store(stored, 3)
        assert not is_booked(stored)
        ann.reconnect()

    def test_who_ends_leaves_letters(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1)
        joe.say("/meta/disconnect")
        stored.settle()
        assert [letter.receiver for letter in stored.letters()] == ["client/joe/1"]
        assert data(ann.take()) == [1]

    def test_a_filter_is_asked_about_each_message(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1)
        stored.broker.subscription_options.filtered[joe.session] = {}
        store(stored, 2)
        assert data(ann.take()) == [1, 2]
        assert len(stored.access.node.fan_out.records) == 1

    def test_another_client_goes_on_with_the_session(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1")
        store(stored, 1)
        other = Receiver(stored).taking_over(joe, name="joe/1")
        store(stored, 2)
        assert data(other.take()) == [1, 2]


class TestUnusual:
    def test_who_is_away_has_it_read_back(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        ann = Receiver(stored).started("/a", update=False)
        store(stored, 1, 2)
        assert data(ann.take()) == [1, 2]
        assert joe.session.queue == []
        assert data(joe.take()) == [1, 2]

    def test_who_is_held_back_gets_it_afterwards(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", settle="message")
        stored.wait(stored.broker.dispatchers.hold(joe.session, "operator"))
        store(stored, 1)
        assert data(ann.take()) == [1]
        stored.wait(stored.broker.dispatchers.activate(joe.session))
        assert data(joe.take()) == [1]

    def test_a_sink_makes_letters(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", settle="message")
        dispatcher = stored.broker.dispatchers.of(joe.session)
        dispatcher.sink = ("user.x", "why")
        joe.session.rejects_all = True
        store(stored, 1)
        assert [(letter.receiver, letter.code) for letter in stored.letters()] == [("client/joe/1", "user.x")]
        assert data(ann.take()) == [1]

    @pytest.mark.parametrize("queue", [{"maxEntries": 2}, {"maxBytes": 100}])
    def test_a_full_queue_has_its_policy(self, stored: StoredWorld, ann: Receiver, queue: dict[str, int]) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False, queue=queue)
        ids = store(stored, 1, 2, 3)
        assert waiting(joe) == ids[:2]
        assert data(joe.take()) == [1, 2]
        joe.reconnect()
        store(stored, 4)
        assert data(ann.take()) == [1, 2, 3, 4]
        assert [letter.code.rpartition(".")[2] for letter in stored.letters()] == [next(iter(queue))[3:].lower()]

    def test_what_has_a_life_goes_the_general_way(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, 1, lifeTime=60_000, forceDestroy=True)
        assert is_booked(stored)
        store(stored, 2)
        assert data(joe.take()) == [1, 2]

    def test_a_publisher_that_does_not_hear_itself_is_spared(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False)
        joe.session.broadcast_to_publisher = False
        joe.say("/a", data=1, ext={"publish": {"persistent": True}})
        assert data(ann.take()) == [1]
        assert waiting(joe) == []
        assert [reason for name, reason, _ in stored.ended() if name == "client/joe/1"] == ["filtered"]

    def test_a_message_that_is_alone_fits(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False, queue={"maxBytes": 10})
        first, second = store(stored, 1, 2)
        assert waiting(joe) == [first]
        assert data(ann.take()) == [1, 2]
        assert [(letter.receiver, letter.id) for letter in stored.letters()] == [("client/joe/1", str(second))]

    def test_what_is_lazy_waits(self, stored: StoredWorld, ann: Receiver) -> None:
        stored.broker.channels.make_lazy(["/a"])
        held = ann.connect()
        store(stored, 1)
        stored.settle()
        assert held.is_held
        stored.advance(stored.broker.settings.bayeux.max_lazy_ms / 1000)
        stored.settle()
        assert data_of(held.answer) == [1]
