"""Prefixes, subjects and groups of several nodes, each as one."""

from __future__ import annotations

from time import time
from typing import Any

import pytest

from crewel.admin.joined_receivers import is_wanted, joined_shared, shared_kinds
from crewel.admin.prefix_resource import joined_prefixes


def group(state: str, **fields: Any) -> dict[str, Any]:
    usual = {"kind": "group", "name": "/jobs/* workers", "members": 1, "waiting": 3, "maxEntries": 10}
    return usual | {"state": state, "oldest": None, "causes": []} | fields


async def joined_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row async for row in joined_shared(rows)]


async def test_a_group_stands_as_its_members_at_all_nodes_do() -> None:
    (row,) = await joined_rows([group("EMPTY", members=0, waiting=4), group("ALIVE", members=2)])
    assert (row["state"], row["members"], row["waiting"]) == ("ALIVE", 2, 4)
    assert (row["conditions"], row["causes"], row["trouble"]) == (["connected"], [], 4)
    (row,) = await joined_rows([group("EMPTY", members=0), group("POLLING")])
    assert (row["conditions"], row["cause"]) == (["away"], "all its members are away or on hold")
    (row,) = await joined_rows([group("EMPTY", members=0, waiting=10)] * 2)
    assert row["conditions"] == ["full", "without a member"]
    stops = [[{"kind": "members", "level": "bad", "text": "away", "since": since}] for since in (7, 9)]
    (row,) = await joined_rows([group("POLLING", causes=stops[0]), group("POLLING", causes=stops[1])])
    assert (row["causes"][0]["level"], row["since"]) == ("bad", 9)  # since the last of its members has stopped


async def test_a_group_is_chosen_by_what_all_nodes_have() -> None:
    (row,) = await joined_rows([group("ALIVE"), group("EMPTY", members=0)])
    assert is_wanted(row, {})
    assert is_wanted(row, {"state": "ALIVE", "condition": "connected"})
    assert not is_wanted(row, {"state": "EMPTY"})
    assert not is_wanted(row, {"condition": "without a member"})


async def test_a_queue_that_one_node_has_seen_grow_is_full_soon_at_all() -> None:
    full_at = int(time() * 1000) + 120_000
    filling = {"kind": "filling", "level": "bad", "text": "soon", "fullAt": full_at, "perMinute": 2, "share": 0.3}
    (row,) = await joined_rows([group("EMPTY", members=0), group("ALIVE"), group("EMPTY", causes=[filling], members=0)])
    assert (row["conditions"], row["since"]) == (["soon full", "connected"], None)
    assert row["cause"] == "its queue will be full in 2 minutes: 3 of 10 messages, 2 messages more a minute"
    assert is_wanted(row, {"cause": "filling"})
    assert not is_wanted(row, {"cause": "full"})
    (row,) = await joined_rows([group("ALIVE", waiting=10)])
    assert row["cause"] == "its queue is full: 10 of 10 messages; further ones become dead letters"
    assert is_wanted(row, {"cause": "full"})


async def test_a_group_falls_behind_at_all_if_the_node_with_its_members_says_so() -> None:
    since = int(time() * 1000) - 90_000
    slow = {"kind": "slow", "level": "warn", "text": "slow", "since": since, "oldest": None, "perMinute": 30}
    (row,) = await joined_rows([group("EMPTY", members=0), group("ALIVE", causes=[slow], waiting=300, maxEntries=900)])
    assert (row["conditions"], row["since"]) == (["falling behind", "connected"], since)
    assert row["cause"] == "it takes less than comes: 30 messages more a minute, 300 wait"
    fewer = slow | {"kind": "recovering", "perMinute": -30}
    (row,) = await joined_rows([group("ALIVE", causes=[fewer], waiting=300, maxEntries=900)])
    assert row["conditions"] == ["catching up", "connected"]
    (row,) = await joined_rows([group("POLLING", causes=[slow], waiting=300, maxEntries=900)])
    assert row["conditions"] == ["away"]


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, ["subject", "group"]),
        ({"cause": "full"}, ["subject", "group"]),
        ({"held": False}, ["subject", "group"]),
        ({"kind": "group"}, ["group"]),
        ({"kind": "session"}, []),
        ({"held": True}, []),
        ({"transport": "none"}, []),
        ({"address": "10."}, []),
    ],
)
def test_filters_of_clients_leave_only_sessions(fields: dict[str, Any], kinds: list[str]) -> None:
    assert shared_kinds(fields) == kinds


def page(*prefixes: str, following: str = "", names: bool = True) -> dict[str, Any]:
    """A page of prefixes, each with the topics that its name ends in: `/a:12` has the topics 1 and 2."""
    parts = [each.partition(":")[::2] for each in prefixes]
    rows = [{"prefix": name, "topics": len(ids), "deeper": 0, "history": 5, "queued": 1} for name, ids in parts]
    told = {"below": "/", "prefixes": rows, "next": following}
    topics = {name: [[int(each), 0, 5, 1] for each in ids] for name, ids in parts}
    return told | ({"topics": topics} if names else {})


def test_a_topic_that_two_nodes_have_is_counted_once() -> None:
    told = joined_prefixes([page("/a:12", "/b:3"), page("/a:23", "/c:4")], 100)
    assert [(row["prefix"], row["topics"]) for row in told["prefixes"]] == [("/a", 3), ("/b", 1), ("/c", 1)]
    assert (told["prefixes"][0]["history"], told["prefixes"][0]["queued"], told["next"]) == (15, 4, "")


def test_a_node_with_too_many_to_name_says_how_many_at_least() -> None:
    told = joined_prefixes([page("/a:123"), page("/a:45", names=False)], 100)
    assert [(row["topics"], row["queued"]) for row in told["prefixes"]] == [(3, 2)]


def test_what_is_behind_the_end_of_one_page_comes_with_the_next() -> None:
    told = joined_prefixes([page("/a:1", "/c:1", following="/c"), page("/b:1", "/d:1")], 100)
    assert ([row["prefix"] for row in told["prefixes"]], told["next"]) == (["/a", "/b", "/c"], "/c")
    told = joined_prefixes([page("/a:1", "/c:1"), page("/b:1")], 2)
    assert ([row["prefix"] for row in told["prefixes"]], told["next"]) == (["/a", "/b"], "/b")
