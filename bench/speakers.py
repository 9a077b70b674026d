"""Clients of six protocols over WebSockets, for sockets.py: as little work as possible, so that one core drives thousands.

Each kind opens, subscribes and publishes in its own protocol, and counts what it receives. None masks with more than zeros,
which costs a server the same.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import struct
from abc import ABC, abstractmethod
from typing import ClassVar, Self, cast

DATA = b'{"n":1,"text":"%b"}' % (b"x" * 46)  # 64 bytes
_MARK = b'"n":1'
_ACK = re.compile(rb'"ack":(\d+)')
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_COMPRESSED = 0x40
LIMIT_S = 30.0


class Client(asyncio.Protocol, ABC):
    """One WebSocket, and what its protocol makes of it."""

    path: ClassVar[str] = "/"
    headers: ClassVar[str] = ""
    opcode: ClassVar[int] = _TEXT
    tls: ClassVar[ssl.SSLContext | None] = None
    """How all clients encrypt."""

    def __init__(self, *, acknowledges: bool = False, is_stored: bool = False, deflates: bool = False) -> None:
        self.acknowledges = acknowledges
        self.is_stored = is_stored
        self.deflates = deflates
        self.count = 0
        """Messages that have come."""
        self.is_lost = False
        self.transport: asyncio.Transport
        self._rest = b""
        self._is_open = False
        self._answer: asyncio.Future[bytes] | None = None

    # The connection

    async def open(self, port: int) -> Self:
        """Connect, upgrade and log in."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", port, ssl=Client.tls)
        offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n" if self.deflates else ""
        answer = self._await_answer()
        self.transport.write(
            f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{offer}{self.headers}\r\n".encode()
        )
        await self._within(answer)
        await self.log_in()
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Whoever waits learns it."""
        self.is_lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server has closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Take the frames apart."""
        if self._rest:
            data = self._rest + data
        if not self._is_open:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            assert data.startswith(b"HTTP/1.1 101"), data
            self._is_open = True
            data = data[end + 4 :]
            self._answered(b"")
        at, length = 0, len(data)
        while length - at >= 2:
            size, head = data[at + 1], 2
            if size == 126:
                size, head = int.from_bytes(data[at + 2 : at + 4]), 4
            elif size == 127:
                size, head = int.from_bytes(data[at + 2 : at + 10]), 10
            end = at + head + size
            if end > length:
                break
            self._frame(data[at], data[at + head : end])
            at = end
        self._rest = data[at:]

    def _frame(self, first: int, payload: bytes) -> None:
        opcode = first & 15
        if opcode == _PING:
            self.write(payload, _PONG)
        elif opcode < _CLOSE:
            if first & _COMPRESSED:
                self.count += 1
            else:
                self.received(payload)

    def write(self, payload: bytes, opcode: int = 0) -> None:
        """Send a frame."""
        size, first = len(payload), 0x80 | (opcode or self.opcode)
        head = struct.pack("!BB", first, 0x80 | size) if size < 126 else struct.pack("!BBH", first, 0xFE, size)
        self.transport.write(head + bytes(4) + payload)

    def _await_answer(self) -> asyncio.Future[bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def _answered(self, payload: bytes) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(payload)

    async def _within(self, answer: asyncio.Future[bytes]) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await answer

    async def ask(self, payload: bytes) -> bytes:
        """Send a frame and wait for what answers it."""
        answer = self._await_answer()
        self.write(payload)
        return await self._within(answer)

    # The protocol

    @abstractmethod
    def received(self, payload: bytes) -> None:
        """A frame has come."""

    @abstractmethod
    async def log_in(self) -> None:
        """Say who this is."""

    @abstractmethod
    async def subscribe(self, room: str) -> None:
        """Receive the room."""

    @abstractmethod
    def publish(self, room: str) -> None:
        """Publish the data, and do not wait."""


class Storing(Client):
    """A client of a server that can store messages."""

    @abstractmethod
    async def store(self, room: str) -> None:
        """Publish the data, and wait until the server says that it is stored."""


class Bayeux(Storing):
    """Crewel and Faye."""

    path = "/cometd"
    connection_type: ClassVar[bytes] = b"websocket"
    polls: ClassVar[bool] = False
    """Whether messages come with the replies to connects only."""

    def __init__(self, **options: bool) -> None:
        super().__init__(**options)
        self._number = 0
        self._id = b""
        self._connect = b""

    def received(self, payload: bytes) -> None:
        self.count += payload.count(_MARK)
        if (self.acknowledges or self.polls) and b'"/meta/connect"' in payload:
            found = _ACK.search(payload)
            assert found is not None or not self.acknowledges, payload
            self._number += 1
            ext = b',"ext":{"ack":%b}' % found[1] if found is not None else b""
            self.write(b'%b,"id":"%d"%b}]' % (self._connect, self._number, ext))
        if b'"successful":true' in payload:
            self._answered(payload)
        else:
            assert b'"successful":false' not in payload, payload

    async def log_in(self) -> None:
        ext = b',"ext":{"ack":true}' if self.acknowledges else b""
        reply = await self.ask(
            b'[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["%b"],"id":"1"%b}]'
            % (self.connection_type, ext)
        )
        self._id = json.loads(reply)[0]["clientId"].encode()
        self._connect = b'[{"channel":"/meta/connect","connectionType":"%b","clientId":"%b"' % (
            self.connection_type,
            self._id,
        )

    async def subscribe(self, room: str) -> None:
        channel = f"/{room}".encode()
        subscribe = b'{"channel":"/meta/subscribe","subscription":"%b","clientId":"%b","id":"2"}' % (channel, self._id)
        self._number = 3
        connect = b'"id":"3","advice":{"timeout":0}%b}]' % (b',"ext":{"ack":0}' if self.acknowledges else b"")
        # In one payload, as clients batch them, which the server answers in one turn and one frame.
        await self.ask(b"[%b,%b,%b" % (subscribe, self._connect[1:], connect))
        if not (self.acknowledges or self.polls):
            self.write(self._connect + b',"id":"4"}]')

    def _message(self, room: str, ext: bytes) -> bytes:
        return b'[{"channel":"/%b","data":%b,"clientId":"%b","id":"9"%b}]' % (room.encode(), DATA, self._id, ext)

    def publish(self, room: str) -> None:
        self.write(self._message(room, b',"ext":{"publish":{"persistent":true}}' if self.is_stored else b""))

    async def store(self, room: str) -> None:
        await self.ask(self._message(room, b',"ext":{"publish":{"persistent":true}}'))


class Mqtt(Client):
    """mosquitto: QoS 1 if the client acknowledges."""

    headers = "Sec-WebSocket-Protocol: mqtt\r\n"
    opcode = _BINARY
    _numbers: ClassVar[int] = 0

    def received(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            first, size, head = payload[at], payload[at + 1], 2
            if size & 0x80:
                size, head = size & 0x7F | payload[at + 2] << 7, 3
            if first & 0xF0 == 0x30:
                self.count += 1
                if first & 0x06:
                    place = at + head + 2 + int.from_bytes(payload[at + head : at + head + 2])
                    self.write(b"\x40\x02" + payload[place : place + 2])
            elif self._answer is not None:
                self._answered(payload)
            at += head + size

    async def log_in(self) -> None:
        Mqtt._numbers += 1
        name = b"c%d" % Mqtt._numbers
        await self.ask(b"\x10" + bytes((12 + len(name),)) + b"\x00\x04MQTT\x04\x02\x00\x00" + _text(name))

    async def subscribe(self, room: str) -> None:
        body = b"\x00\x01" + _text(room.encode()) + bytes((int(self.acknowledges),))
        await self.ask(b"\x82" + bytes((len(body),)) + body)

    def publish(self, room: str) -> None:
        # The number of a message may be used again, because the last one has been acknowledged long ago.
        body = _text(room.encode()) + (b"\x00\x07" if self.acknowledges else b"") + DATA
        self.write((b"\x32" if self.acknowledges else b"\x30") + bytes((len(body),)) + body)


def _text(word: bytes) -> bytes:
    return struct.pack("!H", len(word)) + word


class Nats(Storing):
    """NATS; with JetStream if messages are stored."""

    opcode = _BINARY
    _numbers: ClassVar[int] = 0

    def __init__(self, **options: bool) -> None:
        super().__init__(**options)
        self._stream = b""

    def received(self, payload: bytes) -> None:
        # The frames of NATS are pieces of a stream: a line and its message may come in two.
        data = self._stream + payload if self._stream else payload
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line, following = data[at:end], end + 2
            if line.startswith(b"MSG "):
                words = line.split(b" ")
                following += int(words[-1]) + 2
                if following > len(data):
                    break
                self._take(words, data[end + 2 : following - 2])
            elif line == b"PING":
                self.write(b"PONG\r\n")
            elif line == b"PONG":
                self._answered(line)
            else:
                assert not line.startswith(b"-ERR"), line
            at = following
        self._stream = data[at:]

    def _take(self, words: list[bytes], message: bytes) -> None:
        if words[1].startswith(b"_I."):
            self._answered(message)
            return
        self.count += 1
        if self.acknowledges and len(words) == 5:
            self.write(b"PUB %b 4\r\n+ACK\r\n" % words[3])

    async def log_in(self) -> None:
        Nats._numbers += 1
        self.number = Nats._numbers
        await self.ask(b'CONNECT {"verbose":false,"pedantic":false,"no_responders":false}\r\nPING\r\n')
        if self.is_stored:
            self.write(b"SUB _I.%d 9\r\n" % self.number)

    async def request(self, subject: str, body: bytes) -> bytes:
        """Ask the server, and return its answer."""
        return await self.ask(b"PUB %b _I.%d %d\r\n%b\r\n" % (subject.encode(), self.number, len(body), body))

    async def make_stream(self) -> None:
        """A stream of all rooms, in files."""
        stream = {
            "name": "ROOMS",
            "subjects": ["room.*"],
            "storage": "file",
            "retention": "limits",
            "max_msgs": 100_000,
        }
        answer = await self.request("$JS.API.STREAM.CREATE.ROOMS", json.dumps(stream).encode())
        assert b'"error"' not in answer, answer

    async def subscribe(self, room: str) -> None:
        subject = room.replace("/", ".")
        if not self.is_stored:
            await self.ask(b"SUB %b 1\r\nPING\r\n" % subject.encode())
            return
        self.write(b"SUB d.%d 1\r\n" % self.number)
        consumer = {
            "stream_name": "ROOMS",
            "config": {
                "durable_name": f"c{self.number}",
                "deliver_subject": f"d.{self.number}",
                "deliver_policy": "new",
                "ack_policy": "explicit",
                "filter_subject": subject,
                "mem_storage": True,
            },
        }
        name = f"$JS.API.CONSUMER.DURABLE.CREATE.ROOMS.c{self.number}"
        answer = await self.request(name, json.dumps(consumer).encode())
        assert b'"error"' not in answer, answer

    def publish(self, room: str) -> None:
        self.write(b"PUB %b %d\r\n%b\r\n" % (room.replace("/", ".").encode(), len(DATA), DATA))

    async def store(self, room: str) -> None:
        answer = await self.request(room.replace("/", "."), DATA)
        assert b'"seq"' in answer, answer


class SocketIo(Client):
    """socket.io, without long-polling first."""

    path = "/socket.io/?EIO=4&transport=websocket"

    def received(self, payload: bytes) -> None:
        if payload.startswith(b'42["said"'):
            self.count += 1
        elif payload == b"2":
            self.write(b"3")
        elif payload.startswith((b"40", b"43")):
            self._answered(payload)

    async def log_in(self) -> None:
        await self.ask(b"40")

    async def subscribe(self, room: str) -> None:
        await self.ask(b'420["join","%b"]' % room.encode())

    def publish(self, room: str) -> None:
        self.write(b'42["say","%b",%b]' % (room.encode(), DATA))


class Centrifugo(Client):
    """Centrifugo, with its JSON protocol. It sends several replies and messages in one frame, a line each."""

    path = "/connection/websocket"

    def received(self, payload: bytes) -> None:
        self.count += payload.count(_MARK)
        if payload == b"{}":
            self.write(b"{}")
        elif self._answer is not None and b'"id":1' in payload:
            self._answered(payload)
        assert b'"error"' not in payload, payload

    async def log_in(self) -> None:
        await self.ask(b'{"id":1,"connect":{}}')

    async def subscribe(self, room: str) -> None:
        await self.ask(b'{"id":1,"subscribe":{"channel":"%b"}}' % room.encode())

    def publish(self, room: str) -> None:
        self.write(b'{"id":2,"publish":{"channel":"%b","data":%b}}' % (room.encode(), DATA))
