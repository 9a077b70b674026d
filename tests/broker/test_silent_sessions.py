"""The sweep for silent sessions: it looks at those that are due, and misses none."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from crewel.broker.mailboxes.timing_wheel import TimingWheel
from crewel.broker.session import Session
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld
from tests.broker.world import Client, MakeWorld, Request, World
from tests.work import instructions

QUICK = ("bayeux.timeout_ms=7000", "bayeux.max_interval_ms=3000")


def test_a_sweep_costs_nothing_for_sessions_that_cannot_have_ended(make_world: MakeWorld) -> None:
    def cost(count: int) -> int:
        world = make_world("bayeux.max_sessions_per_browser=-1", "bayeux.max_interval_ms=600000")
        for _ in range(count):
            Client(world).joined().connect()
        world.sweep_after(1)
        world.advance(1)
        return instructions(world.broker.sessions.silent.sweep)

    cost(1)
    assert cost(200) == cost(20)


def missed(world: World) -> list[Session]:
    """Sessions that the last sweep should have ended, or let leave memory."""
    now, times = world.loop.time(), world.broker.mailboxes.times
    return [
        session
        for session in world.broker.sessions.by_id.values()
        if session.expires_at <= now
        or (session.durable is not None and not session.mailbox.is_absent and times.is_gone(session, now))
    ]


def begin(random: Random, client: Client) -> None:
    """Let it have a session: a named one that the store has, for a receiver."""
    if isinstance(client, Receiver):
        client.started("/b", name=f"joe{random.randrange(10**9)}/1", timeout=random.choice([2000, 9000, 60_000]))
    else:
        client.joined("/a")


def act(random: Random, client: Client, requests: list[Request]) -> None:
    """Let the client do something that changes how long it may be silent."""
    match random.randrange(8):
        case 0 | 1:
            requests.append(client.connect())
        case 2:
            requests.append(client.connect(advice={"timeout": random.choice([0, 1000]), "interval": 6000}))
        case 3:
            client.connect(advice={"timeout": 0})
        case 4 if requests:
            client.world.broker.mailboxes.connects.vanished(requests.pop(random.randrange(len(requests))))
        case 5 if client.session.held is not None:  # of a client that rests, it takes hold with the next connect
            client.session.advise(interval_ms=random.choice([None, 0, 5000, 20_000]))
        case 6:
            client.send(client.message("/away", data=1))
        case _:
            client.world.broker.publish(random.choice(["/a", "/b"]), random.random())


@pytest.mark.parametrize("seed", range(3))
def test_no_session_is_overlooked_whatever_its_client_does(make_stored: MakeStored, seed: int) -> None:
    world: StoredWorld = make_stored(*QUICK)
    random, requests = Random(seed), list[Request]()
    clients = [*(Client(world) for _ in range(4)), *(Receiver(world) for _ in range(4))]
    ended = 0
    for _ in range(300):
        for client in random.sample(clients, random.randrange(3)):
            if client.id is not None and client.is_known:
                act(random, client, requests)
            else:
                ended += client.id is not None
                begin(random, client)
        world.sweep_after(random.choice([0.1, 0.5, 0.5, 1.0]))
        assert missed(world) == []
    assert ended > 5


def test_a_session_that_lacks_its_cookie_ends_soon() -> None:
    world = World("bayeux.max_interval_ms=600000")
    client = Client(world)
    client.handshake()
    world.sweep_after(1)
    client.browser = None
    client.connect()
    world.sweep_after(4.9)
    assert client.is_known
    world.sweep_after(0.2)
    assert not client.is_known
    world.close()


def test_an_ended_session_leaves_the_wheel_at_once(make_world: MakeWorld) -> None:
    client = Client(make_world()).joined()
    session = client.session
    second = session.due
    assert second is not None
    assert session in second
    client.say("/meta/disconnect")
    assert session not in second


class TestTheWheel:
    @pytest.fixture
    def sessions(self, make_world: MakeWorld) -> list[Session]:
        world = make_world()
        return [Session(world.broker.mailboxes.host, str(number)) for number in range(4)]

    def test_sessions_come_by_their_seconds_and_then_as_they_were_put(self, sessions: list[Session]) -> None:
        wheel = TimingWheel()
        for session, at in zip(sessions, (7.5, 5.9, 5.1, 8.0), strict=True):
            wheel.put(session, at)
        assert list(wheel.due(4.9)) == []
        assert list(wheel.due(7.1)) == [sessions[1], sessions[2], sessions[0]]

    def test_what_is_due_stays_due_until_it_is_put_elsewhere(self, sessions: list[Session]) -> None:
        """So a sweep that fails overlooks none of the rest."""
        wheel = TimingWheel()
        for session in sessions:
            wheel.put(session, 5.0)
        for session in wheel.due(6.0):
            if session is sessions[1]:
                break
            wheel.put(session, 9.0)
        wheel.forget(sessions[3])
        wheel.forget(sessions[3])
        assert list(wheel.due(6.0)) == sessions[1:3]
        assert list(wheel.due(9.0)) == [*sessions[1:3], sessions[0]]

    def test_a_session_that_is_put_into_the_second_of_the_look_comes_in_the_next(self, sessions: list[Session]) -> None:
        wheel = TimingWheel()
        wheel.put(sessions[0], 5.0)
        looks: list[Any] = []
        for session in wheel.due(5.5):
            looks.append(session)
            wheel.put(session, 5.9)
        assert looks == sessions[:1]
        assert list(wheel.due(5.6)) == sessions[:1]
