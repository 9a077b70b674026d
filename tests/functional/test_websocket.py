"""The WebSocket transport, row by row of the reference's section 4."""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from typing import Any

import pytest

from tests.functional.bayeux import Client, data, held, in_time, sessions
from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import BINARY, CLOSE, PING, PONG, TEXT, Refused, Socket, SocketClient
from tests.functional.wire import Connection, figures, until
from tests.server_process import Server

UPGRADE = (
    b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nContent-Length: 5\r\n\r\n"
)
"""With the length of a body, which never comes: aiohttp answers such a one on both lanes."""
DEFLATE = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
HANDSHAKE = [{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]
RETRY = {"reconnect": "retry", "interval": 0, "timeout": 30000}


def frames(*messages: object) -> str:
    return json.dumps(messages)


# The upgrade


@pytest.mark.parametrize("path", ["/cometd", "/cometd/", "/cometd/handshake", "/cometd?a=b"])
def test_the_upgrade_is_taken_on_the_path_and_below(server: Server, path: str) -> None:
    client = SocketClient(server, path)
    assert client.handshake()["successful"] is True
    assert client.socket.upgrade.header("Sec-WebSocket-Protocol") is None
    assert client.socket.upgrade.all("Set-Cookie") == []


def test_offered_sub_protocols_are_ignored_by_default(server: Server) -> None:
    socket = Socket(server, headers={"Sec-WebSocket-Protocol": "a, b"})
    assert socket.upgrade.header("Sec-WebSocket-Protocol") is None


def test_a_wanted_sub_protocol_has_to_be_offered(serve: Serve) -> None:
    server = serve("websocket.protocol=bayeux/1.0")
    socket = Socket(server, headers={"Sec-WebSocket-Protocol": "other, bayeux/1.0"})
    assert socket.upgrade.header("Sec-WebSocket-Protocol") == "bayeux/1.0"
    for headers in ({}, {"Sec-WebSocket-Protocol": "other"}):
        with pytest.raises(Refused) as refused:
            Socket(server, headers=headers)
        assert refused.value.response.status == 400


def test_a_transport_that_is_not_listed_is_refused(serve: Serve) -> None:
    server = serve("bayeux.transports=long-polling")
    with pytest.raises(Refused) as refused:
        Socket(server)
    assert refused.value.response.status == 400
    assert Client(server).handshake()["supportedConnectionTypes"] == ["long-polling"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-WebSocket-Version": "12", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="},
        {"Sec-WebSocket-Version": "13"},
        {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Connection": "Upgr\xfade"},
    ],
)
def test_a_bad_upgrade_is_refused(server: Server, headers: dict[str, str]) -> None:
    with Connection(server) as connection:
        response = connection.get("/cometd", {"Upgrade": "websocket", "Connection": "Upgrade", **headers})
    assert 400 <= response.status < 500


@pytest.mark.parametrize(
    "paths", [["/cometd"], ["/health/live"], ["/health/live", "/cometd"], ["/cometd", "/health/live"]], ids="+".join
)
def test_a_connection_can_be_upgraded_after_requests(server: Server, paths: list[str]) -> None:
    """Proxies, Faye's client and browsers' pools use what connection there is, whatever it has served before."""
    connection = Connection(server)
    for path in paths:
        response = connection.post(path, HANDSHAKE) if path == "/cometd" else connection.get(path)
        assert response.status == 200
    client = SocketClient(server, connection=connection).start()
    client.subscribe("/upgraded")
    assert client.call("/upgraded", data=1)["successful"]


# Frames


def test_frames_are_text_and_always_arrays(server: Server, channel: str) -> None:
    client = SocketClient(server).start()
    message = client.message(channel, data=1)
    client.socket.text(json.dumps(message))
    opcode, payload = client.socket.next_frame()
    assert opcode == TEXT
    assert json.loads(payload)[0]["id"] == message["id"]


def test_all_replies_of_a_frame_are_in_one_frame(server: Server, channel: str) -> None:
    client = SocketClient(server).start()
    client.send(*(client.message(channel, data=number) for number in range(5)))
    assert [reply["successful"] for reply in client.socket.receive()] == [True] * 5


