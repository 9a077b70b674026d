"""The names of sessions that are not stored, while the store cannot be reached for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crewel.broker.writing.write_queue import WriteQueue
from crewel.errors import StoreError, StoreUnavailable
from crewel.nodes import remote_subjects
from crewel.nodes.remote_subjects import RemoteSubjects
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step

NAME = "client/ann/1"


class Store:
    """A store that has names only."""

    def __init__(self) -> None:
        self.is_up = True
        self.until_look = inf
        self.names: set[str] = set()

    def submit(self, steps: Sequence[Step[Any]], done: Callable[[list[Any]], None]) -> None:
        answers = [self._run(step) if self.is_up else StoreUnavailable("away") for step in steps]
        asyncio.get_running_loop().call_soon(done, answers)

    def _run(self, step: Step[Any]) -> int | None:
        if step.script == "claim":
            self.names.add(str(step.arguments[1]))
            return None
        self.names.discard(str(step.arguments[0]))
        return 1


class World:
    """A node whose sessions are not stored."""

    def __init__(self) -> None:
        self.store = Store()
        self.live: dict[str, Any] = {}
        writing: WriteQueue[Any] = WriteQueue(cast("Any", self.store), asyncio.get_running_loop(), cast("Any", None))
        writing.is_closed = False
        access: Any = SimpleNamespace(writing=writing, keys=Keys("p:"), token="t")
        unused: Any = SimpleNamespace(serve=lambda *_: None)
        names: Any = SimpleNamespace(find=self.live.get)
        self.subjects = RemoteSubjects(access, names, unused, unused, unused)

    async def log_in(self) -> None:
        await self.subjects.claim(NAME, -1, takes_ptp=True)
        self.live[NAME] = object()

    def end(self) -> None:
        session: Any = SimpleNamespace(name=NAME, durable=None)
        del self.live[NAME]
        self.subjects.on_removed(session, False)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_subjects, "_AGAIN_S", 0.0)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_name_that_was_claimed_again_is_not_unclaimed_by_the_session_before() -> None:
    world = World()
    await world.log_in()
    world.store.is_up = False
    world.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.store.is_up = True
    await world.log_in()
    await turns()
    assert world.store.names == {NAME}


async def test_a_name_is_unclaimed_as_soon_as_the_store_is_back() -> None:
    world = World()
    await world.log_in()
    world.store.is_up = False
    world.end()
    await turns()
    assert world.store.names == {NAME}
    world.store.is_up = True
    await turns()
    assert world.store.names == set()
    assert not world.subjects._asked


async def test_a_login_that_fails_does_not_keep_the_name_of_the_session_before_it() -> None:
    world = World()
    await world.log_in()
    world.store.is_up = False
    world.end()
    await turns()
    with pytest.raises(StoreError):
        await world.log_in()
    world.store.is_up = True
    await turns()
    assert world.store.names == set()


async def test_a_session_keeps_its_name_whose_new_login_fails() -> None:
    world = World()
    await world.log_in()
    world.store.is_up = False
    with pytest.raises(StoreError):
        await world.log_in()
    world.store.is_up = True
    await turns()
    assert world.store.names == {NAME}
    assert not world.subjects._asked
