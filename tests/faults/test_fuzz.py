"""A flood of mutated messages, random JSON and broken HTTP, over HTTP and WebSockets, beside receivers that go on to get
what is published: each request has its answer, and the server is well at the end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import suppress
from time import perf_counter
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.faults.fuzz_frames import CHANNELS, Frames
from tests.faults.load import wait_for
from tests.functional.wire import descriptors, resident, until
from tests.patience import patience, slowness
from tests.server_process import ROOT, Server

COUNT = volume(250_000, 2500)
"""Frames a lane."""
ANSWER_S = 20.0
HEALTH_S = 0.05 if IS_FULL else 5.0  # the short run shares its processors with all other tests
MEMORY = 300 * 2**20
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Wire:
    """One connection, opened again whenever it has ended."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)

    async def close(self) -> None:
        writer, self.reader, self.writer = self.writer, None, None
        if writer is not None:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """The next response; EOFError if the connection ends instead."""
        assert self.reader is not None
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        if status == 100:
            return await self.response()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = (
            await self.reader.readexactly(int(headers.get("content-length", 0)))
            if status not in (101, 204, 304)
            else b""
        )
        return status, headers, body


class Fuzz:
    """The clients of one run, and what became of their frames."""

    def __init__(self, server: Server, seed: int, count: int) -> None:
        assert server.port is not None
        self.port = server.port
        self.left = count
        self.seed = seed
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.health: list[float] = []

    def take(self) -> bool:
        """Whether one more frame is to be sent."""
        self.left -= 1
        return self.left >= 0

    async def run(self) -> None:
        pulse = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.pulse", str(self.port), cwd=ROOT, stdin=PIPE, stdout=PIPE
        )
        jobs = [self._post, self._post, self._post, self._break, self._talk, self._talk]
        await asyncio.gather(*(job(random.Random(self.seed * 100 + number)) for number, job in enumerate(jobs * 3)))
        self.health = json.loads((await pulse.communicate(b""))[0])

    async def _answered(self, what: str, frame: bytes, waiting: Any) -> Any:
        """What comes of waiting for an answer: it, or None if the connection ended."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await waiting
        except (EOFError, ConnectionError):
            self.outcomes[f"{what}: closed"] += 1
        except TimeoutError:
            self.faults.append(f"no answer to {what} {frame[:2000]!r}")
        return None

    async def _post(self, rng: random.Random) -> None:
        """Requests over HTTP, one after another."""
        wire, frames, cookie = Wire(self.port), Frames(rng), ""
        while self.take():
            body = _HANDSHAKE if frames.client_id == "none" else frames.body()
            frame = frames.request(body, cookie)
            await wire.open()
            assert wire.writer is not None
            wire.writer.write(frame)
            answer = await self._answered("a request", frame, wire.response())
            if answer is None:
                await wire.close()
                continue
            status, headers, content = answer
            self.outcomes[f"HTTP {status}"] += 1
            if status >= 500 and b"replaced by a newer connect" not in content:
                self.faults.append(f"{status} {content[:200]!r} to {frame[:2000]!r}")
            if "set-cookie" in headers:
                cookie = headers["set-cookie"].partition("=")[2].partition(";")[0]
            if headers.get("connection", "").lower() == "close":
                await wire.close()
            frames.client_id = self._session(frames, content if status == 200 else b"[]")
        await wire.close()

    def _session(self, frames: Frames, content: bytes) -> str:
        """The session after these replies: a handshake made one, or it has ended."""
        session = frames.client_id
        for reply in json.loads(content):
            if reply.get("channel") == "/meta/handshake" and reply.get("successful"):
                session = reply["clientId"]
            elif reply.get("error", "").startswith("402") and frames.rng.random() < 0.2:
                session = "none"
            if reply.get("error", "").startswith("500"):
                self.faults.append(f"an internal error: {reply}")
        return session

    async def _break(self, rng: random.Random) -> None:
        """Requests that are hardly HTTP, each on a connection of its own; one in ten is never finished."""
        frames = Frames(rng)
        while self.take():
            wire, frame = Wire(self.port), frames.broken_request()
            await wire.open()
            assert wire.writer is not None
            assert wire.reader is not None
            wire.writer.write(frame)
            if rng.random() < 0.9:
                wire.writer.write_eof()
            await self._answered("a broken request", frame, wire.reader.read(2**20))
            self.outcomes["broken HTTP"] += 1
            await wire.close()

    async def _talk(self, rng: random.Random) -> None:
        """Frames over a WebSocket, each followed by a ping: its pong comes after whatever answers the frame."""
        wire, frames = Wire(self.port), Frames(rng)
        while self.take():
            if wire.reader is None:
                await wire.open()
                assert wire.writer is not None
                wire.writer.write(_UPGRADE)
                upgrade = await self._answered("an upgrade", _UPGRADE, wire.response())
                if upgrade is None or upgrade[0] == 408:  # this process was too slow for the server's patience
                    self.outcomes["an upgrade: too slow"] += upgrade is not None
                    await wire.close()
                    continue
                assert upgrade[0] == 101, upgrade
                frames.client_id = "none"
            body = _HANDSHAKE if frames.client_id == "none" else frames.body()
            first = 0x80 | TEXT if rng.random() < 0.98 else rng.randrange(256)
            mark = os.urandom(4)
            assert wire.writer is not None
            wire.writer.write(_masked(first, body) + _masked(0x80 | PING, mark))
            texts = await self._answered("a frame", body, self._until_pong(wire, mark))
            if texts is None:
                await wire.close()
                continue
            self.outcomes["frames"] += 1
            for text in texts:
                frames.client_id = self._session(frames, text)
        await wire.close()

    async def _until_pong(self, wire: Wire, mark: bytes) -> list[bytes]:
        texts = []
        while True:
            opcode, payload = await _frame(wire.reader)
            if opcode == CLOSE:
                raise EOFError
            if opcode == PONG and payload == mark:
                return texts
            if opcode == TEXT:
                texts.append(payload)


class Receiver:
    """A session with `update` that takes what it is sent, one batch after another, over a WebSocket of its own."""

    def __init__(self, port: int, name: str) -> None:
        self._wire = Wire(port)
        self._name = name
        self._number = 0
        self.client_id = ""
        self.last: dict[str, Any] = {}
        """The last data of each channel that is a text."""
        self.count = 0

    async def start(self) -> None:
        await self._wire.open()
        assert self._wire.writer is not None
        self._wire.writer.write(_UPGRADE)
        assert (await self._wire.response())[0] == 101
        session = {
            "name": self._name,
            "update": True,
            "timeout": 600000,
            "dispatcher": {"retries": -1, "delay": 10},
            "queue": {"maxEntries": 5000, "onOverflow": "dropOldest"},
        }
        await self._send(
            channel="/meta/handshake",
            version="1.0",
            supportedConnectionTypes=["websocket"],
            ext={"ack": True, "session": session},
        )
        await self._until("/meta/handshake")
        for pattern in ("/f/**", "/h/**"):
            await self._send(channel="/meta/subscribe", subscription=pattern)
            await self._until("/meta/subscribe")

    async def run(self) -> None:
        """Connect and acknowledge until cancelled."""
        batch = 0
        while True:
            await self._send(
                channel="/meta/connect", connectionType="websocket", ext={"ack": batch}, advice={"timeout": 1000}
            )
            reply = await self._until("/meta/connect")
            assert reply["successful"], reply
            batch = reply.get("ext", {}).get("ack", batch)

    async def _send(self, **fields: Any) -> None:
        self._number += 1
        message = {"id": str(self._number), **fields} | ({"clientId": self.client_id} if self.client_id else {})
        assert self._wire.writer is not None
        self._wire.writer.write(_masked(0x80 | TEXT, json.dumps([message]).encode()))

    async def _until(self, channel: str) -> dict[str, Any]:
        while True:
            opcode, payload = await _frame(self._wire.reader)
            assert opcode == TEXT, (opcode, payload)
            found = None
            for message in json.loads(payload):
                if message["channel"] == channel and "successful" in message:
                    found = message
                    self.client_id = message.get("clientId", self.client_id)
                elif isinstance(message.get("data"), str):
                    self.last[message["channel"]] = message["data"]
                self.count += 1
            if found is not None:
                return found

    async def close(self) -> None:
        await self._wire.close()


_HANDSHAKE = json.dumps(
    [
        {
            "channel": "/meta/handshake",
            "version": "1.0",
            "supportedConnectionTypes": ["long-polling"],
            "ext": {"ack": True},
        }
    ]
).encode()
_UPGRADE = (
    b"GET /cometd HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def _masked(first: int, payload: bytes) -> bytes:
    """A frame as a client sends it; the mask is zero."""
    size = len(payload)
    if size < 126:
        return struct.pack("!BB", first, 0x80 | size) + bytes(4) + payload
    if size < 65536:
        return struct.pack("!BBH", first, 0x80 | 126, size) + bytes(4) + payload
    return struct.pack("!BBQ", first, 0x80 | 127, size) + bytes(4) + payload


async def _frame(reader: asyncio.StreamReader | None) -> tuple[int, bytes]:
    assert reader is not None
    first, size = await reader.readexactly(2)
    if size == 126:
        (size,) = struct.unpack("!H", await reader.readexactly(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", await reader.readexactly(8))
    return first & 0x0F, await reader.readexactly(size)


@pytest.mark.parametrize("count", [COUNT])
@pytest.mark.parametrize("lane", ["http.fast_lane=true", "http.fast_lane=false"], ids=["fast", "aiohttp"])
async def test_no_frame_fells_the_server(lane: str, count: int, start_server: StartServer, tell: Tell) -> None:
    sets = (
        lane,
        "bayeux.timeout_ms=20",
        "bayeux.max_interval_ms=2000",
        "http.header_timeout_ms=500",
        "http.body_timeout_ms=500",
        "delivery.dead_letters_max=1000",
        "topics./h/**.history.max_entries=20",
    )
    server = await asyncio.to_thread(start_server, *sets)
    assert server.port is not None
    receivers = [Receiver(server.port, f"client/reader/{number}") for number in range(1, 5)]
    for receiver in receivers:
        await receiver.start()
    listening = [asyncio.create_task(receiver.run()) for receiver in receivers]
    opened = descriptors(server)
    fuzz = Fuzz(server, 1 if IS_FULL else 7, count)
    begun = perf_counter()
    await fuzz.run()
    seconds = perf_counter() - begun

    health = sorted(fuzz.health)
    worst = health[int(len(health) * 0.99)]
    await asyncio.to_thread(until, lambda: descriptors(server) <= opened + 4)
    memory = resident(server)
    tell(
        f"{count} frames in {seconds:.0f} s: {dict(fuzz.outcomes)}; health p99 {worst * 1000:.1f} ms,"
        f" largest {health[-1] * 1000:.0f} ms; {memory // 2**20} MiB at the end;"
        f" {sum(receiver.count for receiver in receivers)} messages for receivers; load {os.getloadavg()[0]:.1f}"
    )
    assert fuzz.faults == [], fuzz.faults[:5]
    assert "Traceback" not in server.stderr, server.stderr[server.stderr.index("Traceback") - 500 :][:5000]
    await _still_delivers(server.port, receivers)
    for task in listening:
        assert not task.done(), task
        task.cancel()
    for receiver in receivers:
        await receiver.close()
    assert worst < HEALTH_S * patience() or worst < HEALTH_S * await asyncio.to_thread(slowness)
    assert memory < MEMORY


async def _still_delivers(port: int, receivers: list[Receiver]) -> None:
    """Each receiver gets what is published at the end, on every channel."""
    wire, frames = Wire(port), Frames(random.Random(0))
    await wire.open()
    assert wire.writer is not None
    cookie = ""
    for message in (
        {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]},
        *({"channel": channel, "data": "the end"} for channel in CHANNELS),
    ):
        body = json.dumps([{**message, "clientId": frames.client_id, "id": "1"}]).encode()
        head = [
            "POST /cometd HTTP/1.1",
            "Host: localhost",
            f"Cookie: BAYEUX_BROWSER={cookie}",
            f"Content-Length: {len(body)}",
        ]
        wire.writer.write("\r\n".join([*head, "", ""]).encode() + body)
        _, headers, content = await wire.response()
        (reply,) = json.loads(content)
        frames.client_id = reply.get("clientId", frames.client_id)
        cookie = headers.get("set-cookie", f"={cookie}").partition("=")[2].partition(";")[0]
    await wait_for(
        lambda: all(receiver.last.get(channel) == "the end" for receiver in receivers for channel in CHANNELS), 30
    )
    await wire.close()
