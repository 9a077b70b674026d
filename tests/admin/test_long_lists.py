"""What operators ask about many sessions or topics is worked out in turns of the loop: others have theirs in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from crewel.admin.administration import Administration
from crewel.admin.commands import run
from crewel.admin.route import Ask
from crewel.admin.session_resource import SESSION_ROUTES
from tests.broker.stored_world import Receiver, StoredWorld

MANY = 30


@pytest.fixture
def stored() -> Iterator[StoredWorld]:
    world = StoredWorld()
    yield world
    world.close()


@pytest.fixture
def admin(stored: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> Administration:
    """An administration of many sessions and topics; each step of long work is a turn of its own."""
    for number in range(MANY):
        Receiver(stored).started(f"/a/{number}", name=f"joe{number:02}/1")
    stored.settle()
    monkeypatch.setattr("crewel.broker.turns.LONGEST_S", 0.0)
    return Administration(stored.broker)


def turns_of(world: StoredWorld, work: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """The result, and how many turns others had before it was there."""

    async def count() -> tuple[Any, int]:
        task = asyncio.get_running_loop().create_task(work)
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return task.result(), turns

    return world.loop.run_until_complete(count())


@pytest.mark.parametrize("name", ["aliveCallbackClients", "subscriptionList", "numWaiting", "dump", "topicList"])
def test_others_have_turns_while_a_command_looks_at_many(stored: StoredWorld, admin: Administration, name: str) -> None:
    _, turns = turns_of(stored, run(admin, f"__cmd:?{name}", "an operator"))
    assert turns >= MANY


def test_the_whole_dump_is_there(stored: StoredWorld, admin: Administration) -> None:
    answer, _ = turns_of(stored, run(admin, "__cmd:?dump", "an operator"))
    assert [each["name"] for each in answer["result"]["sessions"]] == [f"client/joe{n:02}/1" for n in range(MANY)]


def test_others_have_turns_while_sessions_are_listed(stored: StoredWorld, admin: Administration) -> None:
    request: Any = None  # it is not looked at
    answer, turns = turns_of(stored, SESSION_ROUTES[0].handler(Ask(admin, "an operator", request, {}, {"count": MANY})))
    assert len(answer["sessions"]) == MANY
    assert turns >= 2 * MANY  # they are chosen, and then described


def test_a_session_that_ends_meanwhile_is_left_out(stored: StoredWorld, admin: Administration) -> None:
    async def dump() -> Any:
        task = asyncio.get_running_loop().create_task(run(admin, "__cmd:?dump", "an operator"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        last = admin.find(f"client/joe{MANY - 1:02}/1")
        assert last is not None
        stored.broker.disconnect(last)
        return await task

    answer = stored.loop.run_until_complete(dump())
    assert len(answer["result"]["sessions"]) == MANY - 1
