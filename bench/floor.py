"""The floor: the least that an asyncio server can do for the same bytes on the wire.

A bare protocol over httptools and uvloop that speaks just enough Bayeux for the meter:
handshake, subscribe, connect with and without acknowledgement, publish. It validates
nothing, checks no cookie, expires nothing and has no extensions, so what a real server
costs above it is the price of its features. Long-polling only.

    python bench/floor.py        prints `ready http://127.0.0.1:PORT/cometd`
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, cast

import httptools
import orjson
import uvloop

HOLD_S = 30.0
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-cache, no-store\r\n"
    b"%bDate: %b\r\nContent-Length: %d\r\n\r\n"
)
COOKIE = b"Set-Cookie: BAYEUX_BROWSER=%b; Path=/; HttpOnly\r\n"
ADVICE = b'"advice":{"reconnect":"retry","interval":0,"timeout":30000}'


class Clock:
    """The date that a response carries, made again once a second."""

    now = b""

    @classmethod
    def tick(cls) -> None:
        """Take the time."""
        cls.now = formatdate(usegmt=True).encode()


def response(body: bytes, cookie: bytes = b"") -> bytes:
    """The bytes of a reply."""
    return HEAD % (cookie, Clock.now, len(body)) + body


class Session:
    """One client: the messages that wait for it, what it has not acknowledged, and its held connect."""

    __slots__ = ("acknowledges", "batch", "connect_id", "deadline", "held", "queue", "retained")

    def __init__(self, acknowledges: bool) -> None:
        self.acknowledges = acknowledges
        self.batch = 0
        self.queue: list[bytes] = []
        self.retained: list[tuple[int, list[bytes]]] = []
        self.held: asyncio.Transport | None = None
        self.connect_id = b""
        self.deadline = 0.0

    def acknowledge(self, batch: int) -> None:
        """Forget every batch up to this one; what is left is sent again."""
        while self.retained and self.retained[0][0] <= batch:
            self.retained.pop(0)
        if self.retained:
            self.queue = [text for _, texts in self.retained for text in texts] + self.queue
            self.retained.clear()

    def answer(self, transport: asyncio.Transport, message_id: bytes, extra: bytes = b"") -> None:
        """Write the reply to a connect, behind whatever waits for the session."""
        if self.acknowledges:
            self.batch += 1
            extra += b',"ext":{"ack":%d}' % self.batch
            if self.queue:
                self.retained.append((self.batch, self.queue))
        self.queue.append(b'{"channel":"/meta/connect","id":"%b","successful":true%b}' % (message_id, extra))
        body = b"[" + b",".join(self.queue) + b"]"
        if self.acknowledges:
            self.queue.pop()
        self.queue = []
        transport.write(response(body))


class Floor:
    """Sessions, rooms, and the sessions that get something in this turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.sessions: dict[str, Session] = {}
        self.rooms: dict[str, list[Session]] = {}
        self.ready: list[Session] = []
        self.verbs: dict[str, Callable[[Connection, dict[str, Any]], None]] = {
            "/meta/handshake": self.handshake,
            "/meta/subscribe": self.subscribe,
            "/meta/connect": self.connect,
        }
        self.sweep()

    def forget(self, session: Session) -> None:
        """Take a session whose connection is gone out of every room."""
        session.held = None
        for members in self.rooms.values():
            if session in members:
                members.remove(session)

    def handshake(self, connection: Connection, message: dict[str, Any]) -> None:
        """Open a session and give it a browser cookie."""
        session_id = secrets.token_hex(16)
        acknowledges = "ext" in message
        self.sessions[session_id] = Session(acknowledges)
        body = (
            b'[{"channel":"/meta/handshake","id":"%b","successful":true,"version":"1.0","minimumVersion":"1.0",'
            b'"clientId":"%b","supportedConnectionTypes":["long-polling"],%b%b}]'
        ) % (
            message["id"].encode(),
            session_id.encode(),
            ADVICE,
            b',"ext":{"ack":true}' if acknowledges else b"",
        )
        connection.transport.write(response(body, COOKIE % secrets.token_hex(13).encode()))

    def subscribe(self, connection: Connection, message: dict[str, Any]) -> None:
        """Enter the session into each room."""
        session = self.sessions[message["clientId"]]
        for room in message["subscription"]:
            self.rooms.setdefault(room, []).append(session)
        body = b'[{"channel":"/meta/subscribe","id":"%b","subscription":%b,"successful":true}]' % (
            message["id"].encode(),
            orjson.dumps(message["subscription"]),
        )
        connection.transport.write(response(body))

    def connect(self, connection: Connection, message: dict[str, Any]) -> None:
        """Answer at once when something waits or the client wants it so; else hold."""
        session = connection.session = self.sessions[message["clientId"]]
        if session.acknowledges and "ext" in message:
            session.acknowledge(message["ext"]["ack"])
        message_id = message["id"].encode()
        if "advice" in message:
            session.answer(connection.transport, message_id, b"," + ADVICE)
        elif session.queue:
            session.answer(connection.transport, message_id)
        else:
            session.held = connection.transport
            session.connect_id = message_id
            session.deadline = self.loop.time() + HOLD_S

    def publish(self, connection: Connection, message: dict[str, Any]) -> None:
        """Queue one encoding with every member of the room, and reply."""
        channel = message["channel"]
        text = orjson.dumps({"channel": channel, "data": message["data"]})
        ready = self.ready
        if not ready:
            self.loop.call_soon(self.flush)
        for session in self.rooms.get(channel, ()):
            if session.held and not session.queue:
                ready.append(session)
            session.queue.append(text)
        body = b'[{"channel":"%b","id":"%b","successful":true}]' % (channel.encode(), message["id"].encode())
        connection.transport.write(response(body))

    def flush(self) -> None:
        """Once a loop turn: answer every held connect that has something to carry."""
        ready, self.ready = self.ready, []
        for session in ready:
            if held := session.held:
                session.held = None
                session.answer(held, session.connect_id)

    def sweep(self) -> None:
        """Once a second: answer the connects that have been held long enough."""
        Clock.tick()
        now = self.loop.time()
        for session in self.sessions.values():
            if session.held and session.deadline <= now:
                held, session.held = session.held, None
                session.answer(held, session.connect_id)
        self.loop.call_later(1.0, self.sweep)


class Connection(asyncio.Protocol):
    """One TCP connection: bodies go to the floor as they are complete."""

    __slots__ = ("body", "floor", "parser", "session", "transport")

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.body = b""
        self.session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; requests are parsed as they arrive."""
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the session that polled here."""
        if self.session:
            self.floor.forget(self.session)

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        self.parser.feed_data(data)

    def on_body(self, part: bytes) -> None:
        """Called by the parser with each part of a body."""
        self.body += part

    def on_message_complete(self) -> None:
        """Called by the parser at the end of a request."""
        body, self.body = self.body, b""
        floor = self.floor
        for message in orjson.loads(body):
            floor.verbs.get(message["channel"], floor.publish)(self, message)


async def main() -> None:
    """Serve until a signal ends it."""
    loop = asyncio.get_running_loop()
    floor = Floor(loop)
    server = await loop.create_server(lambda: Connection(floor), "127.0.0.1", 0, backlog=1024)
    ended = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, ended.set)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}/cometd", flush=True)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main())
