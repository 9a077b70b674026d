"""Values that Python cannot read or say: numbers of thousands of digits, dates beyond every clock, bytes that are no text.
Each gets a clean answer, on both lanes, and none a traceback (the fixture `shared` looks for one in the server's log)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest

from tests.functional.conftest import Serve
from tests.functional.frames import CLOSE, PING, TEXT, Socket
from tests.functional.wire import Connection, descriptors, resident, until
from tests.security.issuer import secret_file
from tests.server_process import Server

HANDSHAKE = json.dumps([{"channel": "/meta/handshake", "id": "1"}]).encode()
TOKEN = b"Authorization: Bearer an-operator-of-the-tests"
DIGITS = b"9" * 5000
LENGTH = b"Content-Length: %d" % len(HANDSHAKE)
UPGRADE = [b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13"]
KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
MIB = 2**20


def request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([line + b" HTTP/1.1", b"Host: localhost", *headers, b"", b""]) + body


REFUSED = {
    "a length of thousands of digits": request(b"POST /cometd", b"Content-Length: " + DIGITS, body=HANDSHAKE),
    "a length of thousands of zeros": request(b"POST /cometd", b"Content-Length: " + b"0" * 5000 + b"40", body=HANDSHAKE),
    "a length for back ends": request(b"POST /api/publish", TOKEN, b"Content-Length: " + b"0" * 5000, body=HANDSHAKE),
    "a length for operators": request(b"POST /admin/api/commands", TOKEN, b"Content-Length: " + b"0" * 5000, body=HANDSHAKE),
    "a length beyond 64 bits": request(b"POST /cometd", b"Content-Length: 18446744073709551616", body=HANDSHAKE),
    "a length in other digits": request(b"POST /cometd", "Content-Length: ٤٠".encode(), body=HANDSHAKE),
    "a chunk of thousands of digits": request(b"POST /cometd", b"Transfer-Encoding: chunked", body=b"f" * 5000 + b"\r\n"),
    "a file with a long name": request(b"GET /static/chat/" + b"a" * 5000),
    "a date beyond every clock": request(b"GET /", b"If-Modified-Since: Mon, 01 Jan " + b"9" * 30 + b" 00:00:00 GMT"),
    "another such date": request(b"GET /", b"if-unmodified-since: Mon, 01 Jan " + b"9" * 30 + b" 00:00:00 GMT"),
    "a range from such a date": request(b"GET /", b"If-Range: Mon, 01 Jan " + b"9" * 30 + b" 00:00:00 GMT", b"Range: bytes=0-"),
    "a range of thousands of digits": request(b"GET /static/chat/acknowledge.js", b"Range: bytes=" + DIGITS + b"-"),
    "a key that is no ASCII": request(b"GET /cometd", *UPGRADE, "Sec-WebSocket-Key: é".encode()),
    "a key that is no text": request(b"GET /cometd", *UPGRADE, b"Sec-WebSocket-Key: \xff"),
    "a version in other digits": request(b"GET /cometd", *UPGRADE[:2], "Sec-WebSocket-Version: ١٣".encode(), KEY),
    "a sub-protocol that is no text": request(b"GET /cometd", *UPGRADE, KEY, b"Sec-WebSocket-Protocol: \xff"),
    "an expectation that is no text": request(b"POST /cometd", LENGTH, b"Expect: \xff", body=HANDSHAKE),
    "a tunnel to nowhere": b"CONNECT  \r\nHost: localhost\r\n\r\n",
    "a path that is no text": request(b"GET /admin/api/\xff\xfe", TOKEN),
    "half a surrogate in a path": request(b"GET /admin/api/sessions/%ED%A0%80", TOKEN),
    "half a surrogate in JSON": request(b"POST /cometd", b"Content-Length: 25", body=b'[{"channel":"/a\\ud800 "}] '),
    "half a surrogate in a form": request(
        b"POST /cometd", b"Content-Length: 48", body=b"message=%7B%22channel%22%3A%22%2Fa%ED%A0%80%22%7D"[:48]
    ),
    "a charset that is no name": request(b"POST /cometd", LENGTH, b"Content-Type: a/b; charset=" + b"u" * 5000, body=HANDSHAKE),
}  # fmt: skip

SERVED = {
    "half a surrogate in JSONP": request(b"GET /cometd?jsonp=f&message=%7B%22channel%22%3A%22/%ED%A0%80%22%7D"),
    "an origin that is no text": request(b"POST /cometd", LENGTH, b"Origin: \xff\xfe", body=HANDSHAKE),
    "a preflight that is no text": request(
        b"OPTIONS /cometd", b"Origin: http://a.example", b"Access-Control-Request-Headers: \xff\xfe"
    ),
    "a cookie that is no text": request(b"POST /cometd", LENGTH, b"Cookie: BAYEUX_BROWSER=\xff\xfe", body=HANDSHAKE),
}


@pytest.fixture
def tough(shared: Serve) -> Server:
    return shared(
        "admin.token=an-operator-of-the-tests",
        "http.allowed_origins=*",
        "bayeux.transports=websocket,long-polling,callback-polling",
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_cleanly(tough: Server, name: str) -> None:
    with Connection(tough) as connection:
        connection.send(REFUSED[name])
        assert 400 <= connection.response().status < 500


@pytest.mark.parametrize("name", SERVED)
def test_what_need_not_be_read_goes_through(tough: Server, name: str) -> None:
    with Connection(tough) as connection:
        connection.send(SERVED[name])
        assert connection.response().status == 200


def test_an_offer_of_compression_that_cannot_be_read_is_declined(tough: Server) -> None:
    """RFC 7692, 7.1: the socket opens without it, or the request is refused."""
    offer = b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=" + DIGITS
    with Connection(tough) as connection:
        connection.send(request(b"GET /cometd", *UPGRADE, KEY, offer))
        response = connection.response()
    assert response.status == 400 or (response.status == 101 and not response.all("Sec-WebSocket-Extensions"))


@pytest.mark.parametrize("extension", ["", "permessage-deflate"])
def test_a_flood_of_pings_that_reads_no_answer_is_not_read_either(tough: Server, extension: str) -> None:
    """It is left alone, or closed for its number of pings."""
    closed = descriptors(tough)
    socket = Socket(tough, headers={"Sec-WebSocket-Extensions": extension} if extension else {})
    socket.connection.socket.settimeout(0.5)
    before, pings = resident(tough), (b"\x89\xfd\0\0\0\0" + b"x" * 125) * 500
    with pytest.raises((TimeoutError, ConnectionError)):
        socket.connection.socket.sendall(pings * 1000)
    assert resident(tough) - before < 16 * MIB
    socket.connection.reset()
    until(lambda: descriptors(tough) <= closed)


@pytest.mark.parametrize(
    "frame",
    [b"\x88\x81\0\0\0\0\0", b"\x88\x82\0\0\0\0\0\x01", b"\xf1\x80\0\0\0\0", b"\x80\x81\0\0\0\0x",
     b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0", b"\x09\x81\0\0\0\0x", b"\x89\xfe\x01\0\0\0\0\0" + b"x" * 256,
     b"\xc1\x83\0\0\0\0\xff\xff\xff"],
    ids=["a short close", "a close with no code", "reserved bits", "a continuation of nothing", "an endless frame",
         "half a ping", "a long ping", "compressed garbage"],
)  # fmt: skip
def test_a_frame_against_the_protocol_closes_the_socket(tough: Server, frame: bytes) -> None:
    socket = Socket(tough, headers={"Sec-WebSocket-Extensions": "permessage-deflate"})
    socket.connection.send(frame)
    assert socket.next_frame()[0] == CLOSE


def test_a_reset_under_an_answer_is_no_failure(tough: Server) -> None:
    for _ in range(5):
        socket = Socket(tough)
        for _ in range(50):
            socket.frame(PING, b"x" * 125)
            socket.frame(TEXT, b'[{"channel":"/a","id":"1"}]')
        socket.connection.reset()
    assert Socket(tough).fence() == []


def part(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


TOKENS = {
    "nested by the thousand": part("[" * 6000) + ".e30.AA",
    "a header nested by the thousand": part('{"alg":"HS256","x":' + "[" * 3000 + "]" * 3000 + "}") + ".e30.AA",
    "a number of thousands of digits": part('{"alg":"HS256","x":' + "9" * 5000 + "}") + ".e30.AA",
    "half a surrogate": part('{"alg":"HS256","crit":["\\ud800"]}') + ".e30.AA",
    "half a surrogate as key": part('{"alg":"HS256","kid":"\\ud800"}') + ".e30.AA",
    "half a surrogate as algorithm": part('{"alg":"\\ud800"}') + ".e30.AA",
    "no ASCII": "é.ß.ü",
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(secret_file(tmp_path_factory.mktemp("keys")))


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_that_cannot_be_read_is_refused_cleanly(shared: Serve, keys: str, name: str) -> None:
    server = shared("security.policy=jwt", f"security.jwt_keys={keys}")
    token = TOKENS[name]
    with Connection(server) as connection:
        (reply,) = connection.post(
            "/cometd", [{"channel": "/meta/handshake", "ext": {"session": {"token": token}}}]
        ).messages
        assert reply["error"].startswith("403:"), reply
        authorization = b"Authorization: Bearer " + token.encode()
        connection.send(request(b"POST /api/publish", LENGTH, authorization, body=HANDSHAKE))
        assert connection.response().status == 401
