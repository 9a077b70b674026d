"""Messages whose life is over: with forceDestroy they go out of all queues, without it they are delivered."""

from __future__ import annotations

from time import time
from typing import Any

import pytest

from crewel.broker import runtime
from crewel.broker.ids import Clock
from crewel.delivery.records import EndReason, LogId, SessionName
from tests.broker.stored_world import MESSAGE, MakeStored, Receiver, StoredWorld, data, failed, ok, origin
from tests.broker.world import Client, MakeWorld, Socket, World, data_of, let_go

LIFE_MS = 1000
MORTAL: dict[str, Any] = {"lifeTime": LIFE_MS, "forceDestroy": True}


class Life:
    """The clock by which messages live and die in a world. Its other clock, that of time-outs, it leaves alone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.passed = 0.0
        self.follow(world)

    def follow(self, world: World) -> None:
        world.broker.mailboxes.outbound.expiry.clock = lambda: time() + self.passed

    def is_over(self, *, sweeps: bool = True) -> None:
        """Let all who have an end die."""
        self.passed += 10
        if sweeps:
            self.world.broker.sweep()


def store(world: StoredWorld, value: Any, **qos: Any) -> int:
    return int(world.wait(world.broker.publish_stored("/a", value, qos=qos)))


def expired(world: StoredWorld) -> list[int]:
    """The ids of what has expired, by the facts."""
    return [log_id for _, reason, log_id in world.ended() if reason == "expired"]


def test_a_full_queue_drops_what_has_expired_before_what_lives(make_world: MakeWorld) -> None:
    world = make_world("bayeux.max_queue_messages=2")
    client = Client(world).joined("/a")
    life = Life(world)
    world.broker.publish("/a", "old")
    world.broker.publish("/a", "mortal", qos=MORTAL)
    life.is_over(sweeps=False)
    world.broker.publish("/a", "new")
    assert data_of(client.connect().answer) == ["old", "new"]


@pytest.mark.parametrize("sweeps", [True, False], ids=["swept", "at departure"])
class TestQueued:
    """Nothing leaves after its life, whether or not the sweep has come by."""

    def test_a_client_that_only_listens_gets_what_lives(self, world: World, *, sweeps: bool) -> None:
        client = Client(world).joined("/a")
        life = Life(world)
        world.broker.publish("/a", "mortal", qos=MORTAL)
        world.broker.publish("/a", "old", qos={"lifeTime": LIFE_MS})
        world.broker.publish("/a", "any")
        life.is_over(sweeps=sweeps)
        assert data_of(client.connect().answer) == ["old", "any"]
        assert world.broker.metrics.ended[EndReason.EXPIRED] == 0  # nobody was going to settle it

    def test_a_client_with_a_slow_socket_gets_what_lives(self, world: World, *, sweeps: bool) -> None:
        client = Client(world, Socket()).joined("/a")
        life = Life(world)
        assert isinstance(client.socket, Socket)
        client.socket.reads = False
        world.broker.publish("/a", "mortal", qos=MORTAL)
        world.broker.publish("/a", "any")
        world.settle()
        life.is_over(sweeps=sweeps)
        client.socket.reads = True
        world.broker.mailboxes.outbound.push(client.session)
        assert [each["data"] for each in client.socket.take()] == ["any"]

    def test_one_that_acknowledges_gets_what_lives_and_the_rest_has_ended(
        self, stored: StoredWorld, joe: Receiver, *, sweeps: bool
    ) -> None:
        life = Life(stored)
        mortal = store(stored, "mortal", **MORTAL)
        store(stored, "old", lifeTime=LIFE_MS)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        life.is_over(sweeps=sweeps)
        assert data(joe.take()) == ["old"]
        assert expired(stored) == [mortal]
        assert stored.broker.metrics.ended[EndReason.EXPIRED] == 2
        assert joe.session.mailbox._expiry == 0

    def test_what_waits_for_a_client_that_is_away_goes(
        self, stored: StoredWorld, joe: Receiver, *, sweeps: bool
    ) -> None:
        let_go(stored)
        life = Life(stored)
        mortal = store(stored, "mortal", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        store(stored, "any")
        life.is_over(sweeps=sweeps)
        assert data(joe.take()) == ["any"]
        assert expired(stored) == [mortal]

    def test_what_waits_for_a_client_that_is_held_back_goes(
        self, stored: StoredWorld, joe: Receiver, *, sweeps: bool
    ) -> None:
        dispatchers = stored.broker.mailboxes.dispatchers
        stored.wait(dispatchers.hold(joe.session, "operator"))
        life = Life(stored)
        mortal = store(stored, "mortal", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        store(stored, "any")
        life.is_over(sweeps=sweeps)
        stored.wait(dispatchers.activate(joe.session))
        assert data(joe.take()) == ["any"]
        assert expired(stored) == [mortal]

    def test_what_a_client_could_not_take_goes_too(self, stored: StoredWorld, *, sweeps: bool) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE, dispatcher={"retries": 5, "delay": 0})
        life = Life(stored)
        mortal = store(stored, "mortal", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        for message in joe.take():
            joe.tell(failed(message, "communication.noConnection"))
        life.is_over(sweeps=sweeps)
        assert joe.take() == []
        assert expired(stored) == [mortal]
        assert stored.letters() == []

    def test_what_was_sent_and_never_acknowledged_goes(
        self, stored: StoredWorld, joe: Receiver, *, sweeps: bool
    ) -> None:
        life = Life(stored)
        mortal = store(stored, "mortal", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        assert len(joe.take()) == 2
        joe.ack = 0
        life.is_over(sweeps=sweeps)
        assert joe.take() == []
        assert joe.take() == []
        assert expired(stored) == [mortal]


class TestSwept:
    def test_what_a_client_has_and_may_still_answer_stays_open(self, stored: StoredWorld, joe: Receiver) -> None:
        life = Life(stored)
        store(stored, "a", **MORTAL)
        (message,) = joe.take()
        life.is_over()
        assert "ext" not in joe.tell(ok(message))
        assert [reason for _, reason, _ in stored.ended()] == ["settled"]

    def test_what_a_client_reports_of_an_open_message_counts(self, stored: StoredWorld, joe: Receiver) -> None:
        life = Life(stored)
        store(stored, "a", **MORTAL)
        (message,) = joe.take()
        life.is_over()
        joe.tell(failed(message, "user.update.deadMessage"))
        assert [letter.code for letter in stored.letters()] == ["user.update.deadMessage"]

    def test_what_went_to_a_client_that_is_gone_and_never_acknowledged_it_goes(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        life = Life(stored)
        mortal = store(stored, "a", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        assert len(joe.take()) == 2
        let_go(stored)
        life.is_over()
        assert expired(stored) == [mortal]
        assert joe.session.mailbox.view().depth == 0

    def test_what_it_has_acknowledged_and_not_answered_stays_open(self, stored: StoredWorld, joe: Receiver) -> None:
        life = Life(stored)
        store(stored, "a", **MORTAL)
        (message,) = joe.take()
        joe.take()
        let_go(stored)
        life.is_over()
        assert expired(stored) == []
        joe.tell(ok(message))
        assert [reason for _, reason, _ in stored.ended()] == ["settled"]

    def test_a_message_goes_though_the_record_has_a_shorter_life(self, stored: StoredWorld, joe: Receiver) -> None:
        """As of what came from a shared queue: its life counts from when its publisher came, not from its place in the log."""
        mortal = LogId(store(stored, "a", lifeTime=60_000, forceDestroy=True))
        durable = joe.session.durable
        assert durable is not None
        durable.pending[mortal] = durable.pending[mortal]._replace(expires=1)
        durable.expiry = 1
        stored.broker.sweep()
        assert joe.take() == []
        assert expired(stored) == [mortal]

    def test_the_log_is_free_when_nobody_needs_it(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        life = Life(stored)
        mortal = store(stored, "a", **MORTAL)
        stored.commit()
        assert stored.access.low < mortal
        life.is_over()
        stored.commit()
        assert stored.access.low >= mortal

    def test_the_time_of_expiry_is_known_after_a_restart(
        self, stored: StoredWorld, make_stored: MakeStored, joe: Receiver
    ) -> None:
        mortal = store(stored, "a", **MORTAL)
        store(stored, "b", priority=9)
        stored.commit()
        stored.crash()
        again = make_stored(prefix=stored.prefix)
        life = Life(again)
        life.is_over()
        assert expired(again) == [mortal]
        joe.world = again
        assert data(joe.take()) == ["b"]

    def test_what_the_log_had_before_the_server_came_is_not_delivered_if_it_is_over(
        self, stored: StoredWorld, make_stored: MakeStored, joe: Receiver
    ) -> None:
        stored.commit()
        mortal = store(stored, "a", **MORTAL)
        stored.crash()  # with nothing of it committed
        again = make_stored(prefix=stored.prefix)
        joe.world = again
        Life(again).is_over(sweeps=False)
        assert joe.take() == []
        assert expired(again) == [mortal]

    def test_a_client_that_is_gone_is_not_watched(self, world: World) -> None:
        client = Client(world).joined("/a")
        life = Life(world)
        world.broker.publish("/a", "mortal", qos=MORTAL)
        world.broker.disconnect(client.session)
        life.is_over()
        assert world.broker.mailboxes.outbound.expiry._watched == set()


class TestEnds:
    """What is over is no letter when its session ends."""

    def test_of_what_was_queued_and_of_what_was_sent(self, stored: StoredWorld, joe: Receiver) -> None:
        life = Life(stored)
        sent = store(stored, "sent", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        assert len(joe.take()) == 2
        joe.take()  # it has acknowledged both, and answered neither
        queued = store(stored, "queued", **MORTAL)
        stored.broker.publish("/a", "transient", qos=MORTAL)
        store(stored, "any")
        life.is_over(sweeps=False)
        stored.broker.disconnect(joe.session)
        stored.commit()
        assert sorted(expired(stored)) == [sent, queued]
        assert [letter.code for letter in stored.letters()] == ["communication.noConnection.dead"]
        assert stored.broker.metrics.ended[EndReason.EXPIRED] == 4

    def test_an_expired_message_is_no_letter_when_an_operator_drains(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        life = Life(stored)
        mortal = store(stored, "a", **MORTAL)
        store(stored, "any")
        life.is_over(sweeps=False)
        assert stored.wait(stored.broker.mailboxes.dispatchers.drain(joe.session)) == 1
        assert expired(stored) == [mortal]
        assert len(stored.letters()) == 1

    def test_what_is_over_makes_room_in_a_full_queue(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", queue={"maxEntries": 1, "onOverflow": "deadMessage"})
        life = Life(stored)
        mortal = store(stored, "a", **MORTAL)
        life.is_over(sweeps=False)
        store(stored, "b")
        assert data(joe.take()) == ["b"]
        assert expired(stored) == [mortal]
        assert stored.letters() == []

    def test_what_has_expired_on_arrival_takes_no_room(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", queue={"maxEntries": 1, "onOverflow": "deadMessage"})
        store(stored, "a")
        mortal = store(stored, "b", lifeTime=0, forceDestroy=True)
        assert data(joe.take()) == ["a"]
        assert expired(stored) == [mortal]
        assert stored.letters() == []


class TestTold:
    def test_the_rest_of_its_life_is_told_when_it_leaves(self, stored: StoredWorld, joe: Receiver) -> None:
        life = Life(stored)
        store(stored, "a", lifeTime=60_000)
        store(stored, "b", lifeTime=5_000)
        store(stored, "c")
        life.is_over()
        told = [origin(each) for each in joe.take()]
        assert [each.get("lifeTime") for each in told] == [60_000, 5_000, None]
        assert 49_000 < told[0]["remainingLife"] <= 50_000
        assert told[1]["remainingLife"] == 0
        assert "remainingLife" not in told[2]


class TestClocksThatAreSet:
    """The machine's clock is set by an hour; what lives for a second does so before and after."""

    @pytest.fixture(params=[3600.0, -3600.0])
    def jump(self, request: pytest.FixtureRequest) -> float:
        seconds: float = request.param
        return seconds

    def set_clock(self, world: StoredWorld) -> dict[str, float]:
        clocks = {"wall": time(), "elapsed": 0.0}
        world.broker.mailboxes.outbound.expiry.clock = Clock(lambda: clocks["wall"], lambda: clocks["elapsed"])
        return clocks

    def pass_by(self, world: StoredWorld, clocks: dict[str, float], seconds: float) -> None:
        for name in clocks:
            clocks[name] += seconds
        world.broker.sweep()
        world.settle()

    def test_what_was_published_before_lives_as_long_as_it_was_to(self, stored: StoredWorld, jump: float) -> None:
        joe, clocks = Receiver(stored).started("/a", **MESSAGE), self.set_clock(stored)
        let_go_of = store(stored, 1, **MORTAL)
        clocks["wall"] += jump
        self.pass_by(stored, clocks, 0.5)
        assert expired(stored) == []
        self.pass_by(stored, clocks, 0.8)
        assert expired(stored) == [let_go_of]
        assert joe.session.mailbox._queue == []

    def test_what_is_published_after_lives_as_long_as_it_is_to(self, stored: StoredWorld, jump: float) -> None:
        Receiver(stored).started("/a", **MESSAGE)
        clocks = self.set_clock(stored)
        clocks["wall"] += jump
        self.pass_by(stored, clocks, 20.0)
        mortal = store(stored, 1, **MORTAL)
        self.pass_by(stored, clocks, 0.5)
        assert expired(stored) == []
        self.pass_by(stored, clocks, 0.8)
        assert expired(stored) == [mortal]


