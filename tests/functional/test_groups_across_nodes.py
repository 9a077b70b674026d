"""Groups of consumers whose members are at several nodes."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.admin.desk import Desk, Receiver
from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.cluster import LONG, NODE, OPERATED, PATIENT, TOKEN
from tests.functional.test_nodes import PERSISTENT, move
from tests.functional.wire import until
from tests.ports import free_port
from tests.server_process import Server

_numbers = count(1)


def member(server: Server, name: str, channel: str) -> Receiver:
    """A member of the group `g`, which settles each message by itself."""
    receiver = Receiver(server)
    receiver.be(name, update=True, settle="message", burst={"maxEntries": 2})
    ask = receiver.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"group": "g"}})
    (reply,) = receiver.send(ask)
    assert reply["successful"] is True, reply
    return receiver


def publish(server: Server, channel: str, *values: int) -> None:
    client = Client(server).start()
    for value in values:
        client.publish(channel, value, **PERSISTENT)


def drained(receivers: list[Receiver], wanted: int) -> list[Any]:
    """What they get and accept, in turns, until there are so many."""
    taken: list[Any] = []
    while len(taken) < wanted:
        for each in receivers:
            messages = each.take(timeout=100)
            while messages:
                taken += [message["data"] for message in messages]
                # Further ones may come with the answer to these statuses.
                messages = each.say(*({"id": one["ext"]["update"]["id"], "state": "OK"} for one in messages))
    return taken


def test_each_message_of_any_node_reaches_one_member(pair: list[Server]) -> None:
    channel = f"/group/{next(_numbers)}"
    members = [member(server, f"client/g{number}/1", channel) for number, server in enumerate(pair)]
    for server in pair:
        publish(server, channel, *range(20))
    assert sorted(drained(members, 40)) == sorted([*range(20), *range(20)])
    for each in members:
        assert each.take() == []


def test_a_group_at_one_node_gets_what_the_other_one_takes(pair: list[Server]) -> None:
    channel = f"/group/{next(_numbers)}"
    there = member(pair[1], "client/alone/1", channel)
    publish(pair[0], channel, 1, 2, 3)
    assert drained([there], 3) == [1, 2, 3]


def test_what_one_member_rejects_another_nodes_member_gets_and_then_it_is_a_dead_letter(pair: list[Server]) -> None:
    channel = f"/group/{next(_numbers)}"
    members = [member(server, f"client/r{number}/1", channel) for number, server in enumerate(pair)]
    publish(pair[0], channel, 7)
    got = []
    while len(got) < 2:
        for number, each in enumerate(members):
            messages = each.take(timeout=200)
            if messages:
                assert [message["data"] for message in messages] == [7]
                each.reject(messages, "user.update.error")
                got.append(number)
    assert sorted(got) == [0, 1]
    publish(pair[1], channel, 8)
    assert drained(members, 1) == [8]


def test_what_a_member_leaves_behind_another_nodes_member_gets(pair: list[Server]) -> None:
    channel = f"/group/{next(_numbers)}"
    leaving = member(pair[0], "client/leaving/1", channel)
    publish(pair[0], channel, 1, 2)
    found = leaving.take(timeout=5000)
    assert found
    staying = member(pair[1], "client/staying/1", channel)
    leaving.send(leaving.message("/meta/disconnect"))
    assert sorted(drained([staying], 2)) == [1, 2]


def test_the_leases_of_a_dead_node_return(start_server: StartServer) -> None:
    first = start_server(NODE, LONG, OPERATED, PATIENT)
    second = start_server(*first.store_sets, NODE, LONG, OPERATED, PATIENT)
    members = [member(server, f"client/d{number}/1", "/dying") for number, server in enumerate((first, second))]
    publish(first, "/dying", *range(8))
    before = [message["data"] for message in members[1].take(timeout=5000)]
    assert before
    second.kill()
    publish(first, "/dying", *range(8, 12))
    move(members[1], first)
    assert sorted(drained(members, 12)) == list(range(12))


def test_a_topic_that_a_group_receives_is_the_same_at_all_nodes(pair: list[Server]) -> None:
    channel = f"/group/{next(_numbers)}"
    desks = [Desk(server, TOKEN) for server in pair]
    members = [member(server, f"client/seen{number}/1", channel) for number, server in enumerate(pair)]
    publish(pair[0], channel, *range(6))
    for count_ in (2, 1):  # with a member at each node, and at the second alone
        shown = until(lambda wanted=count_: seen(desks, channel, wanted))  # leases are on their way
        assert (shown["state"], shown["unreached"], shown["failed"]) == ("ALIVE", 0, 0)
        members[0].send(members[0].message("/meta/disconnect"))


def seen(desks: list[Desk], channel: str, members: int) -> Any:
    """The topic, if both nodes show it with its six messages and so many members of its group."""
    shown = [desk.get(f"/topics{channel}") for desk in desks]
    is_seen = shown[0]["queued"] == 6 and len(shown[0]["groups"][0]["members"]) == members
    return shown[0] if is_seen and shown[0] == shown[1] else None


def test_a_group_at_a_node_that_no_link_reaches_gets_what_the_other_one_takes(start_server: StartServer) -> None:
    """A node finds the groups of the others in the store as well."""
    nowhere = f"cluster.advertise=127.0.0.1:{free_port()}"
    first = start_server(NODE, PATIENT, nowhere, "node.name=a")
    second = start_server(*first.store_sets, NODE, PATIENT, nowhere, "node.name=b")
    channel = f"/group/{next(_numbers)}"
    there = member(second, "client/apart/1", channel)
    publish(first, channel, 1, 2, 3)
    assert drained([there], 3) == [1, 2, 3]
    late = start_server(*first.store_sets, NODE, PATIENT, nowhere, "node.name=c")
    publish(late, channel, 4)
    assert drained([there], 1) == [4]
