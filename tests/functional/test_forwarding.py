"""Requests that reach another node than the one that has their session."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest

from crewel.broker.cluster import LONGEST_PAUSE_MS
from tests.conftest import StartServer
from tests.functional.bayeux import Client, data
from tests.functional.cluster import LONG, NODE
from tests.functional.frames import SocketClient
from tests.functional.people import Person, refusal
from tests.functional.wire import Connection, figures, until
from tests.ports import free_port
from tests.server_process import Server

CLIENTS = int(os.environ.get("CREWEL_TEST_CLIENTS", "12"))
PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


def forwarded(server: Server) -> float:
    return figures(server)["crewel_forwarded_total"]


def busy(server: Server) -> float:
    """How many connects it holds, and requests it has forwarded."""
    shown = figures(server)
    return shown["crewel_held_connects"] + shown["crewel_forwarded_open"]


def move(client: Client, server: Server) -> None:
    """As a client does whose balancer sends it to another server."""
    client.server = server
    client._command = client._polling = None


@pytest.fixture(scope="module")
def slow_lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two nodes where aiohttp reads all requests."""
    directory = tmp_path_factory.mktemp("slow")
    common = [
        f"--set={text}"
        for text in (NODE, LONG, "http.fast_lane=false", "bayeux.transports=long-polling,websocket,callback-polling")
    ]
    first = Server(["--port=0", *common, "--set=node.name=a"], directory)
    same = [f"--set={text}" for text in first.store_sets]
    second = Server(["--port=0", *same, *common, "--set=node.name=b"], directory)
    yield [first, second]
    first.end_well()
    second.end_well()


@pytest.fixture(params=["fast lane", "aiohttp"])
def both(request: pytest.FixtureRequest) -> list[Server]:
    """Two nodes, of either way of reading requests."""
    found: list[Server] = request.getfixturevalue("pair" if request.param == "fast lane" else "slow_lane")
    until(lambda: not any(map(busy, found)))  # what the test before has left is noticed within a second
    return found


def test_a_client_whose_requests_reach_now_one_node_and_now_the_other_notices_nothing(both: list[Server]) -> None:
    person = Person(both[0]).be()
    before = forwarded(both[1])
    for number in range(6):
        move(person, both[(number + 1) % 2])
        person.subscribe(f"/walk/{number}")
        move(person, both[number % 2])
        person.publish(f"/walk/{number}", number, **PERSISTENT)
        move(person, both[(number + 1) % 2])
        assert data(person.take(timeout=5000)) == [number]
    assert forwarded(both[1]) - before == 9
    assert [reply["successful"] for reply in person.disconnect()] == [True]
    move(person, both[1])
    (reply,) = person.connect()
    assert (reply["error"], reply["advice"]["reconnect"]) == ("402::session_unknown", "handshake")


def test_a_connect_held_for_another_node_is_answered_when_a_message_comes(both: list[Server]) -> None:
    client = Client(both[0]).start()
    client.subscribe("/held")
    move(client, both[1])
    waiting = client.ask_connect()
    until(lambda: figures(both[0])["crewel_held_connects"] == 1)
    assert figures(both[1])["crewel_forwarded_open"] == 1
    Client(both[0]).start().publish("/held", "at last")
    assert data(waiting.response().messages) == ["at last"]
    assert figures(both[1])["crewel_forwarded_open"] == 0


def test_what_helps_a_page_that_keeps_no_cookie_is_logged_where_its_session_is(both: list[Server]) -> None:
    page = {"Origin": f"http://127.0.0.1:{both[1].port}", "Sec-Fetch-Site": "same-origin"}
    client = Client(both[0])
    client.handshake()
    client.cookie = None
    move(client, both[1])
    client.headers = list(page.items())
    (reply,) = client.connect()
    assert reply["advice"]["interval"] > 0
    (line,) = until(lambda: [each for each in both[0].stderr.splitlines() if "the cookie that the reply" in each])
    assert page["Origin"] in line
    assert "trust_client_session" not in line


