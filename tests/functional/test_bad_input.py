"""Whatever a peer sends, the answer is a Bayeux error, a 4xx or a close code, and the next handshake works.

Hypothesis makes the input; one server gets all of it, so that what the first request breaks the next one shows. A
traceback in its log fails the test.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.functional.bayeux import Client
from tests.functional.conftest import Serve
from tests.functional.frames import CLOSE, TEXT, Socket, SocketClient
from tests.functional.wire import Connection, Response, open_connections
from tests.server_process import Server

bounded = settings(
    max_examples=1000 if os.environ.get("FAULTS") == "full" else 50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

META = ["/meta/handshake", "/meta/connect", "/meta/subscribe", "/meta/unsubscribe", "/meta/disconnect"]
ODD = [
    "/meta/unknown", "/meta", "/meta/", "/meta/connect/x", "/META/connect", "/meta/*", "/meta/**", "/a/*", "/a/**", "/**", "/*",
    "/a//b", "//", "/", "", "a", "/a/*/b", "/a***", "/service/x", "/service/**", "/service/", "/é", "/a\u0000", "/a" * 600,
    "/__sys__deadMessage", "/a b", "/{x}", "/ret/1",
]  # fmt: skip
FORGED = ["advice", "successful", "error", "ext", "clientId", "id", "channel", "subscription", "data", "timestamp",
          "version", "minimumVersion", "supportedConnectionTypes", "connectionType", "x-messages", "lazy"]  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from([*META, *ODD, "true", "1.0", "retry", "none", "long-polling"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
advices = st.fixed_dictionaries({}, optional=dict.fromkeys(("timeout", "interval", "reconnect", "hosts"), values))
exts = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("ack", "timesync", "publish", "update", "session", "binary", "timestamp"), values)
)
timesyncs = st.fixed_dictionaries(
    {"timesync": st.fixed_dictionaries({}, optional=dict.fromkeys(("tc", "l", "o", "ts", "p", "a"), values))}
)
channels = st.sampled_from(META + ODD) | st.text(max_size=10).map(lambda name: "/" + name)
messages = st.builds(
    lambda channel, fields, advice, ext: {"channel": channel, **fields, **advice, **ext},
    channels | values,
    st.dictionaries(st.sampled_from(FORGED), values, max_size=5),
    st.just({}) | advices.map(lambda advice: {"advice": advice}),
    st.just({}) | (exts | timesyncs).map(lambda ext: {"ext": ext}),
)
signed = st.booleans()
"""Whether a message carries the `clientId` of a session that exists."""


@pytest.fixture
def tough(shared: Serve) -> Server:
    """A server whose holds are short, so that a connect that is accepted keeps nobody waiting."""
    return shared("bayeux.timeout_ms=1", "bayeux.transports=websocket,long-polling,callback-polling")


def assert_alive(server: Server) -> None:
    with Connection(server) as connection:
        (reply,) = connection.post("/cometd", [{"channel": "/meta/handshake", "id": "1"}]).messages
    assert reply["successful"] is True


def assert_answered(response: Response, count: int | None) -> None:
    """Replies in Bayeux, as many as there were messages, or a refusal of the whole."""
    if response.status != 200:
        assert 400 <= response.status < 500, response
        return
    replies = [
        message for message in response.messages if "successful" in message and message.keys() != {"channel", "data"}
    ]
    assert count is None or len(replies) >= count, (replies, count)
    for reply in replies:
        assert isinstance(reply["successful"], bool)
        if not reply["successful"]:
            assert "error" not in reply or reply["error"][:3].isdigit()
            assert not reply.get("error", "").startswith("5"), reply


def sign(batch: list[Any], client: Client, which: list[bool]) -> list[Any]:
    """Put the session's `clientId` into some of the messages, and keep them from asking for a long hold."""
    batch = [dict(message) if isinstance(message, dict) else message for message in batch]
    for message, with_id in zip(batch, which, strict=False):
        if isinstance(message, dict) and with_id and message.get("channel") != "/meta/handshake":
            message["clientId"] = client.id
        if isinstance(message, dict) and isinstance(message.get("advice"), dict):
            timeout = message["advice"].get("timeout")
            if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 20:
                message["advice"] = {**message["advice"], "timeout": 20}
    return batch