def test_messages_come_before_the_replies(server: Server, channel: str) -> None:
    client = SocketClient(server).start()
    client.subscribe(channel)
    client.publish(channel, "own")
    assert [event["data"] for event in client.events] == ["own"]


def test_a_message_may_come_in_fragments(server: Server) -> None:
    client = SocketClient(server)
    message = client.message("/meta/handshake")
    text = json.dumps([message]).encode()
    client.socket.frame(TEXT, text[:10], final=False)
    client.socket.frame(PING, b"between")
    client.socket.frame(0, text[10:20], final=False)
    client.socket.frame(0, text[20:])
    assert client.socket.next_frame() == (PONG, b"between")
    assert client.reply_to(message)["successful"] is True


def test_an_empty_list_is_ignored(server: Server) -> None:
    """Old clients of Faye keep their socket alive with it."""
    client = SocketClient(server).start()
    for empty in ("[]", " [ ] ", "null"):
        client.socket.text(empty)
    assert client.socket.fence() == []
    assert client.publish("/a")["successful"] is True


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", 1007),
        (b"{", 1007),
        (b"7", 1007),
        (b'"text"', 1007),
        (b"[{}] x", 1007),
        (b'[{"channel":"/\xff"}]', 1007),
        (b"\xef\xbb\xbf[{}]", 1007),
        (b'[{"channel":"/meta/handshake"},{"channel":"/a"}]', 1007),
        (b'[{"channel":"/a"},{"channel":"/meta/handshake"}]', 1007),
        (b'[{"a":' + b"[" * 70 + b"]" * 70 + b"}]", 1008),
        (b"[" + b",".join([b"{}"] * 1001) + b"]", 1008),
    ],
)
def test_what_is_no_payload_closes_the_socket(server: Server, payload: bytes, code: int) -> None:
    client = SocketClient(server).start()
    client.socket.text(payload)
    closed, reason = client.socket.closed()
    assert closed == code
    assert len(reason) <= 123  # what a close frame has room for
    assert client.socket.connection.rest() == b""


DEEP = "[" * 63 + "]" * 63
"""Data for which a batch is nested one level too deeply."""


def message_of(client: SocketClient, number: int, data: str, rest: str = "") -> str:
    return f'{{"channel":"/flawed","id":"f{number}","clientId":"{client.id}","data":{data}{rest}}}'


@pytest.mark.parametrize(
    ("data", "rest", "field", "reason"),
    [
        (DEEP, "", "data", "nested deeper than bayeux.max_depth, which is 64"),
        (
            "1",
            f',"ext":{{"publish":{{"clientProperties":{DEEP}}}}}',
            "ext",
            "nested deeper than bayeux.max_depth, which is 64",
        ),
        (r'"\ud800 half"', ',"ext":{"publish":{}}', "data", "half of a surrogate pair, character "),
        ("NaN", ',"ext":{"publish":{}}', "data", "NaN is no number of JSON, character "),
    ],
)
def test_a_message_that_cannot_be_processed_is_refused_alone(
    server: Server, data: str, rest: str, field: str, reason: str
) -> None:
    client = SocketClient(server).start()
    client.subscribe("/flawed")
    others = [message_of(client, number, str(number)) for number in (1, 3)]
    client.socket.text(f"[{others[0]}, {message_of(client, 2, data, rest)} ,{others[1]}]")
    received: list[Any] = []
    while len(received) < 5:
        received += client.socket.receive()
    assert [each["data"] for each in received if "data" in each] == [1, 3]
    [refused] = [each for each in received if each.get("id") == "f2"]
    asked = refused.pop("ext", {"publish": None})["publish"]
    assert refused == {
        "channel": "/flawed",
        "id": "f2",
        "successful": False,
        "error": f"400:{field}:user.illegalArgument",
    }
    if rest:
        assert asked["errorCode"] == "user.illegalArgument"
        assert asked["message"].startswith(f"{field}: {reason}")
    assert client.publish("/flawed")["successful"] is True