def test_a_newer_connect_replaces_one_that_another_node_holds(both: list[Server]) -> None:
    client = Client(both[0]).start()
    first = client.ask_connect() if both else None
    assert first is not None
    until(lambda: figures(both[0])["crewel_held_connects"] == 1)
    move(client, both[1])
    older = client.ask_connect()
    assert first.response().body == b"replaced by a newer connect"
    client.drop_polling()
    client.ask_connect()
    assert older.response().body == b"replaced by a newer connect"


def test_a_client_that_goes_is_noticed_by_the_node_that_holds_its_connect(both: list[Server]) -> None:
    client = Client(both[0]).start()
    move(client, both[1])
    waiting = client.ask_connect()
    until(lambda: figures(both[0])["crewel_held_connects"] == 1)
    waiting.close()
    until(lambda: figures(both[0])["crewel_held_connects"] == 0)
    until(lambda: figures(both[1])["crewel_forwarded_open"] == 0)
    client.drop_polling()
    waiting = client.ask_connect()
    until(lambda: figures(both[0])["crewel_held_connects"] == 1)
    waiting.half_close()
    assert waiting.response().messages[-1]["successful"] is True


def test_a_socket_speaks_for_the_session_of_another_node(both: list[Server]) -> None:
    person = SocketClient(both[0]).start()
    person.subscribe("/sock")
    other = SocketClient(both[1])
    other.id = person.id
    assert other.connect(advice={"timeout": 0})["successful"] is True
    other.subscribe("/sock/two")
    other.ask_connect()
    publisher = Client(both[0]).start()
    for channel in ("/sock", "/sock/two", "/sock"):
        publisher.publish(channel, channel)
    assert other.heard(3) == ["/sock", "/sock/two", "/sock"]
    assert figures(both[1])["crewel_forwarded_open"] == 1
    other.socket.close()
    until(lambda: figures(both[1])["crewel_forwarded_open"] == 0)


def test_many_frames_of_a_socket_are_answered_in_their_order(both: list[Server]) -> None:
    person = SocketClient(both[0]).start()
    other = SocketClient(both[1])
    other.id = person.id
    assert other.connect(advice={"timeout": 0})["successful"] is True
    sent = [other.message("/in/order", data=number, **(PERSISTENT if number % 2 else {})) for number in range(60)]
    for message in sent:
        other.send(message)
    replies: list[str] = []
    while len(replies) < len(sent):
        replies += [each["id"] for each in other.socket.receive()]
    assert replies == [each["id"] for each in sent]


def test_what_a_socket_sends_before_it_closes_is_carried_out_at_another_node(both: list[Server]) -> None:
    receiver = Person(both[0]).be()
    receiver.subscribe("/last/words")
    person = SocketClient(both[0]).start()
    other = SocketClient(both[1])
    other.id = person.id
    assert other.connect(advice={"timeout": 0})["successful"] is True
    for number in range(20):
        other.send(other.message("/last/words", data=number, **PERSISTENT))
    other.socket.close()
    heard: list[Any] = []
    while len(heard) < 20:
        taken = data(receiver.take(timeout=5000))
        assert taken, heard
        heard += taken
    assert heard == list(range(20))
    assert until(lambda: not busy(both[1]))


def test_a_script_gets_its_answer_from_another_node(slow_lane: list[Server]) -> None:
    client = Client(slow_lane[0]).start()
    connect = {"channel": "/meta/connect", "clientId": client.id, "connectionType": "callback-polling"}
    with Connection(slow_lane[1]) as connection:
        path = "/cometd?" + urlencode(
            {"jsonp": "f", "message": json.dumps([connect | {"id": "9", "advice": {"timeout": 0}}])}
        )
        response = connection.get(path, [("Cookie", f"BAYEUX_BROWSER={client.cookie}")])
    assert response.status == 200
    assert b"/**/f([{" in response.body
    assert b'"successful":true' in response.body