def post_and_close(server: Server, body: bytes, headers: list[tuple[str, str]]) -> Response:
    with Connection(server) as connection:
        open_connections.remove(connection)
        connection.request("POST", "/cometd", body, headers)
        return connection.response()


@bounded
@given(batch=st.lists(messages | values, min_size=1, max_size=5), which=st.lists(signed, min_size=5, max_size=5))
@example(batch=[{"channel": "/meta/connect", "advice": {"timeout": 1e308}}], which=[True] * 5)
@example(batch=[{"channel": "/meta/subscribe", "subscription": [[]]}], which=[True] * 5)
@example(batch=[{"channel": "/meta/subscribe", "subscription": []}], which=[True] * 5)
@example(batch=[{"channel": "/meta/handshake", "ext": {"ack": []}}], which=[False] * 5)
@example(batch=[{"channel": "/a", "data": "\ud800"}], which=[True] * 5)
def test_any_messages_over_http(tough: Server, batch: list[Any], which: list[bool]) -> None:
    client = Client(tough).start()
    try:
        body = json.dumps(sign(batch, client, which)).encode()
        assert_answered(post_and_close(tough, body, client.all_headers()), len(batch))
    finally:
        _close(client)
    assert_alive(tough)


@bounded
@given(
    body=st.binary(max_size=200)
    | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.builds(
        lambda message, cut, flip: _damaged(json.dumps([message]).encode(), cut, flip),
        messages,
        st.integers(0, 400),
        st.integers(0, 400),
    ),
    content_type=st.sampled_from(
        ["application/json", "application/x-www-form-urlencoded",
         "text/plain;charset=utf-16", "text/plain;charset=", "multipart/form-data"]
    ),
)  # fmt: skip
@example(body=b"[" * 60000, content_type="application/json")
@example(body=b'{"a":' * 10000, content_type="application/json")
@example(body=b'[{"channel":"/a","data":' + b"[" * 300 + b"]" * 300 + b"}]", content_type="application/json")
@example(body=b"message=" * 5000, content_type="application/x-www-form-urlencoded")
@example(body=b"\xff\xfe[\x00]\x00", content_type="text/plain;charset=utf-16")
@example(body=b"1" * 60000, content_type="application/json")
@example(body=b'[{"channel":"/a","data":1e999999}]', content_type="application/json")
def test_any_bytes_over_http(tough: Server, body: bytes, content_type: str) -> None:
    assert_answered(post_and_close(tough, body, [("Content-Type", content_type)]), None)
    assert_alive(tough)


@bounded
@given(batch=st.lists(messages | values, min_size=1, max_size=4), which=st.lists(signed, min_size=4, max_size=4))
def test_any_messages_over_websocket(tough: Server, batch: list[Any], which: list[bool]) -> None:
    client = SocketClient(tough)
    try:
        client.start()
        client.send(*sign(batch, client, which))  # type: ignore[arg-type]
        opcode, payload = client.socket.next_frame()
        if opcode == CLOSE:
            assert int.from_bytes(payload[:2], "big") in (1007, 1008, 1009)
        else:
            assert opcode == TEXT
            assert isinstance(json.loads(payload), list)
    finally:
        _drop(client.socket)
    assert_alive(tough)


@bounded
@given(
    opcode=st.sampled_from([TEXT, 2]),
    payload=st.binary(max_size=200) | messages.map(lambda message: json.dumps(message).encode()[:-1]),
)
@example(opcode=TEXT, payload=b"[" * 50000)
@example(opcode=TEXT, payload=b'[{"channel":"/\xed\xa0\x80"}]')
def test_any_frame_over_websocket(tough: Server, opcode: int, payload: bytes) -> None:
    socket = Socket(tough)
    try:
        socket.frame(opcode, payload)
        socket.frame(9, b"fence")
        answer, content = socket.next_frame()
        if answer == CLOSE:
            assert int.from_bytes(content[:2], "big") in ((1003,) if opcode == 2 else (1007, 1008))
        else:
            assert answer in (TEXT, 10)
    finally:
        _drop(socket)
    assert_alive(tough)


@bounded
@given(query=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=60))
@example(query="jsonp=cb&message=%5B%7B%7D%5D")
@example(query="jsonp=cb&message=%FF&message=%00")
def test_any_query(tough: Server, query: str) -> None:
    connection = Connection(tough)
    open_connections.remove(connection)
    with connection:
        response = connection.get(f"/cometd?{query}")
    assert response.status in (200, 400)
    assert_alive(tough)