def test_messages_of_one_frame_are_refused_for_different_reasons(server: Server) -> None:
    """What the parser does not take of one message keeps no other from being checked."""
    client = SocketClient(server).start()
    client.socket.text(f"[{message_of(client, 1, 'NaN')},{message_of(client, 2, DEEP)},{message_of(client, 3, '1')}]")
    replies: dict[str, Any] = {}
    while len(replies) < 3:
        replies |= {each["id"]: each.get("error") for each in client.socket.receive()}
    illegal = "400:data:user.illegalArgument"
    assert replies == {"f1": illegal, "f2": illegal, "f3": None}


def test_a_frame_of_which_no_reply_could_say_what_is_refused_closes_the_socket(server: Server) -> None:
    for body in ('{"channel":"/a","data":"\\ud800"}', '{"channel":"/a","id":"\\ud800"}', '{"id":"1","data":NaN}'):
        client = SocketClient(server).start()
        client.socket.text(f"[{body}]")
        assert client.socket.closed()[0] == 1007


@one_lane
def test_messages_that_cannot_be_processed_are_bounded_as_empty_frames_are(serve: Serve) -> None:
    client = SocketClient(serve("limits.control_frames_per_s=1", "limits.control_frames_burst=3")).start()
    for number in range(20):
        client.socket.text(message_of(client, number, DEEP if number % 2 else "NaN"))
    assert client.socket.closed()[0] == 1008


@pytest.mark.parametrize(
    "frame",
    [b"\x81\x02[]", b"\x89\x00", b"\x01\x01[", b"\x81\x7e\x00\xc8" + b" " * 200],
    ids=["a message", "a ping", "a fragment", "a long message"],
)
def test_a_frame_that_is_not_masked_closes_the_socket(server: Server, frame: bytes) -> None:
    """RFC 6455, 5.1: a proxy could take what is in it for a request."""
    client = SocketClient(server).start()
    client.socket.connection.send(frame)
    assert client.socket.closed() == (1002, "incorrect masking")


def test_a_message_over_the_limit_is_closed_before_it_is_sent(server: Server) -> None:
    client = SocketClient(server).start()
    client.socket.connection.send(struct.pack("!BBQ", 0x80 | TEXT, 0xFF, 65537) + b"mask")
    code, reason = client.socket.closed()
    assert (code, reason) == (1009, "request body too large (bayeux.max_message_bytes is 65536)")
    assert figures(server)['crewel_refused_payloads_total{fault="too_large"}'] >= 1


def test_a_message_may_be_as_long_as_the_limit(server: Server) -> None:
    client = SocketClient(server).start()
    message = client.message("/a", data="")
    size = len(json.dumps([message]))
    message["data"] = "x" * (65536 - size)
    client.send(message)
    assert client.reply_to(message)["successful"] is True


def test_an_oversize_message_in_fragments_is_closed_too(server: Server) -> None:
    client = SocketClient(server).start()
    for number in range(9):
        client.socket.frame(TEXT if number == 0 else 0, b" " * 8192, final=False)
    assert client.socket.closed()[0] == 1009


def test_a_binary_frame_is_closed_1003(server: Server) -> None:
    client = SocketClient(server).start()
    client.socket.frame(BINARY, b"[{}]")
    assert client.socket.closed()[0] == 1003


@pytest.mark.parametrize(
    "head",
    [
        struct.pack("!BB", 0xF1, 0x80) + b"0000",  # reserved bits
        struct.pack("!BB", 0x83, 0x80) + b"0000",  # an unknown opcode
        struct.pack("!BB", 0x09, 0x80) + b"0000",  # a fragmented ping
        struct.pack("!BBH", 0x89, 0xFE, 200) + b"0000" + b"x" * 200,  # a long ping
        struct.pack("!BB", 0x80, 0x80) + b"0000",  # a continuation of nothing
    ],
)
def test_what_is_no_frame_closes_the_socket(server: Server, head: bytes) -> None:
    client = SocketClient(server).start()
    client.socket.connection.send(head)
    rest = client.socket.connection.rest()
    assert rest[:1] in (b"", bytes([0x80 | CLOSE]))


