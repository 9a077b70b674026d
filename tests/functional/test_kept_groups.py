"""Groups that a rule keeps: what is published while they have no member waits for the next one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.desk import Desk, Receiver, publish
from tests.conftest import StartServer
from tests.functional.bayeux import data
from tests.functional.cluster import LONG, NODE, OPERATED, TOKEN
from tests.functional.test_groups_across_nodes import drained, member
from tests.functional.wire import until
from tests.server_process import Server

KEPT = 'topics={"/kept/*":{"groups":{"keep":["g"]}}}'
CHANNEL = "/kept/a"
SETS = (KEPT, OPERATED)


def waiting(server: Server) -> Any:
    """How many messages wait for the group, as the topic has it."""
    shown = Desk(server, TOKEN).ask("GET", f"/topics{CHANNEL}")
    return shown.json()["queued"] if shown.status == 200 else None


def leave(receiver: Receiver) -> None:
    receiver.send(receiver.message("/meta/disconnect"))


def test_what_comes_before_the_first_member_and_after_the_last_waits_for_the_next(start_server: StartServer) -> None:
    server = start_server(*SETS)
    publish(server, CHANNEL, 2)
    first = member(server, "client/first/1", "/kept/*")
    assert sorted(drained([first], 2)) == [0, 1]
    leave(first)
    publish(server, CHANNEL, 2, first=2)
    until(lambda: waiting(server) == 2)
    (group,) = Desk(server, TOKEN).get("/receivers?kind=group")["receivers"]
    assert (group["name"], group["waiting"], group["members"]) == ("/kept/* g", 2, 0)
    assert sorted(drained([member(server, "client/second/1", "/kept/*")], 2)) == [2, 3]


def test_what_the_last_member_has_open_waits_too(start_server: StartServer) -> None:
    server = start_server(*SETS)
    first = member(server, "client/first/1", "/kept/*")
    publish(server, CHANNEL, 3)
    assert first.take(timeout=5000)
    first.send(first.message("/meta/unsubscribe", subscription="/kept/*"))
    leave(first)
    assert sorted(drained([member(server, "client/second/1", "/kept/*")], 3)) == [0, 1, 2]


def test_what_waits_for_a_kept_group_survives_a_kill(start_server: StartServer) -> None:
    before = start_server(*SETS)
    publish(before, CHANNEL, 3)
    leave(member(before, "client/gone/1", "/other"))
    before.kill()
    server = start_server(*before.store_sets, *SETS)
    publish(server, CHANNEL, 1, first=3)
    until(lambda: waiting(server) == 4)
    assert sorted(drained([member(server, "client/next/1", "/kept/*")], 4)) == [0, 1, 2, 3]


def test_messages_of_a_group_lapse_when_the_rule_is_gone(start_server: StartServer) -> None:
    before = start_server(*SETS)
    publish(before, CHANNEL, 3)
    before.end_well()
    server = start_server(*before.store_sets, OPERATED)
    assert not waiting(server)
    publish(server, CHANNEL, 1, first=3)
    late = member(server, "client/next/1", "/kept/*")
    publish(server, CHANNEL, 1, first=4)
    assert drained([late], 1) == [4]


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_queue_of_a_kept_group_is_bounded(start_server: StartServer, nodes: int) -> None:
    sets = (*SETS, *((NODE, LONG) if nodes == 2 else ()), "ptp.group_queue_max_entries=5")
    servers = [start_server(*sets, "node.name=a")]
    if nodes == 2:
        servers.append(start_server(*servers[0].store_sets, *sets, "node.name=b"))
    for number in range(8):
        publish(servers[number % nodes], CHANNEL, 1, first=number)
    letters = until(lambda: found if len(found := Desk(servers[0], TOKEN).letters()) == 3 else None)
    assert {each["errorCode"] for each in letters} == {"resource.overflow.queue.entries"}
    assert [waiting(server) for server in servers] == [5] * nodes


def test_a_member_of_any_node_gets_what_all_have_taken(start_server: StartServer) -> None:
    sets = (*SETS, NODE, LONG, "ptp.group_queue_max_entries=5")
    first = start_server(*sets, "node.name=a")
    second = start_server(*first.store_sets, *sets, "node.name=b")
    publish(first, CHANNEL, 2)
    publish(second, CHANNEL, 2, first=2)
    until(lambda: [waiting(each) for each in (first, second)] == [4, 4])
    there = member(second, "client/there/1", "/kept/*")
    assert sorted(drained([there], 4)) == [0, 1, 2, 3]
    for number in range(4, 16):  # more than the queue holds, one after the other
        publish(first, CHANNEL, 1, first=number)
        assert drained([there], 1) == [number]
    assert Desk(first, TOKEN).letters() == []
    leave(there)
    publish(first, CHANNEL, 1, first=20)
    assert data(member(first, "client/here/1", "/kept/*").take(timeout=5000)) == [20]