def _damaged(body: bytes, cut: int, flip: int) -> bytes:
    damaged = bytearray(body[: max(cut % (len(body) + 1), 1)])
    damaged[flip % len(damaged)] ^= 1 << flip % 8
    return bytes(damaged)


def _close(client: Client) -> None:
    for connection in (client.command, client.polling):
        open_connections.remove(connection)
        connection.close()


def _drop(socket: Socket) -> None:
    open_connections.remove(socket.connection)
    socket.connection.close()


# What must not happen, one by one


def test_wildcards_meta_and_reserved_channels_are_not_published_to(server: Server) -> None:
    client = Client(server).start()
    expected = {
        "/**": "405", "/*": "405", "/a/*": "405", "/a/**": "405", "/service/*": "405", "/a//b": "405", "//": "405",
        "/a/*/b": "405", "a": "405", "/é": "405", "/meta/unknown": "403", "/meta/connect/x": "403", "/__sys__x": "403",
    }  # fmt: skip
    for channel, code in expected.items():
        (reply,) = client.send(client.message(channel, data=1))
        assert reply["successful"] is False
        assert reply["error"].startswith(code), (channel, reply)


def test_meta_and_reserved_channels_are_not_subscribed_to(server: Server) -> None:
    client = Client(server).start()
    for channel in ("/meta/connect", "/meta/unknown", "/meta/*", "/meta/**", "/__sys__deadMessage", "/__sys__*"):
        (reply,) = client.send(client.message("/meta/subscribe", subscription=channel))
        assert reply["error"].startswith("403:"), (channel, reply)
        assert reply["subscription"] == channel


def test_what_a_publisher_forges_does_not_arrive(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    forged = {
        "advice": {"reconnect": "none"}, "successful": False, "error": "403::forged", "subscription": "/x", "custom": 1,
        "ext": {"ack": 5, "publish": {}, "update": {}, "session": {}, "subscribe": {}, "mine": 2},
    }  # fmt: skip
    message, reply = client.send(client.message(channel, data="d", **forged))
    assert message == {"channel": channel, "data": "d", "custom": 1, "ext": {"mine": 2}}
    assert reply["successful"] is True


def test_missing_data_is_delivered_as_null(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    message, reply = client.send(client.message(channel))
    assert message == {"channel": channel, "data": None}
    assert "data" not in reply


def test_a_trailing_slash_is_not_part_of_the_name(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel + "/")
    message, reply = client.send(client.message(channel + "/", data=1))
    assert message["channel"] == channel
    assert reply["channel"] == channel + "/"


def test_numbers_survive(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    for number in (1234567890123456789, -(2**63), 2**64 - 1, 0.1, -0.0, 1e300):
        message, _ = client.send(client.message(channel, data=number))
        assert message["data"] == number
        assert type(message["data"]) is type(number)


@pytest.mark.parametrize(
    ("subscription", "error"),
    [(None, "403::subscription_missing"), ([], "403::subscription_invalid"), (7, "403::subscription_invalid"),
     ({}, "403::subscription_invalid"), (["/a", 7], "403::subscription_invalid"), (["/a", "b"], "403::subscription_invalid"),
     ("", "403::subscription_invalid"), ("/a//b", "403::subscription_invalid"), (True, "403::subscription_invalid")],
)  # fmt: skip
def test_subscriptions_of_the_wrong_kind(server: Server, subscription: Any, error: str) -> None:
    client = Client(server).start()
    for channel in ("/meta/subscribe", "/meta/unsubscribe"):
        (reply,) = client.send(client.message(channel, subscription=subscription))
        assert reply["error"] == error
        assert reply["subscription"] == subscription


def test_ten_thousand_messages_are_one_batch_if_the_limit_allows(serve: Serve) -> None:
    server = serve("bayeux.max_batch_messages=10000", "bayeux.max_message_bytes=10000000")
    with Connection(server) as connection:
        assert connection.post("/cometd", [{"channel": "/a"}] * 10001).status == 400
    client = Client(server).start()
    replies = client.send(*[client.message("/a", data=number) for number in range(10000)])
    assert len(replies) == 10000
    assert all(reply["successful"] for reply in replies)
    socket = SocketClient(server).start()
    socket.send(*[socket.message("/a", data=number) for number in range(10000)])
    assert len(socket.socket.receive()) == 10000