def test_pings_are_answered(server: Server) -> None:
    socket = Socket(server)
    socket.frame(PING, b"hello")
    assert socket.next_frame() == (PONG, b"hello")


def test_a_close_is_answered(server: Server) -> None:
    socket = Socket(server)
    socket.close()
    until(lambda: figures(server)["crewel_sockets"] == 0)


# Compression


def test_compression_is_agreed_if_offered(server: Server, channel: str) -> None:
    client = SocketClient(server, headers=DEFLATE).start()
    client.subscribe(channel)
    client.publish(channel, "x" * 10000)
    assert client.heard() == ["x" * 10000]
    assert client.socket.compressed_frames > 0


def test_compressed_messages_are_read_and_limited_as_they_unfold(server: Server) -> None:
    client = SocketClient(server, headers=DEFLATE).start()
    message = client.message("/a", data=1)
    deflater = zlib.compressobj(wbits=-15)

    def deflated(payload: bytes) -> bytes:
        return (deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]

    client.socket.frame(TEXT, deflated(json.dumps([message]).encode()), compressed=True)
    assert client.reply_to(message)["successful"] is True
    client.socket.frame(TEXT, deflated(b" " * 10_000_000), compressed=True)
    assert client.socket.closed()[0] == 1009


def test_compression_can_be_switched_off(serve: Serve) -> None:
    server = serve("websocket.compression=false")
    client = SocketClient(server, headers=DEFLATE).start()
    assert client.socket.upgrade.header("Sec-WebSocket-Extensions") is None
    assert client.socket.compressed_frames == 0


# Connect and delivery


def test_the_first_connect_is_answered_at_once_and_the_next_is_held(server: Server) -> None:
    client = SocketClient(server).start()
    begin = time.monotonic()
    reply = client.connect(advice={"timeout": 400})
    assert 0.3 < time.monotonic() - begin < 20  # and not 30, the usual time
    assert reply["advice"] == RETRY


def test_messages_are_pushed_without_waking_the_connect(server: Server, channel: str) -> None:
    client, other = SocketClient(server).start(), Client(server).start()
    client.subscribe(channel)
    connect = client.ask_connect()
    for number in range(3):
        other.publish(channel, number)
    assert client.heard(3) == [0, 1, 2]
    assert held(server) == 1
    client.send(client.message("/meta/disconnect"))
    assert client.reply_to(connect)["advice"] == {"reconnect": "none"}


def test_messages_are_pushed_before_the_first_connect(server: Server, channel: str) -> None:
    client, other = SocketClient(server), Client(server).start()
    client.handshake()
    client.subscribe(channel)
    other.publish(channel, "early")
    assert client.heard() == ["early"]


def test_a_connect_in_a_batch_is_answered_at_once(server: Server, channel: str) -> None:
    client = SocketClient(server).start()
    client.send(client.message("/meta/connect"), client.message("/meta/subscribe", subscription=channel))
    assert [reply["channel"] for reply in client.socket.receive()] == ["/meta/connect", "/meta/subscribe"]


def test_a_newer_connect_silences_the_older(server: Server) -> None:
    client = SocketClient(server).start()
    old = client.ask_connect()
    until(lambda: held(server) == 1)
    new = client.ask_connect(advice={"timeout": 0})
    assert client.reply_to(new)["successful"] is True
    assert all(message.get("id") != old["id"] for message in client.events + client.socket.fence())
    assert held(server) == 0


def test_sockets_of_one_browser_are_not_limited(server: Server) -> None:
    cookie = {"Cookie": "BAYEUX_BROWSER=one"}
    for _ in range(4):
        SocketClient(server, headers=cookie).start().ask_connect()
    until(lambda: held(server) == 4)


def test_disconnect_answers_the_connect_first(server: Server) -> None:
    """The official client closes the socket when the disconnect reply comes and no connect is outstanding."""
    client = SocketClient(server).start()
    connect = client.ask_connect()
    until(lambda: held(server) == 1)
    disconnect = client.message("/meta/disconnect")
    client.send(disconnect)
    replies = client.socket.receive()
    while len(replies) < 2:
        replies += client.socket.receive()
    assert [reply["id"] for reply in replies] == [connect["id"], disconnect["id"]]
    assert replies[0]["advice"] == {"reconnect": "none"}
    assert "advice" not in replies[1]