def test_a_login_goes_to_the_node_of_the_session_that_it_takes_over(pair: list[Server]) -> None:
    first, second = pair
    person = Person(first).be("ann/1")
    person.subscribe("/for/ann")
    again = Person(second)
    assert refusal(again.shake(name="ann/1"))[0].startswith("403:client/ann/1:user.configuration.identicalClient")
    reply = again.shake(name="ann/1", resume=person.login["resume"])
    assert reply["ext"]["session"]["reconnected"] is True
    assert person.id is not None
    assert again.id is not None
    assert not again.take()
    assert again.id.rpartition("-")[2] == person.id.rpartition("-")[2]
    Client(second).start().publish("/for/ann", 1, **PERSISTENT)
    assert data(again.take(timeout=5000)) == [1]
    # The secret alone says where the session is, too.
    third = Person(second)
    assert third.shake(resume=again.login["resume"])["ext"]["session"]["name"].endswith("client/ann/1")


def test_a_session_of_a_node_that_has_just_joined_is_found_at_once(start_server: StartServer) -> None:
    first = start_server(NODE, LONG)
    second = start_server(*first.store_sets, NODE, LONG)
    person = Person(second).be()
    move(person, first)
    person.subscribe("/new")
    assert person.take() == []


def test_a_waiting_connect_goes_to_the_heir_when_its_node_is_killed(start_server: StartServer) -> None:
    first = start_server(NODE, LONG)
    others = [start_server(*first.store_sets, NODE, LONG) for _ in range(2)]
    people = [Person(first).be() for _ in range(4)]
    waiting = []
    for number, person in enumerate(people):
        person.subscribe("/a")
        move(person, others[number % 2])
        waiting.append(person.ask_connect(ext={"ack": person.batch}))
    until(lambda: figures(first)["crewel_held_connects"] == len(people))
    first.kill()
    publisher = Client(others[0]).start()
    publisher.publish("/a", 7, **PERSISTENT)
    for connection in waiting:
        messages = connection.response().messages
        assert messages[-1]["successful"] is True, messages
        assert data(messages) == [7]
    # From now on they may reach either node.
    for number, person in enumerate(people):
        move(person, others[(number + 1) % 2])
        person.batch = 0
    publisher.publish("/a", 8, **PERSISTENT)
    for person in people:
        taken: list[Any] = []
        while 8 not in taken:
            found = data(person.take(timeout=5000))
            assert found, taken
            taken += found


def test_a_socket_outlives_the_node_of_its_session(start_server: StartServer) -> None:
    """It speaks for the session at the heir, which is its own node or the third one; its client notices nothing."""
    first = start_server(NODE, LONG)
    others = [start_server(*first.store_sets, NODE, LONG) for _ in range(2)]
    sockets, waiting = [], []
    for number in range(4):
        session = SocketClient(first).start(ext={"ack": True})
        session.subscribe("/a")
        session.socket.close()
        client = SocketClient(others[number % 2])
        client.id = session.id
        assert client.connect(advice={"timeout": 0}, ext={"ack": 0})["successful"] is True
        client.subscribe(f"/own/{number}")
        sockets.append(client)
        waiting.append(client.ask_connect(ext={"ack": 0}) if number < 3 else None)  # the last one holds no connect
    until(lambda: figures(first)["crewel_held_connects"] == 3)
    first.kill()
    publisher = Client(others[0]).start()
    publisher.publish("/a", 7, **PERSISTENT)
    for number, (client, connect) in enumerate(zip(sockets, waiting, strict=True)):
        reply = client.reply_to(connect or client.ask_connect(ext={"ack": 0}))
        assert reply["successful"] is True, reply
        assert client.heard() == [7]
        publisher.publish(f"/own/{number}", number, **PERSISTENT)
        assert client.connect(ext={"ack": reply["ext"]["ack"]})["successful"] is True
        assert client.heard() == [number]


def test_a_socket_is_closed_if_its_node_dies_before_it_has_answered_a_publish(start_server: StartServer) -> None:
    first = start_server(NODE, LONG)
    second = start_server(*first.store_sets, NODE, LONG)
    session = SocketClient(first).start(ext={"ack": True})
    client = SocketClient(second)
    client.id = session.id
    assert client.connect(advice={"timeout": 0}, ext={"ack": 0})["successful"] is True
    client.ask_connect(ext={"ack": 0})
    until(lambda: figures(first)["crewel_held_connects"] == 1)
    os.kill(first.pid, signal.SIGSTOP)
    client.send(client.message("/unknown/outcome", data=1, **PERSISTENT))
    client.socket.fence()  # it has been read, and so forwarded
    first.kill()
    with pytest.raises((EOFError, ConnectionError)):
        client.socket.next_frame()


