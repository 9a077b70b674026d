"""Several servers on one store: what one stores reaches the subscribers of all, and the sessions of a dead one live on."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.admin.alert_rules import LATER, SOON, Alert, Story, said_by
from tests.admin.desk import Desk
from tests.cli.command import assert_refused, crewel
from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message
from tests.functional.cluster import LONG, NODE, TOKEN
from tests.functional.people import Person
from tests.functional.wire import Connection, figures, until
from tests.server_process import Server

SHORT = "cluster.lease_ms=5000"
"""Long enough that no node of a loaded machine is taken for dead that was not stopped."""
PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


def inherited(server: Server) -> float:
    """How many sessions of dead nodes the server has taken over."""
    return figures(server)["crewel_inherited_sessions_total"]


def publish(server: Server, *values: int, channel: str = "/a") -> list[str]:
    """Store these on a node; returns the ids."""
    client = Client(server).start()
    return [client.publish(channel, each, **PERSISTENT)[-1]["ext"]["publish"]["id"] for each in values]


def move(person: Person, server: Server) -> None:
    """As a client does whose balancer sends it to another server."""
    person.server = server
    person.forget_connections()


def values(messages: list[Message]) -> list[Any]:
    return [each["data"] for each in messages]


def wait_for(person: Person, count: int) -> list[Message]:
    """The messages of so many connects as it takes to get so many."""
    taken: list[Message] = []
    until(lambda: taken.extend(person.take(timeout=2000)) or len(taken) >= count)
    return taken


def listed(server: Server, tmp_path: Path) -> dict[str, Message]:
    """What `crewel nodes` says, by name."""
    ended = crewel("nodes", "--url", server.base, "--json", directory=tmp_path, environ={"CREWEL_TOKEN": TOKEN})
    assert ended.status == 0, ended.err
    return {each["node"]: each for each in map(json.loads, ended.out.splitlines())}


def test_a_stored_message_reaches_the_subscribers_of_all_nodes(pair: list[Server]) -> None:
    reliable = [Person(server).be() for server in pair]
    plain = [Client(server).start() for server in pair]
    for each in (*reliable, *plain):
        each.subscribe("/a")
    (first,) = publish(pair[0], 1)
    for person in reliable:
        (message,) = wait_for(person, 1)
        assert (message["data"], message["id"]) == (1, first)
    for client in plain:
        (message,) = (each for each in client.connect() if "data" in each)
        assert (message["data"], message["id"]) == (1, first)


def test_all_nodes_deliver_in_the_order_of_the_log_and_once(pair: list[Server]) -> None:
    people = [Person(server).be() for server in pair]
    for person in people:
        person.subscribe("/a/**")
    publishers = [Client(server).start() for server in pair]
    chooser = random.Random(7)
    ids = []
    for number in range(60):
        answer = chooser.choice(publishers).publish(f"/a/{number % 3}", number, **PERSISTENT)
        ids.append(answer[-1]["ext"]["publish"]["id"])
    for person in people:
        taken = wait_for(person, len(ids))
        assert [each["id"] for each in taken] == ids
        assert values(taken) == list(range(60))
        assert not person.take()


def test_a_subscription_counts_from_its_answer_on_all_nodes(pair: list[Server]) -> None:
    person = Person(pair[0]).be()
    for number in range(20):
        publish(pair[1], -1)
        person.subscribe(f"/b/{number}")
        publish(pair[1], number, channel=f"/b/{number}")
    assert values(wait_for(person, 20)) == list(range(20))


def test_operators_see_all_nodes(pair: list[Server], tmp_path: Path) -> None:
    Person(pair[0]).be()
    found = listed(pair[1], tmp_path)
    assert {name: (each["state"], each["own"]) for name, each in found.items()} == {
        "a": ("ALIVE", False),
        "b": ("ALIVE", True),
    }
    assert found["a"]["sessions"] >= 1
    assert found["a"]["process"].startswith(f"{pair[0].pid} on ")


def test_a_node_needs_a_store_that_others_reach(tmp_path: Path) -> None:
    ended = crewel("serve", "--port=0", f"--set={NODE}", directory=tmp_path)
    assert_refused(ended, "cluster.enabled needs storage.url")


def test_the_sessions_of_a_killed_node_live_on_at_another(
    nodes: list[Server], start_server: StartServer, tmp_path: Path
) -> None:
    first, second = nodes
    until(lambda: figures(first)["crewel_nodes"] == 2)
    story = Story()
    story.step(LATER, {"a": said_by(first), "b": said_by(second)})
    person, other = Person(first).be("joe/1"), Person(second).be()
    for each in (person, other):
        each.subscribe("/a")
    publish(first, 1, 2)
    publish(second, 3)
    before = wait_for(person, 3)
    assert values(before) == [1, 2, 3]
    first.kill()
    publish(second, 4, 5)
    until(lambda: inherited(second) == 1)
    publish(second, 6)
    move(person, second)
    # What was not acknowledged comes again, with its id, and so may what was acknowledged since the last commit.
    after = wait_for(person, 4)
    after += person.take_all()
    assert values(after) == list(range(1, 7))[-len(after) :]
    assert {each["id"] for each in before} & {each["id"] for each in after}
    assert not person.take()
    assert values(wait_for(other, 6)) == [1, 2, 3, 4, 5, 6]
    until(lambda: list(listed(second, tmp_path)) == ["b"])
    gone = [
        Alert("CrewelIsDown", "a does not answer", instance="a"),
        Alert("CrewelNodeIsGone", "b misses 1 node that shared its store within the last hour", instance="b"),
    ]
    story.step(SOON, {"a": None, "b": said_by(second)}, fires=gone)
    again = start_server(*second.store_sets, NODE, "node.name=a")
    until(lambda: figures(second)["crewel_nodes"] == 2)
    story.step(LATER, {"a": said_by(again), "b": said_by(second)})
    story.check(tmp_path)


@pytest.mark.parametrize(
    ("number", "level", "whose"),
    [(signal.SIGTERM, "info", "a node that has ended"), (signal.SIGKILL, "warning", "a dead node")],
)
def test_log_and_timeline_tell_the_death_of_a_node_from_a_planned_end(
    nodes: list[Server], number: signal.Signals, level: str, whose: str
) -> None:
    first, second = nodes
    Person(first).be().subscribe("/a")
    os.kill(first.pid, number)
    first.ended_by_test = True
    until(lambda: "took over" in second.stderr)
    (line,) = (each for each in map(json.loads, second.stderr.splitlines()) if "took over" in each["message"])
    assert (line["level"], line["message"]) == (level, f"took over 1 sessions of {whose}")
    (event,) = (each for each in Desk(second, TOKEN).get("/timeline")["events"] if each["what"] == "took over")
    assert (event["sessions"], event["of"], event["planned"]) == (1, ["a"], number is signal.SIGTERM)


@pytest.mark.parametrize("lane", ["true", "false"])
def test_a_connect_that_comes_before_its_session_waits_for_it(start_server: StartServer, lane: str) -> None:
    fast = f"http.fast_lane={lane}"
    first = start_server(NODE, LONG, fast)
    second = start_server(*first.store_sets, NODE, LONG, fast)
    person = Person(first).be()
    person.subscribe("/a")
    publish(first, 1)
    first.kill()
    move(person, second)
    assert values(wait_for(person, 1)) == [1]
    assert inherited(second) == 1


def test_a_session_without_acknowledgements_ends_with_its_node(nodes: list[Server]) -> None:
    client = Client(nodes[0]).start()
    nodes[0].kill()
    client.server, client._command, client._polling = nodes[1], None, None
    (reply,) = client.connect()
    assert (reply["error"], reply["advice"]["reconnect"]) == ("402::session_unknown", "handshake")


def test_the_sessions_of_many_clients_come_in_slices(nodes: list[Server]) -> None:
    first, second = nodes
    people = [Person(first).be() for _ in range(250)]
    for number, person in enumerate(people):
        person.subscribe("/all", f"/one/{number}")
        person.forget_connections()
    publish(second, 0, channel="/all")
    first.kill()
    for number in range(0, 250, 25):
        publish(second, number, channel=f"/one/{number}")
    until(lambda: inherited(second) == 250)
    for number, person in enumerate(people):
        move(person, second)
        assert values(wait_for(person, 1 + (number % 25 == 0))) == [0, number][: 1 + (number % 25 == 0)]
        person.forget_connections()


def test_a_node_that_was_stopped_for_longer_than_its_lease_begins_again(start_server: StartServer) -> None:
    first = start_server(NODE, SHORT, "node.name=a")
    second = start_server(*first.store_sets, NODE, SHORT, "node.name=b")
    person = Person(first).be("joe/1")
    person.subscribe("/a")
    publish(first, 1)
    assert inherited(second) == 0
    os.kill(first.pid, signal.SIGSTOP)
    late = person.ask_connect(advice={"timeout": 0}, ext={"ack": 0})
    publish(second, 2)
    until(lambda: inherited(second) == 1)
    os.kill(first.pid, signal.SIGCONT)
    until(lambda: "declared this one dead" in first.stderr)
    until(lambda: Connection(first).get("/health/ready").status == 200)
    # It does not deliver what it still had in memory: another node serves that client by now, and answers it.
    *messages, reply = late.response().messages
    assert values(messages) == [1, 2]
    person.batch = reply["ext"]["ack"]
    move(person, second)
    assert not person.take()
    # It serves again, under another token, and so its heir may die in turn.
    late = Person(first).be()
    late.subscribe("/a")
    publish(second, 3)
    publish(first, 4)
    assert values(wait_for(late, 2)) == [3, 4]
    # The other nodes know it by that token, and do not wait for the former one.
    other = Person(second).be()
    other.subscribe("/b")  # it may come before the new links
    took = []
    for number in range(3):  # any of them may meet a pause of the machine
        began = monotonic()
        other.subscribe(f"/c/{number}")
        took.append(monotonic() - began)
    assert min(took) < 1, took
    second.kill()
    until(lambda: inherited(first) >= 1)
    move(person, first)
    assert {3, 4} <= set(values(wait_for(person, 2)))


@pytest.mark.parametrize("lane", ["true", "false"])
def test_a_connect_at_the_former_node_of_its_session_is_answered_by_the_heir(
    start_server: StartServer, lane: str
) -> None:
    """The former node hangs, and continues after another one has its sessions: it must not answer from memory, nor with 402."""
    fast = f"http.fast_lane={lane}"
    first = start_server(NODE, SHORT, fast, "node.name=a")
    second = start_server(*first.store_sets, NODE, SHORT, fast, "node.name=b")
    person = Person(first).be()
    person.subscribe("/a")
    os.kill(first.pid, signal.SIGSTOP)
    until(lambda: inherited(second) == 1)
    person.forget_connections()
    early = person.ask_connect(ext={"ack": person.batch})  # it is read before the node knows what has happened
    os.kill(first.pid, signal.SIGCONT)
    publish(second, 1)
    *messages, reply = early.response().messages
    assert (values(messages), reply["successful"]) == ([1], True)
    person.batch = reply["ext"]["ack"]
    until(lambda: "declared this one dead" in first.stderr)
    until(lambda: Connection(first).get("/health/ready").status == 200)
    late = person.ask_connect(ext={"ack": person.batch})
    publish(second, 2)
    *messages, reply = late.response().messages
    assert (values(messages), reply["successful"]) == ([2], True)


def test_a_client_id_leads_to_its_node_and_tells_no_secret(pair: list[Server]) -> None:
    ids = [Person(server).be().id or "" for server in (*pair, *pair)]
    tags = [each.rpartition("-")[2] for each in ids]
    assert tags[0] == tags[2] != tags[1] == tags[3]
    assert len({each.rpartition("-")[0] for each in ids}) == 4
