"""Transient messages reach the subscribers of all nodes."""

from __future__ import annotations

import pytest

from tests.admin.desk import Receiver
from tests.conftest import StartServer
from tests.functional.bayeux import Client, data
from tests.functional.cluster import LONG, NODE
from tests.functional.frames import SocketClient
from tests.functional.people import Person
from tests.functional.post import comes
from tests.functional.wire import figures
from tests.server_process import Server


def lost(server: Server) -> float:
    return figures(server)["crewel_bus_lost_total"]


def test_a_message_reaches_the_subscribers_of_the_other_node_in_order(pair: list[Server]) -> None:
    listeners = [SocketClient(server).start() for server in (*pair, *pair)]
    for listener, pattern in zip(listeners, ("/bus/a", "/bus/*", "/bus/**", "/bus/a"), strict=True):
        listener.subscribe(pattern)
        listener.ask_connect()
    publishers = [SocketClient(server).start() for server in pair]
    for number in range(40):
        publishers[0].publish("/bus/a", number)
    for listener in listeners:
        assert listener.heard(40) == list(range(40))
    publishers[1].publish("/bus/b", "other")
    for listener in listeners[1:3]:
        assert listener.heard() == ["other"]
    assert [lost(server) for server in pair] == [0, 0]


def test_a_subscribe_counts_on_all_nodes_from_its_answer(pair: list[Server]) -> None:
    client, publisher = SocketClient(pair[0]).start(), SocketClient(pair[1]).start()
    client.ask_connect()
    for number in range(30):
        client.subscribe(f"/new/{number}")
        publisher.publish(f"/new/{number}", number)
    assert client.heard(30) == list(range(30))


def test_a_publisher_gets_its_own_message_once_and_after_an_unsubscribe_nothing_comes(pair: list[Server]) -> None:
    client, other = Client(pair[0]).start(), Client(pair[1]).start()
    for each in (client, other):
        each.subscribe("/own")
    assert data(client.publish("/own", 1)) == [1]
    assert data(other.connect()) == [1]
    other.send(other.message("/meta/unsubscribe", subscription="/own"))
    client.publish("/own", 2)
    client.publish("/own", 3)
    other.subscribe("/end")
    client.publish("/end", "end")
    assert data(other.connect()) == ["end"]


def test_filters_hold_for_messages_of_another_node(pair: list[Server]) -> None:
    client, sender = Client(pair[0]).start(), Client(pair[1]).start()
    asked = {"subscribe": {"filter": "data.n > `2`"}}
    (reply,) = client.send(client.message("/meta/subscribe", subscription="/f", ext=asked))
    assert reply["successful"] is True
    for number in (1, 3, 2, 4):
        sender.publish("/f", {"n": number})
    taken: list[dict[str, int]] = []
    while len(taken) < 2:
        taken += data(client.connect())
    assert taken == [{"n": 3}, {"n": 4}]


def test_an_answer_reaches_the_node_of_the_one_who_asked(pair: list[Server]) -> None:
    asking = Person(pair[0]).be()
    channel = f"/ret/{asking.login['replyId']}/1000000"
    asking.subscribe(f"/ret/{asking.login['replyId']}/*")
    Client(pair[1]).start().publish(channel, "the answer")
    assert data(asking.take(timeout=5000)) == ["the answer"]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_delivery_tells_its_route(pair: list[Server], *, persistent: bool) -> None:
    readers = [Receiver(server).be() for server in pair]
    channel = f"/route/{persistent}"
    for reader in readers:
        reader.subscribe(channel)
    asked = {"ext": {"publish": {"persistent": persistent}}}
    sender = Client(pair[0]).start()
    sender.send(sender.message(channel, data=1, **asked))
    here, there = (comes(reader)[0]["ext"]["update"] for reader in readers)
    assert "route" not in here
    first, second = there["route"]
    assert [(each["node"], each["stratum"], each["dirtyRead"]) for each in (first, second)] == [
        ("a", 0, False),
        ("b", 1, False),
    ]
    assert first.get("timestamp") == (there["rcvTimestamp"] if persistent else None)
    assert second["timestamp"].isdigit()


def test_nodes_that_join_hear_and_are_heard_from_their_ready_line_on(start_server: StartServer) -> None:
    first = start_server(NODE, LONG)
    early = SocketClient(first).start()
    early.subscribe("/join")
    early.ask_connect()
    second = start_server(*first.store_sets, NODE, LONG)
    Client(second).start().publish("/join", 1)
    assert early.heard() == [1]
    late = SocketClient(second).start()
    late.subscribe("/join")
    late.ask_connect()
    Client(first).start().publish("/join", 2)
    assert late.heard() == [2]
