"""The sweeper: every `bayeux.sweep_ms`, whatever happened the last time."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from crewel.event_loop import GRACE_S
from tests.broker.world import Client, World
from tests.work import calls


def test_the_sweeper_sweeps_in_time_and_continues_after_a_failure(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    world = make_world("bayeux.sweep_ms=200", "bayeux.max_interval_ms=1500")
    client = Client(world).joined()
    sweep, times = world.broker.sweeper.sweep, []

    def failing_once() -> None:
        times.append(round(world.loop.time() - 1000, 3))
        if len(times) == 1:
            raise RuntimeError("broken")
        sweep()

    monkeypatch.setattr(world.broker.sweeper, "sweep", failing_once)
    task = world.loop.create_task(world.broker.sweeper.run_forever())
    world.advance(1.5)
    assert times == [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]
    assert client.is_known
    world.advance(0.2)
    assert not client.is_known
    assert "a sweep failed" in caplog.text
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        world.loop.run_until_complete(task)


def test_a_stall_of_the_loop_ends_no_session(make_world: Callable[..., World]) -> None:
    """What its client has sent meanwhile is read before the next sweep."""
    world = make_world("bayeux.sweep_ms=1000", "bayeux.max_interval_ms=1500")
    client, gone = Client(world).joined(), Client(world).joined()
    task = world.loop.create_task(world.broker.sweeper.run_forever())
    world.settle()
    world.loop.stall(10)
    client.connect(advice={"timeout": 0})
    world.advance(GRACE_S)
    assert client.is_known
    assert not gone.is_known
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        world.loop.run_until_complete(task)


def test_no_session_ends_while_its_client_cannot_come_for_the_servers_fault(make_world: Callable[..., World]) -> None:
    world = make_world("bayeux.max_interval_ms=1500")
    client = Client(world).joined()
    times, start = world.broker.mailboxes.times, world.loop.time()
    times.excuse(inf)
    world.advance(30)
    world.broker.sweep()
    assert client.is_known
    times.end_excuse(world.loop.time())
    assert not times.are_excused(start + 31.6)
    world.advance(1.4)
    world.broker.sweep()
    assert client.is_known
    world.advance(0.2)
    world.broker.sweep()
    assert not client.is_known


def test_a_short_excuse_without_an_end_keeps_the_longer_one_that_has_an_end(make_world: Callable[..., World]) -> None:
    """As when a node loses its link to another one, and its own lease for a moment."""
    times, now = make_world("bayeux.max_interval_ms=1500").broker.mailboxes.times, 1000.0
    times.excuse(now + 60)
    times.excuse(inf)
    assert times.are_excused(now + 1e9)
    times.end_excuse(now + 1)
    assert times.are_excused(now + 59.9)
    assert not times.are_excused(now + 60)


def test_a_sweep_of_many_sessions_is_cut_into_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)
    for _ in range(200):
        Client(world).handshake()
    world.advance(30)
    world.broker.sweep()
    assert len(world.broker.sessions.by_id) == 200 - 64
    world.settle()
    assert not world.broker.sessions.by_id
    world.close()


def test_sweeps_that_take_longer_than_the_time_between_them_look_at_each_session_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("bayeux.max_interval_ms=600000")
    monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)
    for _ in range(200):
        Client(world).handshake()
    world.advance(1)

    def sweep_often() -> None:
        for _ in range(4):
            world.broker.sweep()
        world.settle()

    assert calls(sweep_often)["SilentSessions._look_at"] == 200
    world.close()