def test_a_connect_only_session_hears_with_connects_only(server: Server, channel: str) -> None:
    client, other = SocketClient(server), Client(server).start()
    client.handshake(ext={"ack": True})
    client.connect(ext={"ack": 0})
    client.subscribe(channel)
    other.publish(channel, 1)
    assert client.socket.fence() == []
    reply = client.connect(ext={"ack": 1})
    assert [event["data"] for event in client.events] == [1]
    assert reply["ext"]["ack"] == 2


# The session of a socket


def test_every_message_needs_the_clientid_of_the_socket(server: Server, channel: str) -> None:
    client, other = SocketClient(server).start(), SocketClient(server).start()
    for client_id in (None, "nobody", other.id):
        reply = client.call(channel, data=1, clientId=client_id)
        assert reply["error"] == "402::session_unknown"
    assert client.call("/meta/connect", clientId=other.id)["advice"] == {"reconnect": "handshake", "interval": 0}
    assert client.publish(channel)["successful"] is True
    assert other.publish(channel)["successful"] is True


def test_a_new_handshake_on_the_same_socket_is_a_new_session(server: Server, channel: str) -> None:
    client, other = SocketClient(server).start(), Client(server).start()
    old = client.id
    client.subscribe(channel)
    client.handshake()
    assert client.id != old
    assert client.connect()["successful"] is True
    other.publish(channel, "for the old session")
    assert client.socket.fence() == []
    assert client.call("/a", data=1, clientId=old)["error"] == "402::session_unknown"


def test_a_new_socket_adopts_the_session_and_the_old_one_is_mute(server: Server, channel: str) -> None:
    old, other = SocketClient(server).start(), Client(server).start()
    old.subscribe(channel)
    connect = old.ask_connect()
    until(lambda: held(server) == 1)
    new = SocketClient(server)
    new.id = old.id
    assert new.call("/meta/subscribe", subscription=channel + "/more")["successful"] is True
    other.publish(channel, "to the new one")
    assert new.heard() == ["to the new one"]
    assert new.connect(advice={"timeout": 0})["advice"] == RETRY
    assert not [each for each in old.socket.fence() if "data" in each or each.get("id") == connect["id"]]
    assert old.publish(channel + "/x")["successful"] is True  # it is still the session's, and may speak


def test_what_comes_between_two_sockets_is_kept(server: Server, channel: str) -> None:
    old, other = SocketClient(server).start(), Client(server).start()
    old.subscribe(channel)
    old.ask_connect()
    until(lambda: held(server) == 1)
    old.socket.connection.reset()
    until(lambda: held(server) == 0)
    for number in range(3):
        other.publish(channel, number)
    new = SocketClient(server)
    new.id = old.id
    new.connect(advice={"timeout": 0})
    assert new.heard(3) == [0, 1, 2]


def test_a_handshake_for_each_connection_is_a_setting(serve: Serve) -> None:
    server = serve("websocket.require_handshake_per_connection=true")
    old = SocketClient(server).start()
    new = SocketClient(server)
    new.id = old.id
    reply = new.call("/meta/connect")
    assert reply["error"] == "402::session_unknown"
    assert reply["advice"] == {"reconnect": "handshake", "interval": 0}
    assert old.publish("/a")["successful"] is True


@one_lane
def test_a_closed_socket_leaves_its_session_the_rest_of_the_hold_and_the_grace(serve: Serve) -> None:
    server = serve("bayeux.timeout_ms=800", "bayeux.max_interval_ms=700", "bayeux.sweep_ms=50")

    def closed() -> float:
        until(lambda: sessions(server) == 0)
        client = SocketClient(server).start()
        begin = time.monotonic()
        client.ask_connect()
        until(lambda: held(server) == 1, 0.8)
        client.socket.close()
        return begin

    begin = in_time(closed)
    until(lambda: sessions(server) == 0)
    assert 1.4 < time.monotonic() - begin < 9


