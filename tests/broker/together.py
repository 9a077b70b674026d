"""Steps that reach the store all at once, so that their answers come in one turn of the loop."""

from __future__ import annotations

from asyncio import Future, Task
from collections.abc import Coroutine
from typing import Any

from tests.broker.stored_world import StoredWorld
from tests.broker.world import Client, Request, World


class Together:
    """What is asked of the store from now on reaches it with `close`."""

    def __init__(self, world: StoredWorld) -> None:
        self._world = world
        self._done: Future[None] = world.loop.create_future()
        world.access.writing.in_turn(lambda: None, lambda _: self._done)
        World.settle(world)

    def ask(self, work: Coroutine[Any, Any, Any]) -> Task[Any]:
        """Begin this, and go on until it waits for a step."""
        task = self._world.loop.create_task(work)
        for _ in range(3):
            World.settle(self._world)
            self._world.wait(self._world.store.reader.ping())  # what it reads before has been answered then
        return task

    def send(self, client: Client, message: dict[str, Any]) -> Request:
        """Let a client send this."""
        peer = Request(client.browser)
        World.receive(self._world, peer, message)
        World.settle(self._world)
        return peer

    def close(self) -> None:
        """Let the store answer everything."""
        self._done.set_result(None)
        self._world.settle()
