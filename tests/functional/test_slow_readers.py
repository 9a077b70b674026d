"""Peers that do not read what they are sent: they cost the server little, and the others nothing."""

from __future__ import annotations

import json
import socket
import time

from tests.functional.bayeux import Client, in_time
from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.wire import figures, request_bytes, resident, until

MIB = 2**20
TEXT = "x" * 20_000


def test_a_socket_that_is_not_read_loses_its_oldest_messages_and_nobody_elses(serve: Serve) -> None:
    server = serve("bayeux.max_queue_messages=100")
    slow, quick, publisher = SocketClient(server).start(), SocketClient(server).start(), Client(server).start()
    slow.subscribe("/flood")
    quick.subscribe("/flood")
    before = resident(server)
    for number in range(1000):
        publisher.publish("/flood", [number, TEXT])
        assert quick.heard()[0][0] == number
    assert resident(server) - before < 16 * MIB
    assert figures(server)['crewel_dropped_total{policy="dropOldest"}'] > 100

    numbers = [message["data"][0] for message in slow.socket.fence()]
    while numbers[-1] < 999:
        numbers += [message["data"][0] for message in slow.socket.receive()]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 999
    assert slow.publish("/other")["successful"] is True


@one_lane
def test_who_sends_without_reading_the_replies_is_not_read_either(serve: Serve) -> None:
    """Else the replies would pile up in the server."""
    server = serve()
    client = SocketClient(server).start()
    before = resident(server)
    batch = json.dumps([client.message("/flood/" + "x" * 900, data=1, id="a" * 60) for _ in range(30)])
    assert stuck(client, lambda: client.socket.text(batch))
    assert resident(server) - before < 24 * MIB
    assert Client(server).start().publish("/a")


def test_who_pipelines_without_reading_is_not_read_either(serve: Serve) -> None:
    server = serve()
    client = Client(server).start()
    before = resident(server)
    messages = [client.message("/flood/" + "x" * 900, data=1) for _ in range(30)]
    request = request_bytes("POST", "/cometd", json.dumps(messages).encode(), client.all_headers())
    client.command.socket.settimeout(1)
    sent = 0
    try:
        while sent < 200 * MIB:
            client.command.send(request * 10)
            sent += len(request) * 10
    except TimeoutError:
        pass
    assert sent < 100 * MIB
    assert resident(server) - before < 24 * MIB
    assert Client(server).start().publish("/a")


def test_who_pipelines_behind_a_held_connect_is_not_read_for_ever(serve: Serve) -> None:
    server = serve()
    client = Client(server).start()
    polling = client.hold()
    before = resident(server)
    request = request_bytes("POST", "/cometd", b"[" + b" " * 30_000 + b"{}]", client.all_headers())
    polling.socket.settimeout(1)
    sent = 0
    try:
        while sent < 200 * MIB:
            polling.send(request * 10)
            sent += len(request) * 10
    except TimeoutError:
        pass
    assert sent < 100 * MIB
    assert resident(server) - before < 24 * MIB


def test_a_connect_whose_answer_is_not_read_blocks_nobody(serve: Serve) -> None:
    server = serve("bayeux.max_queue_messages=200", "http.keepalive_ms=1000")
    slow, publisher = Client(server).start(), Client(server).start()
    slow.subscribe("/flood")
    slow.polling.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(20):
        slow.ask_connect(advice={"timeout": 0})
        publisher.send(*(publisher.message("/flood", data=TEXT) for _ in range(3)))
    begin = time.monotonic()
    assert publisher.publish("/other")
    assert time.monotonic() - begin < 5


def stuck(client: SocketClient, send: object) -> bool:
    """Whether the server stops to take what `send` sends, before 200 MiB."""
    client.socket.connection.socket.settimeout(1)
    for _ in range(200 * MIB // 30_000):
        try:
            send()  # type: ignore[operator]
        except TimeoutError:
            return True
    return False


@one_lane
def test_an_idle_socket_that_is_not_read_is_closed_all_the_same(serve: Serve) -> None:
    server = serve("websocket.idle_timeout_ms=1000")
    client = in_time(lambda: SocketClient(server).start())
    batch = json.dumps([client.message("/flood/" + "x" * 900, data=1) for _ in range(30)])
    assert stuck(client, lambda: client.socket.text(batch))
    until(lambda: figures(server)["crewel_sockets"] == 0)


@one_lane
def test_many_calls_for_histories_in_one_request_take_bounded_memory(serve: Serve) -> None:
    """Each answer is as large as a response may be; 500 of them would be 250 MB."""
    server = serve('topics={"/h/**":{"history":{"max_entries":100}}}')
    client = Client(server).start()
    for number in range(30):
        client.publish("/h/a", [number, TEXT])
    before = resident(server)
    calls = [client.message("/service/get", data={"channel": "/h/a", "numEntries": -1}) for _ in range(500)]
    assert len(json.dumps(calls)) < 65_536
    client.send(*calls)
    answers: list[bool] = []
    most = 0
    while len(answers) < 500:
        answers += [each["successful"] for each in client.connect() if each["channel"] == "/service/get"]
        most = max(most, resident(server) - before)
    assert answers.count(True) >= 10
    assert most < 80 * MIB
