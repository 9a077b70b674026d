"""What could go wrong between the two lanes of a connection, and with requests behind requests."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.functional.bayeux import COOKIE, Client, data
from tests.functional.conftest import LANES, Serve
from tests.functional.frames import SocketClient
from tests.functional.wire import LIMIT_S, Connection, descriptors, figures, request_bytes, until
from tests.server_process import Server

MANY_ANSWERS_S = 60.0
"""How long a server may take for the megabytes of answers that the buffers of a connection hold."""
FAST, SLOW = LANES
HANDSHAKE = [{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]


def test_a_connection_that_changed_lanes_is_forgotten_when_it_ends(serve: Serve) -> None:
    server = serve()
    before = figures(server)["crewel_tasks"]
    for _ in range(20):
        with Connection(server) as connection:
            assert connection.get("/health/live").status == 200
            assert connection.post("/cometd", HANDSHAKE).messages
            assert connection.get("/health/live").status == 200
            assert connection.post("/cometd", HANDSHAKE).messages
    until(lambda: figures(server)["crewel_tasks"] == before)


def test_who_reads_late_gets_every_answer(server: Server) -> None:
    """The server stops to read while its answers are not read. It has to go on afterwards."""
    client = Client(server).start()
    batch = [client.message("/flood/" + "x" * 900, data=1) for _ in range(30)]
    request = request_bytes("POST", "/cometd", json.dumps(batch).encode(), client.all_headers())
    connection, number = client.command, 600
    sender = threading.Thread(target=connection.socket.sendall, args=[request * number], daemon=True)
    sender.start()
    sender.join(0.5)
    assert sender.is_alive(), "all was taken although nothing was read"
    for _ in range(number):
        assert len(connection.response().messages) == len(batch)
    sender.join(LIMIT_S)
    assert not sender.is_alive()


def test_nothing_is_done_after_the_last_request(server: Server, channel: str) -> None:
    """`Connection: close` says which one that is."""
    publisher, hearer = Client(server).start(), Client(server).start()
    hearer.subscribe(channel)
    last = json.dumps([publisher.message(channel, data="last")]).encode()
    beyond = json.dumps([publisher.message(channel, data="beyond")]).encode()
    with Connection(server) as connection:
        connection.send(
            request_bytes("POST", "/cometd", last, [*publisher.all_headers(), ("Connection", "close")])
            + request_bytes("POST", "/cometd", beyond, publisher.all_headers())
        )
        is_done = connection.rest().startswith(b"HTTP/1.1 200")  # aiohttp refuses both if they come in one piece
    Client(server).start().publish(channel, "later")
    heard: list[Any] = []
    while "later" not in heard:
        heard += data(hearer.connect())
    assert heard == [*(["last"] if is_done else []), "later"]


@pytest.mark.parametrize(
    "others", ['settings={"a":1}', "words=a b", "bare", "accent=\xe9", "path=/", 'open="b', ";", "version=$1,2"]
)
def test_other_cookies_hide_nothing(server: Server, others: str) -> None:
    """A browser sends whatever any application on the same host has set, and by no grammar."""
    client = Client(server).start()
    for cookies in (f"{others}; {COOKIE}={client.cookie}", f"{COOKIE}={client.cookie}; {others}"):
        with Connection(server) as connection:
            reply = connection.post("/cometd", [client.message("/a", data=1)], {"Cookie": cookies}).messages[-1]
            assert reply["successful"] is True, (cookies, reply)


@pytest.mark.parametrize(
    "parameters",
    [
        "charset*=utf-8''%00",
        "charset*1;charset*=utf-8''%00",
        "charset*0*=utf-8''a",
        "charset*=''''",
        'charset="\\',
        "=",
    ],
)
def test_no_media_type_breaks_the_server(server: Server, parameters: str) -> None:
    with Connection(server) as connection:
        assert connection.post("/cometd", HANDSHAKE, {"X-A": "1"}).status == 200
        body = json.dumps(HANDSHAKE).encode()
        connection.request("POST", "/cometd", body, [("Content-Type", f"application/json; {parameters}")])
        assert connection.response().status in (200, 415)


@pytest.mark.parametrize(
    ("lane", "method", "last"),
    [
        pytest.param(FAST, "POST", "kept", id="fast-POST-kept"),
        pytest.param(FAST, "POST", "closed", id="fast-POST-closed"),
        pytest.param(FAST, "GET", "closed", id="fast-GET-closed"),  # this one is answered by aiohttp all the same
        pytest.param(SLOW, "POST", "closed", id="slow-POST-closed"),
        pytest.param(SLOW, "GET", "kept", id="slow-GET-kept"),
    ],
    indirect=["lane"],
)
def test_who_never_reads_is_cut_off(serve: Serve, method: str, last: str) -> None:
    """Answers that nobody takes would keep the connection for ever."""
    server = serve("http.keepalive_ms=700", "bayeux.max_message_bytes=1000000")
    before = descriptors(server)
    client = Client(server).start()
    client.command.close()
    client.polling.close()
    until(lambda: descriptors(server) == before)
    headers = client.all_headers() + ([("Connection", "close")] if last == "closed" else [])
    if method == "POST":
        body = json.dumps([client.message("/unread/" + "x" * 900, data=1) for _ in range(900)]).encode()
        requests = [request_bytes("POST", "/cometd", body, client.all_headers())] * 9
        requests.append(request_bytes("POST", "/cometd", body, headers))
    else:
        requests = [request_bytes("GET", "/metrics")] * 400 + [request_bytes("GET", "/metrics", b"", headers)]
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(("127.0.0.1", server.port))
        until(lambda: descriptors(server) == before + 1)
        # Sent for as long as the server reads: it takes no more than it can answer, and then breaks the connection.
        unread.settimeout(MANY_ANSWERS_S)
        with ThreadPoolExecutor(1) as sending:
            sent = sending.submit(unread.sendall, b"".join(requests))
            until(lambda: descriptors(server) == before, MANY_ANSWERS_S)
            assert isinstance(sent.exception(), OSError | None)


def test_a_request_without_a_host_is_refused(server: Server) -> None:
    with Connection(server) as connection:
        connection.send(b"POST /cometd HTTP/1.1\r\nContent-Length: 4\r\n\r\n[{}]")
        assert connection.response().status == 400
        connection.rest()


def test_what_comes_while_a_request_waits_is_not_lost_with_its_connection(serve: Serve) -> None:
    """The answer to a publish carries messages. Where nobody is there to hear it, they wait for the next connect."""
    server = serve(service="tests.functional.services")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/room")
    accepted = figures(server)["crewel_publishes_total"]
    with client.command as connection:
        message = client.message("/slow", data=700)
        connection.request("POST", "/cometd", json.dumps([message]).encode(), client.all_headers())
        other.publish("/room", "kept")
        connection.reset()
    until(lambda: figures(server)["crewel_publishes_total"] == accepted + 2)
    assert data(client.connect(advice={"timeout": 0})) == ["kept"]


def test_a_socket_may_go_while_its_message_waits(serve: Serve) -> None:
    server = serve("websocket.compression=false", service="tests.functional.services")
    accepted = figures(server)["crewel_publishes_total"]
    client, other = SocketClient(server).start(), Client(server).start()
    client.subscribe("/room")
    client.socket.text(json.dumps([client.message("/slow", data=700)]))
    open_before = descriptors(server)
    client.socket.connection.reset()
    until(lambda: descriptors(server) < open_before)
    other.publish("/room", "kept")
    until(lambda: figures(server)["crewel_sockets"] == 0)
    until(lambda: figures(server)["crewel_publishes_total"] == accepted + 2)
    again = SocketClient(server)
    again.id = client.id
    again.socket.text(json.dumps([again.message("/meta/connect", connectionType="websocket", advice={"timeout": 0})]))
    assert "kept" in [message.get("data") for message in again.socket.receive()]


def test_an_origin_is_echoed_byte_by_byte(shared: Serve) -> None:
    server = shared("http.allowed_origins=*")
    origin = "http://\xc3\xa9.example"  # an é in UTF-8
    with Connection(server) as connection:
        response = connection.post("/cometd", HANDSHAKE, {"Origin": origin})
        assert response.header("Access-Control-Allow-Origin") == origin
