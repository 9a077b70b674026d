"""Pings: a held connect that is released empty is the question, and the next connect the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from crewel.broker.session import Session
from crewel.errors import NotReached
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from tests.broker.stored_world import Receiver
from tests.broker.world import Client, MakeWorld, Socket, World, data_of, is_connect


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(
        "storage.enabled=false", "delivery.ping_timeout_ms=5000", extensions=[UpdateExtension(), AckExtension()]
    )


class Ping:
    """One that is under way."""

    def __init__(self, world: World, session: Session) -> None:
        self._task: asyncio.Task[float] = world.loop.create_task(_pinged(world, session))
        world.settle()

    @property
    def is_over(self) -> bool:
        return self._task.done()

    @property
    def took_ms(self) -> float:
        return self._task.result()

    @property
    def failure(self) -> BaseException | None:
        return self._task.exception()


def _pinged(world: World, session: Session) -> Coroutine[Any, Any, float]:
    return world.broker.mailboxes.dispatchers.pings.ping(session)


def test_the_held_connect_is_released_empty_and_the_next_one_is_the_answer(world: World) -> None:
    client = Client(world).joined()
    held = client.connect()
    ping = Ping(world, client.session)
    assert data_of(held.answer) == []
    assert is_connect(held.answer[0])
    world.advance(0.25)
    assert not ping.is_over
    assert client.connect().is_held
    world.settle()
    assert ping.took_ms == pytest.approx(250)


def test_a_client_between_two_connects_answers_with_the_next(world: World) -> None:
    client = Client(world).joined()
    ping = Ping(world, client.session)
    world.advance(1)
    client.connect()
    world.settle()
    assert ping.took_ms == pytest.approx(1000)


def test_one_that_does_not_connect_in_time_was_not_reached_and_goes_on(world: World) -> None:
    client = Client(world).joined("/a", name="x")
    client.connect()
    ping = Ping(world, client.session)
    world.advance(4.9)
    assert not ping.is_over
    world.advance(0.2)
    assert isinstance(ping.failure, NotReached)
    assert ping.failure.code == "communication.noConnection"
    assert "within 5 s" in str(ping.failure)
    assert client.connect().is_held


def test_two_at_once_are_answered_by_one_connect(world: World) -> None:
    client = Client(world).joined()
    client.connect()
    pings = [Ping(world, client.session) for _ in range(2)]
    world.advance(0.5)
    client.connect()
    world.settle()
    assert [ping.took_ms for ping in pings] == [pytest.approx(500)] * 2


def test_one_that_waits_less_long_does_not_take_the_answer_from_another(world: World) -> None:
    client = Client(world).joined()
    client.connect()
    first = Ping(world, client.session)
    world.advance(3)
    second = Ping(world, client.session)
    world.advance(2.1)
    assert isinstance(first.failure, NotReached)
    client.connect()
    world.settle()
    assert second.took_ms > 0


def test_afterwards_another_ping_asks_anew(world: World) -> None:
    client = Client(world).joined()
    client.connect()
    lost = Ping(world, client.session)
    world.advance(5.1)
    assert lost.failure is not None
    held = client.connect()
    ping = Ping(world, client.session)
    assert held.answer
    world.advance(0.1)
    client.connect()
    world.settle()
    assert ping.took_ms == pytest.approx(100)


@pytest.mark.parametrize("end", ["/meta/disconnect", "the server"])
def test_the_end_of_the_session_ends_it(world: World, end: str) -> None:
    client = Client(world)
    assert client.handshake(ext={"ack": True, "session": {"update": True, "name": "joe/1"}})["successful"]
    client.connect()
    ping = Ping(world, client.session)
    if end == "the server":
        world.broker.disconnect(client.session)
    else:
        client.say(end)
    world.settle()
    assert isinstance(ping.failure, NotReached)
    assert "has ended" in str(ping.failure)


def test_a_plain_session_that_ends_was_not_reached_either(world: World) -> None:
    client = Client(world).joined()
    client.connect()
    ping = Ping(world, client.session)
    client.say("/meta/disconnect")
    world.advance(5.1)
    assert isinstance(ping.failure, NotReached)


def test_on_a_socket_the_held_connect_is_answered_too(world: World) -> None:
    socket = Socket()
    client = Client(world, socket).joined()
    client.send(client.message("/meta/connect"))
    socket.take()
    ping = Ping(world, client.session)
    assert [is_connect(each) for each in socket.take()] == [True]
    world.advance(0.1)
    client.send(client.message("/meta/connect"))
    world.settle()
    assert ping.took_ms == pytest.approx(100)


def test_whoever_is_held_back_or_has_a_backlog_answers_like_anybody(world: World) -> None:
    joe = Receiver(world).started("/a", name="joe/1", settle="message")
    world.loop.run_until_complete(world.broker.mailboxes.dispatchers.hold(joe.session, "admin"))
    world.broker.publish("/a", 1)
    held = joe.reconnect()
    ping = Ping(world, joe.session)
    assert joe.heard(held) == []
    world.advance(0.1)
    joe.reconnect()
    world.settle()
    assert ping.took_ms == pytest.approx(100)


def test_a_session_that_asked_for_idle_pings_is_held_for_that_long(world: World) -> None:
    joe = Receiver(world).started("/a", name="joe/1", pingInterval=2000)
    held = joe.reconnect()
    world.advance(1.9)
    assert held.is_held
    world.advance(0.2)
    assert joe.heard(held) == []


def test_a_longer_interval_than_the_servers_own_changes_nothing(world: World) -> None:
    joe = Receiver(world).started("/a", name="joe/1", pingInterval=3_600_000)
    held = joe.reconnect()
    world.advance(29.9)
    assert held.is_held
    world.advance(0.2)
    assert not held.is_held