def test_a_planned_end_moves_all_sessions_and_no_client_shakes_hands(nodes: list[Server]) -> None:
    """All are asked for a short pause: a connect that came at once would fail with its connection, which costs a stock client a
    second or more. That holds for those whose session is at another node, too."""
    first, second = nodes
    people = [Person(first).be() for _ in range(CLIENTS)]
    waiting = {}
    socket, elsewhere = SocketClient(first).start(ext={"ack": True}), Client(second).start(ext={"ack": True})
    move(elsewhere, first)
    over_socket, forwarded_there = socket.ask_connect(ext={"ack": 1}), elsewhere.ask_connect(ext={"ack": 1})
    for number, person in enumerate(people):
        person.subscribe("/a")
        person.forget_connections()
        person.server = nodes[number % 2]
        waiting[person] = person.ask_connect(ext={"ack": person.batch})
    until(lambda: figures(first)["crewel_held_connects"] == len(people) + 1)
    until(lambda: figures(second)["crewel_held_connects"] == 1)
    os.kill(first.pid, signal.SIGTERM)
    first.ended_by_test = True
    gaps = []
    replies = [socket.reply_to(over_socket), forwarded_there.response().messages[-1]]
    assert socket.socket.closed()[0] == 1001  # behind the answer
    for person, connection in waiting.items():
        replies.append(connection.response().messages[-1])
        since = time.monotonic()
        move(person, second)
        assert person.take() == []
        gaps.append(time.monotonic() - since)
    assert all(reply["successful"] and 0 < reply["advice"]["interval"] <= LONGEST_PAUSE_MS for reply in replies), (
        replies
    )
    until(lambda: figures(second)["crewel_inherited_sessions_total"] == len(people) + 1)  # counted at the end
    assert first.wait() == 0
    publisher = Client(second).start()
    publisher.publish("/a", 1, **PERSISTENT)
    assert [data(person.take(timeout=5000)) for person in people] == [[1]] * len(people)
    gaps.sort()
    print(f"gaps of {len(gaps)} clients: p50 {gaps[len(gaps) // 2]:.3f} s, longest {gaps[-1]:.3f} s")


def test_a_publish_whose_node_dies_before_the_answer_is_not_sent_twice(start_server: StartServer) -> None:
    first = start_server(NODE, LONG)
    second = start_server(*first.store_sets, NODE, LONG)
    person, listener = Person(first).be(), Person(second).be()
    listener.subscribe("/once")
    move(person, second)
    person.subscribe("/warm")
    os.kill(first.pid, signal.SIGSTOP)
    person.command.request(
        "POST",
        "/cometd",
        b'[{"channel":"/once","data":1,"id":"77","clientId":"%b","ext":{"publish":{"persistent":true}}}]'
        % (person.id or "").encode(),
        person.all_headers(),
    )
    until(lambda: figures(second)["crewel_forwarded_open"] == 1)
    first.kill()
    with pytest.raises((EOFError, ConnectionError)):
        person.command.response()
    until(lambda: figures(second)["crewel_inherited_sessions_total"] == 1)
    Client(second).start().publish("/once", 2, **PERSISTENT)
    assert data(listener.take(timeout=5000)) == [2]


def test_a_stranger_on_the_port_of_the_nodes_learns_nothing(start_server: StartServer) -> None:
    port = free_port()
    first = start_server(NODE, LONG, f"cluster.listen=127.0.0.1:{port}")
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x02\x01\0\0\0\0{}", b"\xff" * 100):
        with socket.create_connection(("127.0.0.1", port), 10) as stranger:
            stranger.settimeout(10)
            stranger.sendall(sent)
            received = b""
            with suppress(ConnectionResetError):
                while chunk := stranger.recv(4096):
                    received += chunk
            assert b"version" in received or not received
    until(lambda: "a link with another node was refused" in first.stderr)
    assert Connection(first).get("/health/ready").status == 200
