"""What sockets and their messages must not cost: tasks, queues and timers."""

from __future__ import annotations

import asyncio
import gc
from asyncio import futures
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from crewel import server
from crewel.extensions import ack
from crewel.settings import Settings, load
from crewel.transports.fast_lane import FastLane
from tests.store_process import own_prefix, shared_store
from tests.transports.wires import Client, SocketClient

pytestmark = pytest.mark.store

SOCKETS = 40
COUNTED = (asyncio.Queue, asyncio.Event, asyncio.Condition, asyncio.StreamReader, asyncio.TimerHandle)
STORED = {"channel": "/room", "data": {"n": 1}, "ext": {"publish": {"persistent": True}}}
LIMIT_S = 20.0


class Watched:
    """What an event loop is asked to start."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[str] = []
        self.timers: list[str] = []
        loop.set_task_factory(self._make)
        at = loop.call_at

        def call_at(when: float, callback: Any, *words: Any, **named: Any) -> asyncio.TimerHandle:
            if callback is not futures._set_result_unless_cancelled:  # type: ignore[attr-defined]
                self.timers.append(repr(callback))  # the rest sleeps: this test does, and tasks that run always
            return at(when, callback, *words, **named)

        monkeypatch.setattr(loop, "call_at", call_at)  # call_later comes by here, too

    def _make(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        self.tasks.append(repr(coroutine))
        return asyncio.Task(coroutine, loop=loop, **named)


@pytest.fixture
def settings() -> Settings:
    assert ack.AckExtension.name in load(None, []).bayeux.extensions  # reads files, which must not happen in the loop
    where = (f"storage.url={shared_store().url}", f"storage.prefix={own_prefix()}")
    return load(None, ["bayeux.max_sessions_per_browser=-1", *where])


def living() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, COUNTED))


async def answers(clients: list[Client]) -> list[dict[str, Any]]:
    """What each has been answered last, once all have an answer."""
    async with asyncio.timeout(LIMIT_S):
        while not all(client.wire.written for client in clients):
            await asyncio.sleep(0.001)  # until the store, another process, has answered
    return [client.reply() for client in clients]


@pytest.mark.parametrize("kind", [SocketClient, Client])
async def test_neither_a_client_nor_its_messages_need_a_task_a_queue_or_a_timer(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, kind: type[Client]
) -> None:
    runner = web.AppRunner(web.Application())
    server.attach(runner.app, settings)
    await runner.setup()
    lane = FastLane(runner.app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    watched = Watched(asyncio.get_running_loop(), monkeypatch)
    opened = [first := kind(lane, acknowledges=False)]
    try:
        first.ask({"channel": "/meta/connect"})
        before = living()
        watched.tasks.clear()
        watched.timers.clear()
        receivers = [kind(lane, acknowledges=False) for _ in range(SOCKETS)]
        publishers = [kind(lane, acknowledges=False) for _ in range(SOCKETS)]
        opened += receivers + publishers
        for client in receivers:
            client.ask({"channel": "/meta/connect"})
            client.ask({"channel": "/room", "data": 1})
            client.receive(client.connect())
        for count in (1, 7):
            for client in publishers:
                client.receive(client.request(*[STORED] * count))
            for reply in await answers(publishers):
                assert reply["ext"]["publish"]["state"] == "OK", reply
        assert len(watched.tasks) < SOCKETS / 4, watched.tasks  # many publishes go to the store together
        assert len(watched.timers) < SOCKETS / 2, watched.timers  # the timers for all of them may fire meanwhile
        grown = living() - before
        assert grown.total() < SOCKETS / 2, grown  # those of the sweeper and of the store, also on a busy machine
    finally:
        asyncio.get_running_loop().set_task_factory(None)
        for client in opened:
            client.hang_up()
        await lane.close(0)
        await runner.cleanup()
