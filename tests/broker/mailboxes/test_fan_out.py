"""A message to many receivers is handed out in turns: each gets it in order, and other clients are served."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from crewel.broker.mailboxes.outbound import FanOuts
from crewel.broker.session import Session
from tests.broker.clock import ControlledLoop
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, store
from tests.broker.world import Client, World, data_of


@pytest.fixture
def loop() -> Iterator[ControlledLoop]:
    loop = ControlledLoop()
    yield loop
    loop.close()


def cut_small(world: World) -> None:
    """Let each turn of a fan-out reach one receiver."""
    fan_outs = world.broker.mailboxes.outbound.fan_outs
    fan_outs.at_once, fan_outs.step, fan_outs.slice_s = 2, 1, -1.0


def steps(name: str, count: int, done: list[str]) -> Iterator[None]:
    for number in range(count):
        done.append(f"{name}{number}")
        yield


class TestFanOuts:
    def test_what_was_begun_first_for_a_channel_is_done_first(self, loop: ControlledLoop) -> None:
        fan_outs, done = FanOuts(loop), []
        fan_outs.slice_s = -1.0
        for name in "ab":
            fan_outs.add("/x", steps(name, 2, done))
        loop.settle()
        assert done == ["a0", "a1", "b0", "b1"]
        assert not fan_outs.pending

    def test_channels_take_turns(self, loop: ControlledLoop) -> None:
        fan_outs, done = FanOuts(loop), []
        fan_outs.slice_s = -1.0
        fan_outs.add("/x", steps("x", 2, done))
        fan_outs.add("/y", steps("y", 2, done))
        loop.settle()
        assert done == ["x0", "y0", "x1", "y1"]

    def test_within_its_time_a_turn_does_all(self, loop: ControlledLoop) -> None:
        fan_outs, done = FanOuts(loop), []
        fan_outs.add("/x", steps("x", 100, done))
        assert done == []
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert len(done) == 100

    def test_waiting_for_a_channel_takes_turns_and_ends_before_later_work(self, loop: ControlledLoop) -> None:
        fan_outs, done = FanOuts(loop), []
        fan_outs.slice_s = -1.0
        fan_outs.add("/x", steps("x", 9, done))
        fan_outs.add("/y", steps("y", 2, done))
        waiting = loop.create_task(fan_outs.finished("/y"))
        waiting.add_done_callback(lambda _: done.append("finished"))
        loop.call_soon(lambda: fan_outs.add("/y", steps("z", 9, done)))
        loop.settle()
        assert done[:4] == ["x0", "y0", "x1", "y1"]
        assert done.index("y1") < done.index("finished") < done.index("z2")

    def test_nothing_is_waited_for_where_nothing_was_begun(self, loop: ControlledLoop) -> None:
        fan_outs = FanOuts(loop)
        fan_outs.slice_s = -1.0
        fan_outs.add("/x", steps("x", 9, []))
        loop.run_until_complete(fan_outs.finished("/y"))
        assert fan_outs.pending

    def test_one_that_fails_does_not_hinder_others(
        self, loop: ControlledLoop, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails() -> Iterator[None]:
            yield
            raise RuntimeError("broken")

        fan_outs, done = FanOuts(loop), []
        fan_outs.add("/x", fails())
        fan_outs.add("/x", steps("x", 1, done))
        loop.settle()
        assert done == ["x0"]
        assert "could not be handed" in caplog.text

    def test_beyond_the_bound_the_publisher_does_one_turn_of_the_work(self, loop: ControlledLoop) -> None:
        fan_outs, done = FanOuts(loop), []
        fan_outs.slice_s = -1.0
        for number in range(1005):
            fan_outs.add("/x", steps(f"{number}.", 2, done))
        assert done == ["0.0", "0.1", "1.0", "1.1"]


def test_sessions_with_full_queues_end_in_one_chain_of_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that overflowed while others were ending began a chain of its own: ten of them were one turn of 40 ms."""
    cut_small(world)
    sessions = [Client(world).joined("/a").session for _ in range(20)]
    outbound, events = world.broker.mailboxes.outbound, list[str]()
    end = world.broker.sessions.table.disconnect

    def noted(session: Session) -> None:
        events.append("end")
        end(session)

    def overflow_others() -> None:
        events.append("turn")
        for _ in range(2):
            if sessions:
                outbound.end_soon(sessions.pop())
        if len(events) < 40:
            world.loop.call_soon(overflow_others)

    monkeypatch.setattr(world.broker.sessions.table, "disconnect", noted)
    overflow_others()
    world.settle()
    assert events.count("end") == 20
    assert "end end" not in " ".join(events[: events.index("turn", 30)])


