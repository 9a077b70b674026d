"""HTTP below Bayeux: connections that are reused, pipelined, slow, half closed, idle or old."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from crewel.version import VERSION
from tests.functional.bayeux import Client, in_time
from tests.functional.conftest import Serve
from tests.functional.wire import Connection, figures, request_bytes, until
from tests.server_process import Server

HANDSHAKE = {"channel": "/meta/handshake", "id": "1"}
BODY = json.dumps([HANDSHAKE]).encode()


def numbered(number: int) -> bytes:
    return json.dumps([{"channel": "/a", "id": str(number)}]).encode()


def test_one_connection_serves_many_requests(server: Server) -> None:
    with Connection(server) as connection:
        for number in range(20):
            assert connection.post("/cometd", json.loads(numbered(number))).messages[0]["id"] == str(number)


def test_pipelined_requests_are_answered_in_their_order(server: Server) -> None:
    with Connection(server) as connection:
        connection.send(b"".join(request_bytes("POST", "/cometd", numbered(number)) for number in range(50)))
        assert [connection.response().messages[0]["id"] for _ in range(50)] == [str(number) for number in range(50)]


def test_pipelined_requests_of_both_kinds_are_answered_in_their_order(server: Server) -> None:
    """Bayeux and pages may be served by different code, on one connection all the same."""
    with Connection(server) as connection:
        kinds = [
            request_bytes("POST", "/cometd", numbered(1)),
            request_bytes("GET", "/health/live"),
            request_bytes("POST", "/cometd/connect", numbered(2)),
            request_bytes("POST", "/nowhere", BODY),
            request_bytes("OPTIONS", "/cometd"),
            request_bytes("POST", "/cometd", numbered(3)),
        ]
        connection.send(b"".join(kinds))
        assert connection.response().messages[0]["id"] == "1"
        assert connection.response().json() == {"status": "live", "version": VERSION}
        assert connection.response().messages[0]["id"] == "2"
        assert connection.response().status in (404, 405)
        assert connection.response().status == 200
        assert connection.response().messages[0]["id"] == "3"


def test_requests_behind_a_held_connect_wait_for_it(server: Server, channel: str) -> None:
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    polling = client.hold()
    publish = client.message(channel, data="own")
    polling.request("POST", "/cometd", json.dumps([publish]).encode(), client.all_headers())
    other.publish(channel, "theirs")
    messages = polling.response().messages
    assert [message.get("data") for message in messages] == ["theirs", None]
    assert polling.response().messages[-1]["id"] == publish["id"]


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", BODY, version="1.0")
        assert connection.response().messages[0]["successful"] is True
        assert connection.rest() == b""


def test_http_1_0_with_keep_alive_is_kept(server: Server) -> None:
    with Connection(server) as connection:
        for _ in range(2):
            connection.request("POST", "/cometd", BODY, {"Connection": "keep-alive"}, version="1.0")
            response = connection.response()
            assert response.messages[0]["successful"] is True
            assert (response.header("Connection") or "").lower() == "keep-alive"


def test_connection_close_is_obeyed(server: Server) -> None:
    with Connection(server) as connection:
        assert connection.post("/cometd", [HANDSHAKE], {"Connection": "close"}).messages
        assert connection.rest() == b""


def test_expect_100_continue_is_told_to_continue(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"", [("Expect", "100-continue"), ("Content-Length", str(len(BODY)))])
        assert connection.response().status == 100
        connection.send(BODY)
        assert connection.response().messages[0]["successful"] is True


def test_an_oversize_body_is_not_asked_for(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"", [("Expect", "100-continue"), ("Content-Length", "10000000")])
        response = connection.response()
        if response.status == 100:  # allowed, and what aiohttp does; the final answer comes without the body
            response = connection.response()
        assert response.status == 413


def test_a_request_of_an_unknown_expectation_is_refused(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", BODY, {"Expect": "miracles"})
        assert connection.response().status == 417


@pytest.mark.parametrize(
    "head",
    [
        b"POST /cometd HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /cometd HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /cometd HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /cometd HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /cometd HTTP/1.1\r\nHost: a\r\nNo colon here\r\n\r\n",
        b"POST /cometd HTTP/1.1\r\nHost: a\r\nBad\x00Name: 1\r\n\r\n",
        b"POST /cometd\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
        b"POST /cometd HTTP/9.9\r\nHost: a\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_closed(server: Server, head: bytes) -> None:
    with Connection(server) as connection:
        connection.send(head)
        assert connection.response().status in (400, 405, 426, 505)
        connection.rest()


def test_a_head_may_be_cut_anywhere(server: Server) -> None:
    request = request_bytes("POST", "/cometd/handshake", BODY, {"Content-Type": "application/json"})
    with Connection(server) as connection:
        for byte in request:
            connection.send(bytes([byte]))
        assert connection.response().messages[0]["successful"] is True


def test_a_request_may_be_cut_anywhere(server: Server) -> None:
    request = request_bytes("POST", "/cometd", BODY, {"Content-Type": "application/json"}) * 2
    for cut in range(1, len(request), 3):
        with Connection(server) as connection:
            connection.send(request[:cut])
            connection.send(request[cut:])
            assert all(connection.response().messages[0]["successful"] for _ in range(2))


# Limits


@pytest.mark.parametrize("shape", ["one long header", "a long target", "many headers"])
def test_headers_are_limited(serve: Serve, shape: str) -> None:
    server = serve("http.max_header_bytes=2000")
    with Connection(server) as connection:
        assert connection.post("/cometd", [HANDSHAKE], {"X-Pad": "x" * 1000}).messages
        if shape == "one long header":
            request = request_bytes("POST", "/cometd", BODY, {"X-Pad": "x" * 2100})
        elif shape == "a long target":
            request = request_bytes("POST", "/cometd?" + "x" * 2100, BODY)
        else:
            request = request_bytes("POST", "/cometd", BODY, [(f"X-Pad-{number}", "x" * 100) for number in range(500)])
        connection.send(request)
        assert connection.response().status in (400, 414, 431)
        connection.rest()


def test_a_header_without_end_is_cut_off_at_the_limit(server: Server) -> None:
    with Connection(server) as connection:
        connection.send(b"POST /cometd HTTP/1.1\r\nX-Pad: ")
        with suppress(ConnectionError):
            for _ in range(200):
                if connection.has_input():
                    break
                connection.send(b"x" * 65536)
            else:
                raise AssertionError("the server took 13 MB of header")
        connection.rest()


# Time


def lasts(connection: Connection, begin: float) -> float:
    """Seconds from `begin`, which is before what the server counts from, until the server ends the connection."""
    connection.rest()
    return time.monotonic() - begin


def test_a_peer_without_complete_headers_is_cut_off(shared: Serve) -> None:
    server = shared("http.header_timeout_ms=500", "http.body_timeout_ms=500")

    def lasts_with(sent: bytes) -> float:
        begin = time.monotonic()
        with Connection(server) as connection:
            connection.send(sent)
            return lasts(connection, begin)

    starts = [b"", b"POST /cometd HT", b"POST /cometd HTTP/1.1\r\nHost: a\r\nContent-"]
    with ThreadPoolExecutor() as peers:
        seconds = list(peers.map(lasts_with, starts))
    assert all(0.4 < each < 5 for each in seconds), seconds


def test_a_trickle_of_headers_buys_no_time(shared: Serve) -> None:
    server = shared("http.header_timeout_ms=500", "http.body_timeout_ms=500")
    begin = time.monotonic()
    with Connection(server) as connection:
        connection.send(b"POST /cometd HTTP/1.1\r\n")
        while not connection.has_input(within=0.05):
            connection.send(b"X-Pad: 1\r\n")
            assert time.monotonic() - begin < 5
        assert connection.rest() == b""
    assert time.monotonic() - begin > 0.3


def test_the_second_request_has_the_same_time_for_its_headers(shared: Serve) -> None:
    server = shared("http.header_timeout_ms=500", "http.body_timeout_ms=500")
    with Connection(server) as connection:
        connection.post("/cometd", [HANDSHAKE])
        begin = time.monotonic()
        connection.send(b"POST /cometd HTTP/1.1\r\nHost: ")
        assert 0.4 < lasts(connection, begin) < 5


def test_a_slow_body_is_answered_408(shared: Serve) -> None:
    server = shared("http.header_timeout_ms=500", "http.body_timeout_ms=500")
    begin = time.monotonic()
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"[", [("Content-Length", "1000")])
        assert connection.response().status == 408
    assert 0.3 < time.monotonic() - begin < 5
    assert figures(server)['crewel_refused_payloads_total{fault="too_slow"}'] >= 1


def test_a_held_connect_outlives_the_time_for_headers(shared: Serve) -> None:
    server = shared("http.header_timeout_ms=500", "http.body_timeout_ms=500")
    client = in_time(lambda: Client(server).start())
    begin = time.monotonic()
    assert client.connect(advice={"timeout": 1200})[-1]["successful"] is True
    assert 1.1 < time.monotonic() - begin < 20  # and not 30, the usual time


def test_an_idle_connection_is_closed_after_its_time(shared: Serve) -> None:
    server = shared("http.keepalive_ms=700")
    with Connection(server) as connection:
        begin = time.monotonic()
        connection.post("/cometd", [HANDSHAKE])
        assert 0.5 < lasts(connection, begin) < 5  # a quarter of the time early at most


def test_a_connection_in_use_is_not_idle(shared: Serve) -> None:
    server = shared("http.keepalive_ms=700")

    def is_used() -> None:
        client = Client(server).start()
        begin = time.monotonic()
        assert client.connect(advice={"timeout": 1500})[-1]["successful"] is True
        assert time.monotonic() - begin > 1.4
        assert client.connect(advice={"timeout": 0})[-1]["successful"] is True

    in_time(is_used)


# Half-close


def test_a_half_closed_request_is_answered(server: Server) -> None:
    for _ in range(20):
        with Connection(server) as connection:
            connection.request("POST", "/cometd", BODY)
            connection.half_close()
            assert connection.response().messages[0]["successful"] is True
            assert connection.rest() == b""


def test_what_came_in_one_piece_with_the_half_close_is_answered(server: Server) -> None:
    """A stopped server finds the requests and the end together, as a fast client on a busy machine has it."""
    for requests in (1, 3):
        with Connection(server) as connection:
            os.kill(server.pid, signal.SIGSTOP)
            connection.send(b"".join(request_bytes("POST", "/cometd", numbered(number)) for number in range(requests)))
            connection.half_close()
            os.kill(server.pid, signal.SIGCONT)
            assert [connection.response().messages[0]["id"] for _ in range(requests)] == list("012")[:requests]
            assert connection.rest() == b""


def test_half_closed_pipelined_requests_are_all_answered(server: Server) -> None:
    with Connection(server) as connection:
        connection.send(b"".join(request_bytes("POST", "/cometd", numbered(number)) for number in range(5)))
        connection.half_close()
        assert [connection.response().messages[0]["id"] for _ in range(5)] == list("01234")
        assert connection.rest() == b""


def test_a_half_closed_connect_is_answered_at_once(server: Server) -> None:
    """Who half-closes may wait for an answer or be gone: the answer tells."""
    client = Client(server).start()
    polling = client.hold()
    polling.half_close()
    assert polling.response().messages[-1]["successful"] is True
    assert polling.rest() == b""
    client.drop_polling()
    assert client.connect(advice={"timeout": 0})[-1]["successful"] is True


def test_half_a_request_and_a_half_close_get_no_answer(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"[", [("Content-Length", "1000")])
        connection.half_close()
        assert connection.rest() == b""


# Peers that go


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_a_held_connect_whose_peer_goes_is_let_go_at_once(server: Server, how: str) -> None:
    client = Client(server).start()
    polling = client.hold()
    getattr(polling, how)()
    until(lambda: figures(server)["crewel_held_connects"] == 0)


def test_what_comes_after_the_peer_went_waits_for_its_next_connect(server: Server, channel: str) -> None:
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    client.hold().reset()
    until(lambda: figures(server)["crewel_held_connects"] == 0)
    other.publish(channel, "kept")
    client.drop_polling()
    assert [message.get("data") for message in client.connect()] == ["kept", None]


def test_a_peer_that_goes_in_mid_body_is_forgotten(server: Server) -> None:
    for how in ("close", "reset"):
        with Connection(server) as connection:
            connection.request("POST", "/cometd", b"[", [("Content-Length", "1000")])
            getattr(connection, how)()
    assert Client(server).handshake()["successful"] is True
