"""Limits over sockets: whose address counts, what HTTP answers, and that only the abuser waits."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest

from tests.admin.alert_rules import HERON, LATER, Alert, Story, said_by
from tests.functional.bayeux import Client
from tests.functional.conftest import LANES, Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.wire import Connection, Response, figures, until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

TOKEN = "the-admin-token-of-tests"
OPEN_TO_ALL = "limits.exempt_addresses="


def post(server: Server, path: str, token: str, body: bytes = b'{"channel": "/a", "data": 1}') -> Response:
    connection = Connection(server)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    connection.request("POST", path, body, headers)
    return connection.response()


def test_the_address_that_a_trusted_proxy_names_counts(serve: Serve) -> None:
    server = serve("http.trusted_proxies=127.0.0.1", "limits.handshakes_per_s=1", "limits.handshakes_burst=2")
    stranger = {"X-Forwarded-For": "203.0.113.7"}
    for _ in range(2):
        Client(server, headers=stranger).handshake()
    client = Client(server, headers=stranger)
    (reply,) = client.send(client.message("/meta/handshake"))
    assert reply["error"] == "429:limits.handshakes_per_s:resource.temporary.unavailable"
    assert reply["advice"]["reconnect"] == "handshake"
    Client(server, headers={"X-Forwarded-For": "203.0.113.8"}).handshake()
    Client(server).handshake()
    assert figures(server)['crewel_limited_total{limit="handshakes_per_s"}'] == 1


def test_tokens_that_do_not_hold_are_looked_at_only_so_often(serve: Serve) -> None:
    server = serve(f"admin.token={TOKEN}", "limits.failed_tokens_per_s=1", "limits.failed_tokens_burst=3")
    paths = ("/api/publish", "/admin/api/sessions", "/api/publish")
    assert [post(server, path, "a" * 20).status for path in paths] == [401, 405, 401]
    assert post(server, "/api/publish", "b" * 20).status == 401
    refused = post(server, "/api/publish", "c" * 20)
    assert refused.status == 429
    assert int(refused.header("Retry-After") or 0) >= 1
    assert "limits.failed_tokens_per_s" in refused.body.decode()
    connection = Connection(server)
    connection.request("GET", "/admin/api/sessions", b"", {"Authorization": "Bearer " + "d" * 20})
    refused = connection.response()
    assert refused.status == 429
    assert int(refused.header("Retry-After") or 0) >= 1
    client = Client(server)
    (reply,) = client.send(client.message("/meta/handshake", ext={"session": {"token": "e" * 20}}))
    assert reply["error"] == "429:limits.failed_tokens_per_s:resource.temporary.unavailable"
    Client(server).handshake()  # without a token nothing has to be looked at


@one_lane
def test_a_back_end_beyond_its_rate_is_answered_429_and_an_operator_is_not(serve: Serve, tmp_path: Path) -> None:
    server = serve(
        "security.policy=jwt",
        f"security.jwt_keys={secret_file(tmp_path)}",
        f"admin.token={TOKEN}",
        OPEN_TO_ALL,
        "limits.publishes_per_s=1",
        "limits.publishes_burst=4",
    )
    story = Story()
    story.step(LATER, said_by(server))
    shop = signed(sub="shop", publish=["/a"])
    batch = json.dumps([{"channel": "/a", "data": n} for n in range(20)]).encode()
    (first, *_, last) = post(server, "/api/publish", shop, batch).messages
    assert (first["successful"], last["error"]) == (True, "429:limits.publishes_per_s:resource.temporary.unavailable")
    refused = post(server, "/api/publish", shop)
    assert (refused.status, refused.header("Retry-After")) == (429, "1")
    before = said_by(server)
    post(server, "/api/publish", shop, batch)
    limit = Alert(
        "CrewelLimitsClients", f"{HERON} refuses requests beyond publishes_per_s", {"limit": "publishes_per_s"}
    )
    story.step(25, before, said_by(server), fires=[limit])
    story.step(LATER, said_by(server))
    story.check(tmp_path)
    for _ in range(5):
        assert post(server, "/api/publish", TOKEN).status == 200


@pytest.mark.parametrize("kind", [Client, SocketClient])
@one_lane
def test_a_connection_that_asks_for_too_much_is_read_more_slowly_and_others_are_not(
    serve: Serve, kind: type[Client] | type[SocketClient]
) -> None:
    server = serve(OPEN_TO_ALL, "limits.publishes_per_s=1", "limits.publishes_burst=5")
    abuser, other = kind(server).start(), Client(server).start()
    batch = [abuser.message("/a", data=n) for n in range(10)]
    if isinstance(abuser, Client):
        replies = abuser.send(*batch)
    else:
        abuser.socket.text(json.dumps(batch))
        replies = abuser.socket.receive()
    assert sum(reply["successful"] for reply in replies) == 5
    began = looked = time.monotonic()
    others = []
    for _ in range(3):
        other.send(other.message("/meta/subscribe", subscription="/b"))
        others.append(time.monotonic() - looked)
        looked = time.monotonic()
    abuser.subscribe("/b")
    assert time.monotonic() - began >= 0.6
    assert min(others) < 0.5, others


def open_sockets(server: Server, count: int) -> list[socket.socket]:
    """So many connections, of which the server knows."""
    opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    until(lambda: figures_of(opened[0])["crewel_connections"] == count)
    return opened


def figures_of(wire: socket.socket) -> dict[str, float]:
    """The metrics, asked by a connection that is there already."""
    wire.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < length_of(answer):
        answer += wire.recv(65536)
    lines = answer.partition(b"\r\n\r\n")[2].decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def length_of(answer: bytes) -> int:
    found = re.search(rb"Content-Length: (\d+)", answer)
    assert found is not None, answer
    return int(found[1])


@pytest.mark.parametrize(
    ("lane", "limit", "request_first"),
    [
        (LANES[0], "max_connections", True),
        (LANES[0], "max_connections_per_address", False),
        (LANES[1], "max_connections", False),
        (LANES[1], "max_connections_per_address", True),
    ],
    indirect=["lane"],
)
def test_connections_beyond_a_cap_are_answered_and_closed(serve: Serve, limit: str, request_first: bool) -> None:
    server = serve(f"limits.{limit}=3")
    opened = open_sockets(server, 3)
    with socket.create_connection(("127.0.0.1", server.port)) as refused:
        refused.settimeout(30)
        if request_first:
            refused.sendall(b"POST /cometd HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]")
        answer = b"".join(iter(lambda: refused.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 2\r\n" in answer
    assert answer.endswith(f"too many connections (limits.{limit})".encode())
    assert figures_of(opened[0])[f'crewel_limited_total{{limit="{limit}"}}'] == 1
    opened[1].close()
    until(lambda: figures_of(opened[0])["crewel_connections"] == 2)
    Client(server).handshake()
    for each in opened:
        each.close()


def test_connections_of_a_trusted_proxy_are_not_counted_for_one_address(serve: Serve) -> None:
    server = serve("limits.max_connections_per_address=2", "http.trusted_proxies=127.0.0.1")
    for each in open_sockets(server, 5):
        each.close()
