"""What operators ask about many sessions or topics is worked out in turns of the loop: others have theirs in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from crewel.admin import overview_resource
from crewel.admin.administration import Administration
from crewel.admin.commands import run
from crewel.admin.joined_receivers import joined_shared
from crewel.admin.receiver_facts import last_stop
from crewel.admin.receiver_resource import RECEIVER_ROUTES
from crewel.admin.route import Ask
from crewel.admin.session_resource import SESSION_ROUTES
from crewel.admin.subject_resource import SUBJECT_ROUTES
from crewel.bayeux.codec import encode
from crewel.event_loop import encoded_in_turns, sorted_in_turns
from crewel.security.grants import Role, Scope
from crewel.transports.forwarded import Client
from tests.admin.test_joined_lists import group
from tests.broker.stored_world import Receiver, StoredWorld, store
from tests.work import calls

pytestmark = pytest.mark.store

MANY = 30


def asked(admin: Administration) -> Ask:
    """A request for a page with all of them."""
    request: Any = None  # it is not looked at
    return Ask(admin, "an operator", request, {}, {"count": MANY}, Client(None, "http", ""), Scope(Role.VIEW), None)


@pytest.fixture
def admin(stored: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> Administration:
    """An administration of many sessions and topics; each step of long work is a turn of its own."""
    for number in range(MANY):
        Receiver(stored).started(f"/a/{number}", name=f"joe{number:02}/1")
    stored.settle()
    monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)
    monkeypatch.setattr("crewel.event_loop._AT_ONCE", 1)
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


@pytest.mark.parametrize(
    "name",
    [
        "aliveCallbackClients",
        "subscriptionList",
        "numSubscriptions",
        "numWaiting",
        "dump",
        "topicList",
        "sessionList",
    ],
)
def test_others_have_turns_while_a_command_looks_at_many(stored: StoredWorld, admin: Administration, name: str) -> None:
    _, turns = turns_of(stored, run(admin, f"__cmd:?{name}", "an operator", Scope(Role.DESTROY)))
    assert turns >= MANY


def test_the_whole_dump_is_there(stored: StoredWorld, admin: Administration) -> None:
    answer, _ = turns_of(stored, run(admin, "__cmd:?dump", "an operator", Scope(Role.DESTROY)))
    assert [each["name"] for each in answer["result"]["sessions"]] == [f"client/joe{n:02}/1" for n in range(MANY)]


def test_others_have_turns_while_sessions_are_listed(stored: StoredWorld, admin: Administration) -> None:
    answer, turns = turns_of(stored, SESSION_ROUTES[0].handler(asked(admin)))
    assert len(answer["sessions"]) == MANY
    assert turns >= 2 * MANY  # they are chosen, and then described


def test_others_have_turns_while_receivers_are_listed(stored: StoredWorld, admin: Administration) -> None:
    answer, turns = turns_of(stored, RECEIVER_ROUTES[0].handler(asked(admin)))
    assert [each["name"] for each in answer["receivers"]] == [f"client/joe{number:02}/1" for number in range(MANY)]
    assert turns >= 2 * MANY


def test_sessions_at_rest_are_not_looked_at_closely_for_their_trouble(
    stored: StoredWorld, admin: Administration
) -> None:
    ask = replace(asked(admin), fields={"count": 3, "sort": "trouble"})
    store(stored, "/a/7", 1)
    answers: list[Any] = []
    made = calls(lambda: answers.append(stored.loop.run_until_complete(RECEIVER_ROUTES[0].handler(ask))))
    assert [each["name"] for each in answers[0]["receivers"]] == [f"client/joe{number:02}/1" for number in (7, 0, 1)]
    assert made["session_facts"] == 1 + 3  # the one that is not, and those of the page


def test_others_have_turns_while_subjects_are_listed(stored: StoredWorld, admin: Administration) -> None:
    answer, turns = turns_of(stored, SUBJECT_ROUTES[0].handler(asked(admin)))
    assert [each["subject"] for each in answer["subjects"]] == [f"joe{number:02}" for number in range(MANY)]
    assert turns >= MANY


def test_others_have_turns_while_the_sessions_of_a_subject_are_named(
    stored: StoredWorld, admin: Administration
) -> None:
    names = [f"client/ann/{number}" for number in range(1, 10)]
    for name in reversed(names):
        Receiver(stored).started(name=name.removeprefix("client/"))
    answer, turns = turns_of(stored, SUBJECT_ROUTES[1].handler(replace(asked(admin), path={"subject": "ann"})))
    assert answer["sessions"] == names
    assert turns >= 3 * len(names)  # they are collected, spread and sorted
    answer, turns = turns_of(stored, run(admin, "__cmd:client/ann/?sessionList", "an operator", Scope(Role.VIEW)))
    assert answer["result"] == names
    assert turns >= 3 * len(names)


def test_the_members_of_an_empty_queue_are_not_looked_at(stored: StoredWorld, admin: Administration) -> None:
    answers: list[Any] = []
    made = calls(lambda: answers.append(stored.loop.run_until_complete(SUBJECT_ROUTES[0].handler(asked(admin)))))
    assert [each["causes"] for each in answers[0]["subjects"]] == [[]] * MANY
    assert made["ServerView.takes"] == 0


def test_others_have_turns_while_groups_are_looked_at(stored: StoredWorld, admin: Administration) -> None:
    worker = Receiver(stored).started(name="worker/1")
    for number in range(MANY):
        worker.say("/meta/subscribe", subscription=f"/jobs/{number:02}", ext={"subscribe": {"group": "workers"}})
    (empty, working), turns = turns_of(stored, overview_resource._groups(admin))
    assert (empty, working) == ([], [(f"/jobs/{number:02}", "workers") for number in range(MANY)])
    assert turns >= MANY


def test_others_have_turns_while_groups_of_several_nodes_are_joined(stored: StoredWorld, admin: Administration) -> None:
    assert admin

    async def joined() -> list[str]:
        rows = [group("ALIVE", name=f"/jobs/{number} workers") for number in range(MANY)]
        return [row["name"] async for row in joined_shared(rows * 2)]

    names, turns = turns_of(stored, joined())
    assert names == [f"/jobs/{number} workers" for number in range(MANY)]
    assert turns >= 3 * MANY  # those of two nodes are joined, and then judged


def test_others_have_turns_while_sessions_are_ended(stored: StoredWorld, admin: Administration) -> None:
    for number in range(2, 10):
        Receiver(stored).started(name=f"joe00/{number}")
    answer, turns = turns_of(stored, run(admin, "__cmd:client/joe00/?killClient", "an operator", Scope(Role.DESTROY)))
    assert answer["result"] == 9
    assert turns >= 9


def test_others_have_turns_while_waiting_messages_are_counted(stored: StoredWorld, admin: Administration) -> None:
    metrics = admin.broker.metrics
    store(stored, "/a/7", 1, 2)
    assert "crewel_waiting 0.0" in metrics.exposition().decode()
    _, turns = turns_of(stored, metrics.measure())
    assert "crewel_waiting 2.0" in metrics.exposition().decode()
    assert turns >= MANY


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"result": []},
        {"result": ["a", 'b"', None, 1.5, {"c": [1]}], "next": "", "deeper": {"a": [True, [2, 3]]}},
        ["alone"],
    ],
)
def test_a_long_answer_is_encoded_like_a_short_one(stored: StoredWorld, admin: Administration, value: Any) -> None:
    assert admin
    encoded, _ = turns_of(stored, encoded_in_turns(value))
    assert encoded == encode(value)


def test_others_have_turns_while_an_answer_is_encoded(stored: StoredWorld, admin: Administration) -> None:
    assert admin
    names = [f"client/joe/{number}" for number in range(MANY)]
    encoded, turns = turns_of(stored, encoded_in_turns({"result": names}))
    assert encoded == encode({"result": names})
    assert turns >= MANY


def test_names_are_sorted_in_turns(stored: StoredWorld, admin: Administration) -> None:
    assert admin
    names = [f"client/{number * 7 % 31:02}" for number in range(31)] * 2
    ordered, turns = turns_of(stored, sorted_in_turns(names))
    assert ordered == sorted(names)
    assert turns >= 31


@pytest.mark.parametrize(("value", "generation"), [("", 1), ("=false", 1), ("=true", 2)])
def test_only_who_asks_for_it_stops_the_server_for_all_garbage(
    stored: StoredWorld, admin: Administration, monkeypatch: pytest.MonkeyPatch, value: str, generation: int
) -> None:
    monkeypatch.setattr("crewel.admin.node_resource.gc.collect", lambda collected: collected)
    answer, _ = turns_of(stored, run(admin, f"__cmd:?gc{value}", "an operator", Scope(Role.DESTROY)))
    assert answer["result"] == generation


def test_a_session_that_ends_meanwhile_is_left_out(stored: StoredWorld, admin: Administration) -> None:
    async def dump() -> Any:
        task = asyncio.get_running_loop().create_task(run(admin, "__cmd:?dump", "an operator", Scope(Role.DESTROY)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        last = admin.find(f"client/joe{MANY - 1:02}/1")
        assert last is not None
        stored.broker.disconnect(last)
        return await task

    answer = stored.loop.run_until_complete(dump())
    assert len(answer["result"]["sessions"]) == MANY - 1


def test_of_a_group_with_very_many_members_none_is_asked_why_it_takes_nothing() -> None:
    unasked: Any = None
    assert last_stop(unasked, [unasked] * 101) == (None, "")