def test_all_receivers_get_messages_of_a_channel_in_their_order(stored: StoredWorld) -> None:
    cut_small(stored)
    reliable = [Receiver(stored).started("/a", name=f"joe/{number}") for number in range(1, 8)]
    plain = [Client(stored).joined("/a") for _ in range(7)]
    held = [client.connect() for client in plain]
    for number in range(3):
        store(stored, "/a", f"stored {number}")
        stored.broker.publish("/a", f"transient {number}")
    stored.settle()
    expected = [f"{kind} {number}" for number in range(3) for kind in ("stored", "transient")]
    for client in reliable:
        assert data(client.take()) == expected
    for client, request in zip(plain, held, strict=True):
        assert data_of([*request.received, *client.connect(advice={"timeout": 0}).received]) == expected


def test_a_persistent_publish_is_answered_before_all_receivers_have_it(stored: StoredWorld) -> None:
    cut_small(stored)
    clients = [Receiver(stored).started("/a", name=f"joe{number}/1") for number in range(1, 21)]
    stored.wait(stored.broker.publish_stored("/a", 1))
    assert stored.broker.mailboxes.outbound.fan_outs.pending
    assert clients[-1].session.mailbox._queue == []
    stored.settle()
    assert [data(client.take()) for client in clients] == [[1]] * 20


def test_another_channel_need_not_wait(stored: StoredWorld) -> None:
    cut_small(stored)
    for number in range(1, 21):
        Receiver(stored).started("/a", name=f"joe{number}/1")
    ann = Client(stored).joined("/b")
    stored.broker.publish("/a", 1)
    stored.broker.publish("/b", 2)
    assert stored.broker.mailboxes.outbound.fan_outs.pending
    assert data_of(ann.connect(advice={"timeout": 0}).received) == [2]


def test_those_who_are_gone_meanwhile_get_nothing(stored: StoredWorld) -> None:
    cut_small(stored)
    joe, ann, eve, bob = (Receiver(stored).started("/a", name=f"{name}/1") for name in ("joe", "ann", "eve", "bob"))
    stored.wait(stored.broker.publish_stored("/a", 1))
    assert stored.broker.mailboxes.outbound.fan_outs.pending
    eve.say("/meta/disconnect")
    stored.settle()
    assert [data(client.take()) for client in (joe, ann, bob)] == [[1]] * 3
    assert [letter.receiver for letter in stored.letters()] == ["client/eve/1"]


def test_a_message_that_an_operator_took_out_meanwhile_is_not_queued(stored: StoredWorld) -> None:
    cut_small(stored)
    clients = [Receiver(stored).started("/a", name=f"joe/{number}") for number in range(1, 6)]
    stored.wait(stored.broker.publish_stored("/a", 1))
    last = clients[-1]
    assert last.session.mailbox._queue == []
    assert stored.wait(stored.broker.mailboxes.dispatchers.drain(last.session)) == 1
    stored.settle()
    assert data(last.take()) == []
    assert [letter.receiver for letter in stored.letters()] == ["client/joe/5"]


def test_what_is_not_handed_out_yet_survives_a_crash(stored: StoredWorld, make_stored: MakeStored) -> None:
    cut_small(stored)
    clients = [Receiver(stored).started("/a", name=f"joe/{number}") for number in range(1, 6)]
    stored.commit()
    stored.wait(stored.broker.publish_stored("/a", 1))
    assert stored.broker.mailboxes.outbound.fan_outs.pending
    stored.crash()
    world = make_stored(prefix=stored.prefix)
    for client in clients:
        client.world = world
        assert data(client.take()) == [1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("is_away", [False, True])
def test_whatever_comes_between_each_channel_is_heard_whole_and_in_order(
    stored: StoredWorld, seed: int, is_away: bool
) -> None:
    """Clients come back, and commits are made, between the turns of many fan-outs. What is not stored has no order beside what
    waits in the store: those who were away for long get stored messages only."""
    cut_small(stored)
    chance = random.Random(seed)
    clients = [Receiver(stored).started("/a", "/b", name=f"joe/{number}") for number in range(1, 7)]
    if is_away:
        stored.sweep_after(15)
    heard: dict[str, list[tuple[str, int]]] = {client.session.name: [] for client in clients}
    published: dict[str, list[int]] = {"/a": [], "/b": []}

    def take(client: Receiver) -> None:
        heard[client.session.name] += [(each["channel"], each["data"]) for each in client.take()]

    for number in range(60):
        channel = chance.choice(["/a", "/b"])
        published[channel].append(number)
        if is_away or chance.random() < 0.5:
            store(stored, channel, number)  # returns when it is stored, and most have not got it
        else:
            stored.broker.publish(channel, number)
        if chance.random() < 0.3:
            take(chance.choice(clients))
        if chance.random() < 0.1:
            stored.commit()
    stored.settle()
    for client in clients:
        take(client)
        take(client)
        for channel, numbers in published.items():
            assert [number for of, number in heard[client.session.name] if of == channel] == numbers
    assert stored.letters() == []
