"""A raw WebSocket client (RFC 6455), and Bayeux over it."""

from __future__ import annotations

import base64
import json
import os
import struct
import time
import zlib
from typing import Any

from tests.functional.bayeux import Message, Speaker
from tests.functional.wire import LIMIT_S, Address, Connection, Headers, Response, pairs

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    """The upgrade was answered with something else than 101."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"{response.status} {response.body!r}")
        self.response = response


class Socket:
    """One WebSocket: frames as they are."""

    def __init__(
        self,
        server: Address,
        path: str = "/cometd",
        headers: Headers = (),
        *,
        tls: Any = None,
        host: str = "127.0.0.1",
        connection: Connection | None = None,
    ) -> None:
        """`connection`: one that has served requests before; a new one without it."""
        self.connection = connection or Connection(server, tls=tls, host=host)
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        self.connection.request("GET", path, b"", [*upgrade.items(), ("Sec-WebSocket-Key", key), *pairs(headers)])
        self.upgrade = self.connection.response()
        if self.upgrade.status != 101:
            if self.upgrade.status >= 200:
                self.connection.close()
            raise Refused(self.upgrade)
        self._deflates = "permessage-deflate" in (self.upgrade.header("Sec-WebSocket-Extensions") or "")
        self._inflater = zlib.decompressobj(-15)
        self.compressed_frames = 0

    def frame(self, opcode: int, payload: bytes = b"", *, final: bool = True, compressed: bool = False) -> None:
        """Send one frame, masked as a client has to."""
        first = opcode | (0x80 if final else 0) | (0x40 if compressed else 0)
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", first, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", first, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", first, 0x80 | 127, size)
        mask = os.urandom(4)
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
        self.connection.send(head + mask + masked)

    def text(self, text: str | bytes) -> None:
        self.frame(TEXT, text.encode() if isinstance(text, str) else text)

    def next_frame(self, limit: float = LIMIT_S) -> tuple[int, bytes]:
        """The opcode and payload of the next frame."""
        deadline = time.monotonic() + limit
        first, size = self.connection.take(2, deadline)
        assert not size & 0x80, "a server does not mask"
        if size == 126:
            (size,) = struct.unpack("!H", self.connection.take(2, deadline))
        elif size == 127:
            (size,) = struct.unpack("!Q", self.connection.take(8, deadline))
        payload = self.connection.take(size, deadline)
        assert first & 0x80, "the server sends whole messages"
        if first & 0x40:
            assert self._deflates, "compressed, and that was not agreed"
            self.compressed_frames += 1
            payload = self._inflater.decompress(payload + b"\x00\x00\xff\xff")
        return first & 0x0F, payload

    def receive(self, limit: float = LIMIT_S) -> list[Message]:
        """The messages of the next text frame."""
        opcode, payload = self.next_frame(limit)
        assert opcode == TEXT, (opcode, payload)
        messages = json.loads(payload)
        assert isinstance(messages, list)
        assert messages
        return messages

    def fence(self) -> list[Message]:
        """Everything that the server sent until now: a ping is sent, and what comes before its pong counts."""
        mark = os.urandom(8)
        self.frame(PING, mark)
        messages: list[Message] = []
        while (frame := self.next_frame()) != (PONG, mark):
            assert frame[0] == TEXT, frame
            messages += json.loads(frame[1])
        return messages

    def closed(self, limit: float = LIMIT_S) -> tuple[int, str]:
        """The code and reason with which the server closes; text frames before that are left out."""
        while True:
            opcode, payload = self.next_frame(limit)
            if opcode == CLOSE:
                self.frame(CLOSE, payload[:2])
                return int.from_bytes(payload[:2], "big"), payload[2:].decode()

    def close(self) -> None:
        """Close as the protocol wants it, and wait for the server's own close frame."""
        self.frame(CLOSE, (1000).to_bytes(2, "big"))
        while self.next_frame()[0] != CLOSE:
            pass
        self.connection.close()


class SocketClient(Speaker):
    """One Bayeux session over a WebSocket. What the server pushes between replies is kept in `events`."""

    def __init__(self, server: Address, path: str = "/cometd", headers: Headers = (), **options: Any) -> None:
        super().__init__()
        self.socket = Socket(server, path, headers, **options)
        self.events: list[Message] = []

    def send(self, *messages: Message) -> None:
        self.socket.text(json.dumps(messages))

    def reply_to(self, message: Message, limit: float = LIMIT_S) -> Message:
        """The reply to this message, which was sent alone; what comes before it goes to `events`."""
        deadline = time.monotonic() + limit
        while True:
            for received in self.socket.receive(deadline - time.monotonic()):
                if received.get("id") == message["id"] and received["channel"] == message["channel"]:
                    return received
                self.events.append(received)

    def call(self, channel: str, **fields: Any) -> Message:
        """Send one message and wait for its reply."""
        message = self.message(channel, **fields)
        self.send(message)
        return self.reply_to(message)

    def handshake(self, **fields: Any) -> Message:
        self.id = None
        reply = self.call("/meta/handshake", version="1.0", supportedConnectionTypes=["websocket"], **fields)
        assert reply["successful"] is True, reply
        self.id = reply["clientId"]
        return reply

    def ask_connect(self, **fields: Any) -> Message:
        """Send a connect and do not wait for its answer."""
        message = self.message("/meta/connect", connectionType="websocket", **fields)
        self.send(message)
        return message

    def connect(self, **fields: Any) -> Message:
        return self.reply_to(self.ask_connect(**fields))

    def start(self, **fields: Any) -> SocketClient:
        """Shake hands and make the first connect, which is answered at once."""
        self.handshake(**fields)
        assert self.connect()["successful"] is True
        return self

    def subscribe(self, channel: str) -> None:
        assert self.call("/meta/subscribe", subscription=channel)["successful"] is True

    def publish(self, channel: str, data: Any = None, **fields: Any) -> Message:
        reply = self.call(channel, data=data, **fields)
        assert reply["successful"] is True, reply
        return reply

    def heard(self, count: int = 1) -> list[Any]:
        """The data of the next so many messages."""
        while len(self.events) < count:
            self.events += self.socket.receive()
        taken, self.events = self.events[:count], self.events[count:]
        return [event["data"] for event in taken]