def test_after_the_session_expired_the_socket_can_shake_hands_again(serve: Serve) -> None:
    server = serve("bayeux.max_interval_ms=500", "bayeux.sweep_ms=50")
    client = in_time(lambda: SocketClient(server).start())
    until(lambda: sessions(server) == 0)
    reply = client.connect()
    assert reply["error"] == "402::session_unknown"
    assert reply["advice"] == {"reconnect": "handshake", "interval": 0}
    in_time(lambda: client.start().publish("/a"))


@one_lane
def test_an_idle_socket_is_closed_1001(serve: Serve) -> None:
    server = serve("websocket.idle_timeout_ms=1200")

    def silent() -> tuple[float, SocketClient]:
        client = SocketClient(server).start()
        begin = time.monotonic()
        client.socket.connection.has_input(within=0.3)
        client.publish("/a")
        return begin, client

    begin, client = in_time(silent)
    assert client.socket.closed()[0] == 1001
    assert 1.4 < time.monotonic() - begin < 20


# From one transport to another


def test_a_session_moves_from_long_polling_to_a_socket_and_back(server: Server, channel: str) -> None:
    poller, other = Client(server).start(), Client(server).start()
    poller.subscribe(channel)
    polling = poller.hold()
    socket = SocketClient(server)
    socket.id = poller.id
    assert socket.connect(advice={"timeout": 0})["advice"] == RETRY
    assert polling.response().status == 500
    other.publish(channel, "over the socket")
    assert socket.heard() == ["over the socket"]
    poller.drop_polling()
    (reply,) = poller.connect(advice={"timeout": 0})
    assert reply["successful"] is True


def test_after_the_move_back_messages_wait_for_the_poll(server: Server, channel: str) -> None:
    poller, other = Client(server).start(), Client(server).start()
    poller.subscribe(channel)
    socket = SocketClient(server)
    socket.id = poller.id
    socket.connect(advice={"timeout": 0})
    socket.socket.close()
    other.publish(channel, 1)
    assert data(poller.connect()) == [1]


def test_a_connect_over_http_takes_the_place_of_one_held_on_a_socket(server: Server, channel: str) -> None:
    poller, other = Client(server).start(), Client(server).start()
    poller.subscribe(channel)
    socket = SocketClient(server)
    socket.id = poller.id
    socket.ask_connect()
    until(lambda: held(server) == 1)
    polling = poller.ask_connect()
    other.publish(channel, 1)
    # The socket is open and still the session's: the message may take either way, but only one.
    pushed = data(socket.socket.fence())
    poller.disconnect()
    assert pushed + data(polling.response().messages) == [1]


def test_the_first_http_request_of_a_session_made_by_socket_binds_it_to_a_cookie(server: Server) -> None:
    socket = SocketClient(server).start()
    with Connection(server) as connection:
        message = socket.message("/meta/connect", advice={"timeout": 0})
        response = connection.post("/cometd", [message])
        assert response.messages[0]["successful"] is True
        (cookie,) = response.all("Set-Cookie")
        again = connection.post("/cometd", [message])
        assert again.messages[0]["error"] == "402::session_unknown"
        assert again.all("Set-Cookie") == []
        own = connection.post("/cometd", [message], {"Cookie": cookie.partition(";")[0]})
        assert own.messages[0]["successful"] is True
        assert own.all("Set-Cookie") == []


def test_the_cookie_of_the_upgrade_binds_the_session(server: Server) -> None:
    socket = SocketClient(server, headers={"Cookie": "BAYEUX_BROWSER=mine"}).start()
    with Connection(server) as connection:
        message = socket.message("/meta/connect", advice={"timeout": 0})
        assert connection.post("/cometd", [message]).messages[0]["successful"] is False
        mine = connection.post("/cometd", [message], {"Cookie": "BAYEUX_BROWSER=mine"})
        assert mine.messages[0]["successful"] is True


def test_an_upgrade_whose_peer_sends_no_more_ends(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port or 0), 15) as peer:
        peer.sendall(UPGRADE)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(4096):
            pass
