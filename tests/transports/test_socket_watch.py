"""Which sockets are closed, and when, without a clock."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crewel.metrics import Metrics
from crewel.settings import load
from crewel.transports.socket_watch import SocketWatch

IDLE_S, HANDSHAKE_S = 80.0, 16.0


class Clock:
    """Time that goes on when the test says so, and calls what is due."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, int, Callable[[], None], SimpleNamespace]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        handle = SimpleNamespace(is_off=False)
        handle.cancel = lambda: setattr(handle, "is_off", True)
        heapq.heappush(self.due, (when, len(self.due), callback, handle))
        return handle

    def run(self, seconds: float, *, stall: float = 0.0) -> None:
        end = self.now + seconds
        while self.due and self.due[0][0] <= end:
            when, _, callback, handle = heapq.heappop(self.due)
            self.now = max(self.now, when) + stall
            if not handle.is_off:
                callback()
        self.now = max(self.now, end)


class Socket:
    def __init__(self) -> None:
        self.is_heard_from, self.heard_at = True, 0.0
        self.has_session = self.waits_for_server = False
        self.codes: list[int] = []

    def shut(self, code: int, reason: str) -> None:
        assert len(reason) <= 123
        self.codes.append(code)


class World:
    def __init__(self) -> None:
        sets = [f"websocket.idle_timeout_ms={IDLE_S * 1000:.0f}"]
        settings = load(None, [*sets, f"websocket.handshake_timeout_ms={HANDSHAKE_S * 1000:.0f}"])
        self.clock, self.metrics = Clock(), Metrics()
        self.watch = SocketWatch(settings.websocket, self.metrics, cast("asyncio.AbstractEventLoop", self.clock))

    def socket(self) -> Socket:
        socket = Socket()
        self.watch.add(socket)
        return socket


@pytest.fixture
def world() -> World:
    return World()


def test_a_socket_without_a_session_is_closed_in_time(world: World) -> None:
    socket = world.socket()
    world.clock.run(HANDSHAKE_S - 1)
    assert not socket.codes
    world.clock.run(HANDSHAKE_S / 8 + 2)
    assert socket.codes == [1008]
    assert world.metrics.refused_payloads["no_handshake"] == 1


def test_one_that_comes_while_others_are_watched_is_closed_as_early(world: World) -> None:
    old = world.socket()
    old.has_session = True
    world.clock.run(HANDSHAKE_S * 1.5)
    socket = world.socket()
    world.clock.run(HANDSHAKE_S * 9 / 8 + 1)
    assert socket.codes == [1008]
    assert not old.codes


def test_one_that_waits_for_the_server_is_not_closed_for_that(world: World) -> None:
    socket = world.socket()
    socket.waits_for_server = True
    world.clock.run(HANDSHAKE_S * 3)
    assert not socket.codes
    socket.waits_for_server = False
    world.clock.run(HANDSHAKE_S * 9 / 8 + 1)
    assert socket.codes == [1008]


def test_after_a_stall_a_client_has_time_to_be_read(world: World) -> None:
    socket = world.socket()
    world.clock.run(HANDSHAKE_S - 1)
    due = world.clock.due[0][0]
    world.clock.run(due - world.clock.now, stall=5.0)
    assert not socket.codes


def test_a_silent_socket_is_closed(world: World) -> None:
    silent, talker = world.socket(), world.socket()
    silent.has_session = talker.has_session = True
    for _ in range(12):
        talker.is_heard_from = True
        world.clock.run(IDLE_S / 10)
    assert silent.codes[:1] == [1001]
    assert not talker.codes


def test_there_is_no_timer_without_sockets(world: World) -> None:
    socket = world.socket()
    world.watch.discard(socket)
    world.clock.run(IDLE_S)
    assert not world.clock.due
    assert not world.watch.sockets
    assert not socket.codes
    assert world.socket()
    assert world.clock.due
