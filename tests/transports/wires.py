"""Clients of the fast lane without a network: what they send is handed to its connections, and what it answers is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, cast

import orjson
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode

from crewel.transports.fast_lane import FastLane
from crewel.transports.http_fast import FastConnection
from crewel.transports.websocket import Socket

DEFLATE = PerMessageDeflate(True, True, 15, 15)
"""How such a client compresses."""


def receive(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Give a protocol what has come, as a loop does: so much at once as its buffer takes."""
    left = len(data)
    while left:
        buffer = memoryview(protocol.get_buffer(-1))
        size = left if left < buffer.nbytes else buffer.nbytes
        buffer[:size] = data[-left:][:size]
        protocol.buffer_updated(size)
        left -= size


class Wire(asyncio.Transport):
    """The far end of a connection, at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_read = True
        """Whether what comes is read."""
        self.is_closed = self.is_aborted = False
        self.unread = 0
        """Bytes that the peer has not taken."""

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self.unread

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("asyncio.Protocol", protocol)

    def resume_reading(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True


class Client:
    """A long-polling client that waits in its connect."""

    connection_type = "long-polling"

    def __init__(self, lane: FastLane, *, acknowledges: bool) -> None:
        self.wire = Wire()
        lane.turns.unseen = 1_000_000  # tests make many in one turn
        self.connection = FastConnection(lane)
        self.connection.connection_made(self.wire)
        self.receive = self.open()
        self.acknowledges = acknowledges
        self.batch = 0
        self.sent = 0
        self.cookie = ""
        reply = self.ask({"channel": "/meta/handshake", "ext": {"ack": acknowledges}})
        self.client_id = reply["clientId"]

    def open(self) -> Callable[[bytes], None]:
        """Make of the connection what the transport needs, and return what takes its bytes."""
        return self.connection.data_received

    def hang_up(self) -> None:
        """End the connection."""
        self.wire.is_closed = True
        self.connection.connection_lost(None)

    def body(self, messages: Sequence[dict[str, Any]]) -> bytes:
        """The messages as one payload."""
        self.sent += 1  # a connect with the id of the one before would be taken for its copy
        common = {"id": str(self.sent), "clientId": getattr(self, "client_id", "")}
        return orjson.dumps([{**common, **message} for message in messages])

    def request(self, *messages: dict[str, Any]) -> bytes:
        body = self.body(messages)
        head = (
            f"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nCookie: {self.cookie}\r\n"
        )
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.receive(self.request(message))
        return self.reply()

    def reply(self) -> dict[str, Any]:
        head, _, body = self.wire.written.pop().partition(b"\r\n\r\n")
        for line in head.decode().split("\r\n"):
            if line.startswith("Set-Cookie: "):
                self.cookie = line.removeprefix("Set-Cookie: ").partition(";")[0]
        return self.note(orjson.loads(body)[-1])

    def note(self, reply: dict[str, Any]) -> dict[str, Any]:
        assert reply["successful"], reply
        self.batch = reply.get("ext", {}).get("ack", self.batch)
        return reply

    def connect(self) -> bytes:
        ext = {"ext": {"ack": self.batch}} if self.acknowledges else {}
        return self.request({"channel": "/meta/connect", "connectionType": self.connection_type, **ext})


class SocketClient(Client):
    """A client on a WebSocket of the fast lane. Without acknowledgement, a delivery does not end its connect."""

    connection_type = "websocket"
    offer = b""  # of extensions, as a header

    def open(self) -> Callable[[bytes], None]:
        self.connection._lane.sockets.arrivals.slice_s = inf  # tests make many in one turn
        self.connection.data_received(
            b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + self.offer + b"\r\n"
        )
        assert self.wire.written.pop().startswith(b"HTTP/1.1 101 ")
        assert isinstance(self.wire.protocol, Socket)
        return partial(receive, self.wire.protocol)

    def hang_up(self) -> None:
        """End the connection."""
        self.wire.is_closed = True
        self.wire.protocol.connection_lost(None)

    def request(self, *messages: dict[str, Any]) -> bytes:
        return Frame(Opcode.TEXT, self.body(messages)).serialize(mask=True)

    def reply(self) -> dict[str, Any]:
        frame = self.wire.written.pop()
        return self.note(orjson.loads(frame[frame.index(b"[{") :])[-1])


class DeflatingClient(SocketClient):
    """The same of a client that compresses each message, as browsers do."""

    offer = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

    def request(self, *messages: dict[str, Any]) -> bytes:
        return Frame(Opcode.TEXT, self.body(messages)).serialize(mask=True, extensions=[DEFLATE])

    def reply(self) -> dict[str, Any]:
        frame = self.wire.written.pop()
        payload = frame[4 if frame[1] == 126 else 2 :]
        return self.note(orjson.loads(DEFLATE.decode(Frame(Opcode.TEXT, payload, rsv1=bool(frame[0] & 0x40))).data)[-1])
