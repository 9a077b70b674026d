"""Numbers reach their receivers, the store and operators as they were written, whichever way they come."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

import pytest

from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.functional.bayeux import Client, Message, Speaker
from tests.functional.conftest import Serve
from tests.functional.frames import SocketClient
from tests.functional.wire import Connection, until
from tests.server_process import Server

DATA = (
    "[9007199254740993,9223372036854775808,18446744073709551616,12345678901234567.89,0.10000000000000001,1e-400,-0.0,1.0,"
    "123456789012345678901234567890]"
)
STORED: Message = {"ext": {"publish": {"persistent": True}}}
Send = Callable[[Server, str], bytes]


@pytest.fixture
def server(shared: Serve) -> Server:
    return shared(*SETS, "bayeux.transports=long-polling,websocket,callback-polling")


def written(speaker: Speaker, channel: str, data: str = DATA, **fields: object) -> bytes:
    """A publish with this data."""
    message = json.dumps(speaker.message(channel, data="?", **fields))
    return message.replace('"?"', data).encode()


def post(server: Server, channel: str, body_of: Callable[[bytes], bytes], kind: str, **fields: object) -> bytes:
    client = Client(server).start()
    headers = [("Cookie", f"BAYEUX_BROWSER={client.cookie}"), ("Content-Type", kind)]
    client.command.request("POST", "/cometd", body_of(written(client, channel, **fields)), headers)
    return client.command.response().body


def form(message: bytes) -> bytes:
    return f"message={quote(message.decode())}".encode()


def utf16(message: bytes) -> bytes:
    return message.decode().encode("utf-16")


def batch(message: bytes) -> bytes:
    return b"[" + message + b"," + message.replace(b'"id": "', b'"id": "1') + b"]"


def socket(server: Server, channel: str) -> bytes:
    client = SocketClient(server).start()
    client.socket.text(written(client, channel))
    return json.dumps(client.socket.receive()).encode()


def script(server: Server, channel: str) -> bytes:
    client = Client(server).start()
    with Connection(server) as connection:
        query = f"jsonp=cb&message={quote(written(client, channel).decode())}"
        return connection.get(f"/cometd?{query}", {"Cookie": f"BAYEUX_BROWSER={client.cookie}"}).body


def back_end(server: Server, channel: str) -> bytes:
    with Connection(server) as connection:
        return connection.post("/api/publish", written(Speaker(), channel), {"Authorization": f"Bearer {TOKEN}"}).body


JSON = "application/json"
WAYS: dict[str, Send] = {
    "a POST": partial(post, body_of=bytes, kind=JSON),
    "a POST of a batch": partial(post, body_of=batch, kind=JSON),
    "a POST of a form": partial(post, body_of=form, kind="application/x-www-form-urlencoded"),
    "a POST in UTF-16": partial(post, body_of=utf16, kind="application/json;charset=utf-16"),
    "a stored POST": partial(post, body_of=bytes, kind=JSON, **STORED),
    "an updated POST": partial(post, body_of=bytes, kind=JSON, ext={"mood": "good"}),
    "a WebSocket": socket,
    "JSONP": script,
    "/api/publish": back_end,
}


@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
def test_a_subscriber_gets_numbers_as_they_were_written(server: Server, channel: str, send: Send) -> None:
    plain, updated = Client(server).start(), Receiver(server).be()
    plain.subscribe(channel)
    updated.subscribe(channel)
    assert b'"successful":true' in send(server, channel).replace(b" ", b"")
    for receiver in (plain, updated):
        said = receiver.ask_connect(advice={"timeout": 5000}, ext={"ack": 0}).response().body
        assert f'"data":{DATA}'.encode() in said, said


def test_operators_see_and_edit_numbers_as_they_were_written(server: Server, channel: str) -> None:
    desk, receiver = Desk(server), Receiver(server).be()
    receiver.subscribe(channel)
    assert b'"successful":true' in post(server, channel, bytes, JSON, **STORED)
    receiver.reject(until(receiver.take))
    (letter,) = until(lambda: desk.letters(f"channel={channel}"))
    shown = desk.ask("GET", f"/dead-letters/{letter['id']}").body
    assert f'"data":{DATA}'.encode() in shown, shown
    edited = DATA.replace("[", "[0.30000000000000001,")
    answer = desk.ask("POST", f"/dead-letters/{letter['id']}/edit", f'{{"data":{edited}}}'.encode())
    assert answer.status == 200, answer
    said = receiver.ask_connect(advice={"timeout": 5000}, ext={"ack": receiver.batch}).response().body
    assert f'"data":{edited}'.encode() in said, said