def test_a_key_is_known_when_the_store_has_forgotten_all_of_them(stored: StoredWorld) -> None:
    """As it does when its clock is set ahead."""
    joe = Receiver(stored).started("/a", **MESSAGE)
    broker, reader = stored.broker, stored.store.reader
    first = stored.wait(broker.publish_stored("/a", 1, key="order-7"))
    for key in stored.wait(reader.keys(f"{stored.prefix}*k:*")):
        stored.wait(reader.delete(key))
    assert stored.wait(broker.publish_stored("/a", 1, key="order-7")) == first
    assert stored.wait(broker.publish_stored("/a", 2, key="order-8")) != first
    assert data(joe.take()) == [1, 2]
    broker.runtime.ids.stored.forget()  # as after a loss of the store, where the first may be lost too
    assert stored.wait(broker.publish_stored("/a", 3, key="order-7")) != first


class TestClocksThatAreSetBack:
    @pytest.mark.parametrize("how", ["published", "addressed"])
    def test_a_restart_across_it_lets_no_message_live_on(
        self, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        world = make_stored()
        joe = Receiver(world).started("/a", **MESSAGE)
        let_go(world)
        to = {"destination": [{"to": "joe/1"}]} if how == "addressed" else {}
        store(world, 1, **MORTAL, **to)
        world.commit()
        world.crash()
        elapsed = [0.0]
        monkeypatch.setattr(runtime, "Clock", lambda: Clock(lambda: time() - 3600 + elapsed[0], lambda: elapsed[0]))
        after = make_stored(prefix=world.prefix)
        durable = after.broker.runtime.access.node.sessions[SessionName("client/joe/1")]
        after.broker.sweep()
        assert len(durable) == 1
        elapsed[0] += 5
        after.broker.sweep()
        assert len(durable) == 0
        assert [reason for _, reason, _ in after.ended()] == ["expired"]
        assert joe.session.name == "client/joe/1"

    def test_a_store_whose_clock_is_behind_ends_no_addressed_message_early(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE)
        stored.broker.mailboxes.outbound.expiry.clock = lambda: (
            time() + 3600
        )  # the server counts on where the machine's clock was
        sender = Receiver(stored).started()
        sender.publish("/box", 1, ext={"publish": {"persistent": True, "destination": [{"to": "joe/1"}], **MORTAL}})
        assert data(joe.take()) == [1]


def test_others_have_their_turn_while_messages_of_many_sessions_expire(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)
    joes = [Receiver(stored).started("/a", name=f"joe/{number}") for number in range(5)]
    life = Life(stored)
    store(stored, 1, **MORTAL)
    stored.broker.publish("/a", 2, qos=MORTAL)
    left = [each.session.mailbox.view().depth for each in joes]
    assert left == [2] * 5
    life.is_over()
    dead = joes[0]
    stored.loop.call_soon(lambda: stored.broker.disconnect(dead.session))
    waiting = [each.session.mailbox.view().depth for each in joes]
    assert sorted(waiting) == [0, 2, 2, 2, 2]
    stored.broker.sweep()
    stored.settle()
    assert [data(each.take()) for each in joes[1:]] == [[]] * 4
    assert len(expired(stored)) == 5
