"""A topic that changes at one node has changed at all of them, when the change is answered."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from os import kill
from typing import Any

import pytest

from tests.admin.desk import Desk, Receiver
from tests.conftest import StartServer
from tests.functional.bayeux import data
from tests.functional.cluster import LONG, NODE, OPERATED, TOKEN
from tests.functional.people import Person
from tests.functional.test_nodes import move, wait_for
from tests.functional.topic import read, settle
from tests.functional.wire import until
from tests.server_process import Server

QUICK = "bayeux.sweep_ms=30"
_numbers = count(1)


@pytest.fixture
def channel() -> str:
    return f"/changed/{next(_numbers)}/a"


@pytest.fixture
def persons(pair: list[Server]) -> list[Person]:
    """One at each node."""
    return [Person(server).be() for server in pair]


def publish(person: Person, channel: str, value: Any = "hi", **qos: Any) -> None:
    asked = {"ext": {"publish": qos}} if qos else {}
    reply = person.send(person.message(channel, data=value, **asked))[-1]
    assert reply["successful"] is True, reply


def topic(server: Server, channel: str) -> Any:
    """What an operator is shown of it; nothing if there is none."""
    response = Desk(server, TOKEN).ask("GET", f"/topics{channel}")
    return response.json() if response.status == 200 else None


def test_a_history_that_a_publish_asks_for_is_kept_by_all_nodes(
    pair: list[Server], persons: list[Person], channel: str
) -> None:
    first, second = persons
    publish(first, channel, 0, history={"maxEntries": 3})
    for number in range(1, 6):
        publish(persons[number % 2], channel, number)
    for person in persons:
        assert data(read(person, channel)) == [3, 4, 5]
    shown = [topic(server, channel) for server in pair]
    assert shown[0] == shown[1]
    assert (shown[0]["state"], shown[0]["history"]) == ("ALIVE", {"entries": 3, "maxEntries": 3})
    reader = Receiver(pair[1]).be()
    asked = {"subscribe": {"history": {"numEntries": 2, "newestFirst": False}}}
    reader.send(reader.message("/meta/subscribe", subscription=f"{channel.rpartition('/')[0]}/*", ext=asked))
    assert [each for each in data(reader.take_all()) if each in (4, 5)] == [4, 5]
    publish(second, channel, administrative=True, history={"maxEntries": 1})
    assert data(read(first, channel)) == [5]


def test_a_changed_setting_counts_at_all_nodes_from_its_answer_on(
    pair: list[Server], persons: list[Person], channel: str
) -> None:
    publish(persons[0], channel)
    for most in range(1, 9):
        publish(persons[most % 2], channel, administrative=True, history={"maxEntries": most}, destroyDelay=most)
        for server in pair:
            shown = topic(server, channel)
            assert (shown["history"]["maxEntries"], shown["destroyDelay"]) == (most, most)


def test_an_erasure_ends_subscriptions_and_messages_at_all_nodes(
    pair: list[Server], persons: list[Person], channel: str
) -> None:
    exact, other = Receiver(pair[1]).be(), Receiver(pair[1]).be()
    for each in (exact, other):
        each.subscribe(channel)
    publish(persons[0], channel, 1, history={"maxEntries": 5})
    until(lambda: topic(pair[0], channel)["queued"] == 2)
    settle(exact)
    assert Desk(pair[0], TOKEN).ask("DELETE", f"/topics{channel}?force=true").status == 200
    assert [topic(server, channel) for server in pair] == [None, None]
    assert data(settle(exact)) == [None]  # the notice
    assert data(other.take_all()) == [None]
    publish(persons[1], channel, 2, persistent=True)
    assert exact.take_all() == []
    assert data(read(persons[1], channel)) == []


def test_a_topic_lives_as_long_as_a_node_refers_to_it(start_server: StartServer, channel: str) -> None:
    first = start_server(NODE, LONG, OPERATED, QUICK)
    pair = [first, start_server(*first.store_sets, NODE, LONG, OPERATED, QUICK)]
    reader, writer = Receiver(pair[1]).be(), Person(pair[0]).be()
    reader.subscribe(channel)
    other = f"{channel}/other"
    for each in (channel, other):
        publish(writer, each, persistent=True, destroyDelay=1, history={"maxEntries": 0})
    until(lambda: topic(pair[0], other) is None)  # by then the other one would have ended too
    assert [topic(server, channel)["state"] for server in pair] == ["ALIVE", "ALIVE"]
    settle(reader)
    reader.send(reader.message("/meta/unsubscribe", subscription=channel))
    until(lambda: [topic(server, channel) for server in pair] == [None, None])


def test_changes_that_cross_leave_all_nodes_with_the_same(
    pair: list[Server], persons: list[Person], channel: str
) -> None:
    def change(place: int, most: int) -> None:
        publish(persons[place], channel, administrative=True, history={"maxEntries": most + 10 * place})

    for most in (1, 2, 3, 4):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(change, (0, 1), (most, most)))
        shown = [topic(server, channel)["history"]["maxEntries"] for server in pair]
        assert shown[0] == shown[1]


def test_an_heir_parts_the_sessions_that_come_from_an_erased_topic(start_server: StartServer, channel: str) -> None:
    first = start_server(NODE, LONG, OPERATED)
    second = start_server(*first.store_sets, NODE, LONG, OPERATED)
    reader = Receiver(second).be()
    reader.subscribe(channel)
    publish(Person(first).be(), channel, 1, history={"maxEntries": 5})
    settle(reader)
    until(lambda: topic(first, channel)["queued"] == 0)
    kill(second.pid, signal.SIGSTOP)
    assert Desk(first, TOKEN).ask("DELETE", f"/topics{channel}").status == 200  # it does not wait for ever
    second.kill()
    move(reader, first)
    taken = wait_for(reader, 1)  # the dead node may not have said that the message is settled
    taken += [] if None in data(taken) else wait_for(reader, 1)
    assert data(taken) in ([None], [1, None])
    reader.accept([each for each in taken if each["data"]])
    until(lambda: topic(first, channel) is None)
