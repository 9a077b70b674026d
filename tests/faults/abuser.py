"""One abuser of a server, as a process of its own: `python -m tests.faults.abuser PORT KIND SECONDS ADDRESS`.

It does one thing as fast as it can, without looking at the answers. `ADDRESS` is what it tells the server's trusted proxy rule
that it is; empty: it comes from loopback. It ends by itself.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import struct
import sys
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

Fields = dict[str, Any]
_ids = itertools.count(1)
_COMPRESSED = 0x40  # RFC 7692, 6


def message(channel: str, client_id: str | None = None, **fields: Any) -> Fields:
    made = {"channel": channel, "id": str(next(_ids)), **fields}
    return made if client_id is None else {**made, "clientId": client_id}


class Abuser:
    """Connections to one server."""

    def __init__(self, port: int, address: str) -> None:
        self.port = port
        self.forwarded = f"X-Forwarded-For: {address}\r\n" if address else ""
        self.tasks: list[asyncio.Task[None]] = []

    async def http(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def request(self, *messages: Fields, cookie: str = "") -> bytes:
        body = json.dumps(messages).encode()
        cookies = f"Cookie: {cookie}\r\n" if cookie else ""
        head = (
            f"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\n{self.forwarded}{cookies}Content-Type: application/json\r\n"
        )
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def ask(self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], *messages: Fields) -> Any:
        reader, writer = connection
        writer.write(self.request(*messages))
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        return json.loads(await reader.readexactly(length))

    async def open(self, extensions: str = "") -> Socket:
        """A socket that has not shaken hands."""
        asked = f"Sec-WebSocket-Extensions: {extensions}\r\n" if extensions else ""
        reader, writer = await self.http()
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\n{self.forwarded}Upgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{asked}\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        return Socket(reader, writer)

    async def socket(self, *, reads: bool = True, ext: Fields | None = None) -> Socket:
        socket = await self.open()
        asked = {"version": "1.0", "supportedConnectionTypes": ["websocket"]} | ({"ext": ext} if ext else {})
        await socket.send(message("/meta/handshake", **asked))
        (reply,) = await socket.receive()
        socket.client_id = reply.get("clientId", "none")
        await socket.send(socket.message("/meta/connect", connectionType="websocket", advice={"timeout": 0}))
        await socket.receive()
        if reads:
            self.tasks.append(asyncio.create_task(socket.discard()))
        return socket

    # What it does

    async def batches(self) -> None:
        """Batches to 200 sessions of its own."""
        connection = await self.http()
        for _ in range(200):
            (reply,) = await self.ask(connection, message("/meta/handshake", version="1.0"))
            await self.ask(connection, message("/meta/subscribe", reply.get("clientId"), subscription="/flood"))
        socket = await self.socket()
        while True:
            await socket.send(*(socket.message("/flood", data="x" * 20) for _ in range(500)))

    async def subscriptions(self) -> None:
        """10,000 subscriptions of one session, made and ended again and again."""
        socket = await self.socket()
        while True:
            for kind in ("subscribe", "unsubscribe"):
                for start in range(0, 10_000, 500):
                    names = [f"/mine/{number}/{'deep/' * 8}" for number in range(start, start + 500)]
                    await socket.send(socket.message(f"/meta/{kind}", subscription=names))

    async def never_reading(self) -> None:
        """50 sessions that do not read what a 51st publishes."""
        for _ in range(50):
            deaf = await self.socket(reads=False)
            await deaf.send(deaf.message("/meta/subscribe", subscription="/never/**"))
        socket = await self.socket()
        for number in itertools.count():
            await socket.send(*(socket.message(f"/never/{number % 7}", data="x" * 8000) for _ in range(7)))

    async def filters(self) -> None:
        """Filters that look at all of a large message."""
        expression = " || ".join(f"max(data) == `{-number}`" for number in range(1, 20))
        socket = await self.socket()
        for number in range(10):
            ext = {"subscribe": {"filter": expression}}
            await socket.send(socket.message("/meta/subscribe", subscription=f"/sieve/{number}", ext=ext))
        while True:
            for number in range(10):
                await socket.send(socket.message(f"/sieve/{number}", data=list(range(2000))))

    async def gets(self) -> None:
        """Calls for a history of 500 KB, in requests of 100."""
        socket = await self.socket()
        for _ in range(30):
            ext = {"publish": {"history": {"maxEntries": 100}}}
            await socket.send(socket.message("/kept", data="x" * 20_000, ext=ext))
        while True:
            asked = {"channel": "/kept", "numEntries": -1}
            await socket.send(*(socket.message("/service/get", data=asked) for _ in range(100)))

    async def handshakes(self) -> None:
        """Handshakes on four connections, without waiting for their answers."""
        flood = self.request(message("/meta/handshake", version="1.0")) * 20

        async def shake() -> None:
            reader, writer = await self.http()
            self.tasks.append(asyncio.create_task(discard(reader)))
            while True:
                writer.write(flood)
                await writer.drain()
                await asyncio.sleep(0)

        await asyncio.gather(*(shake() for _ in range(4)))

    async def churn(self) -> None:
        """Sockets that are opened, shake hands, and go."""

        async def turn() -> None:
            while True:
                socket = await self.socket(reads=False)
                socket.writer.close()

        await asyncio.gather(*(turn() for _ in range(8)))


class Socket:
    """One WebSocket; frames are masked with zeros, which costs nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.client_id = ""

    def message(self, channel: str, **fields: Any) -> Fields:
        return message(channel, self.client_id, **fields)

    async def send(self, *messages: Fields) -> None:
        payload = json.dumps(messages).encode()
        size = len(payload)
        head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xFE, size)
        self.writer.write(head + bytes(4) + payload)
        await self.writer.drain()
        await asyncio.sleep(0)  # drain gives no turn to others while the server keeps up

    async def receive(self) -> Any:
        first = await self.reader.readexactly(2)
        size = first[1]
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        payload = await self.reader.readexactly(size)
        if first[0] & _COMPRESSED:
            payload = zlib.decompressobj(-zlib.MAX_WBITS).decompress(payload + b"\x00\x00\xff\xff")
        return json.loads(payload)

    async def discard(self) -> None:
        await discard(self.reader)


async def discard(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 18):
        pass


KINDS: tuple[str, ...] = ("batches", "subscriptions", "never_reading", "filters", "gets", "handshakes", "churn")


async def main(port: int, kind: str, seconds: float, address: str) -> None:
    abuser = Abuser(port, address)
    abuse: Callable[[], Awaitable[None]] = getattr(abuser, kind)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    print("begins", flush=True)
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            while True:
                try:
                    await abuse()
                except (OSError, asyncio.IncompleteReadError, KeyError, ValueError):
                    await asyncio.sleep(0.05)  # it was thrown out, and comes again
    for task in abuser.tasks:
        task.cancel()


if __name__ == "__main__":
    _, given_port, given_kind, given_seconds, given_address = sys.argv
    os.nice(5)  # what is measured beside it must not wait for it
    asyncio.run(main(int(given_port), given_kind, float(given_seconds), given_address))
