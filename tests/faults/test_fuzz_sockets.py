"""A flood of mutated upgrades and WebSocket frames: each connection ends when its client does, the server writes no
traceback and does not grow.

`test_fuzz` sends whole frames with mutated messages; here the upgrade and the frames themselves are broken.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections import Counter
from contextlib import suppress

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.functional.wire import descriptors, resident, until

pytestmark = pytest.mark.timeout(1800 if IS_FULL else 120)

COUNT = volume(100_000, 600)
"""Upgrades and frames, a lane."""
AT_ONCE = 12
ANSWER_S = 8.0  # less than aiohttp waits for the rest of a body
GROWTH = 40 * 2**20
_OPCODES = (0, 1, 2, 3, 7, 8, 9, 10, 11, 15)
_CODES = (0, 999, 1000, 1001, 1004, 1005, 1006, 1007, 1012, 2999, 3000, 4999, 5000, 65535)
_HEADERS = (
    "Host: localhost",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
_OTHERS = (
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9",
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99, x;;",
    "Sec-WebSocket-Protocol: a, b",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Key: short",
    "Sec-WebSocket-Version: 8",
    "Origin: http://evil.example",
    "Cookie: BAYEUX_BROWSER=b1; a=b",
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "Host: evil.example",
    "X: \u00e9",
)
_TEXTS = (
    b'[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"],"id":"1"}]',
    b'[{"channel":"/meta/connect","connectionType":"websocket","clientId":"none","id":"2"}]',
    b"[]",
    b"",
    b"\xff\xfe",
    b"x" * 70_000,
)


def upgrade(rng: random.Random) -> bytes:
    """An upgrade, often as it should be."""
    lines = ["GET /cometd HTTP/1.1", *_HEADERS]
    if rng.random() < 0.4:
        lines.append(rng.choice(_OTHERS))
    if rng.random() < 0.15:
        del lines[rng.randrange(1, len(lines))]
    head = "\r\n".join([*lines, "", ""]).encode()
    return damaged(rng, head) if rng.random() < 0.1 else head


def frame(rng: random.Random) -> bytes:
    """A frame that may be wrong in any of its parts."""
    opcode = rng.choice(_OPCODES) if rng.random() < 0.4 else rng.choice((1, 1, 1, 0, 9))
    payload = rng.choice(_TEXTS) if opcode < 8 else rng.randbytes(rng.choice((0, 1, 2, 60, 125, 126)))
    if opcode == 8 and rng.random() < 0.7:
        payload = struct.pack("!H", rng.choice(_CODES)) + rng.choice((b"", b"bye", b"\xff"))
    first = opcode | (0x80 if rng.random() < 0.8 else 0) | (rng.choice((0x40, 0x20, 0x10)) if rng.random() < 0.1 else 0)
    size = len(payload) if rng.random() < 0.95 else rng.choice((0, 5, 2**16, 2**31, 2**63 - 1))
    masked = 0x80 if rng.random() < 0.97 else 0
    if size < 126 and rng.random() < 0.95:
        head = struct.pack("!BB", first, masked | size)
    elif size < 2**16 and rng.random() < 0.95:
        head = struct.pack("!BBH", first, masked | 126, size)
    else:
        head = struct.pack("!BBQ", first, masked | 127, size)
    whole = head + (bytes(4) if masked else b"") + payload
    return damaged(rng, whole) if rng.random() < 0.03 else whole


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes with one changed, or cut off."""
    place = rng.randrange(len(data))
    if rng.random() < 0.5:
        return data[:place]
    return data[:place] + rng.randbytes(1) + data[place + 1 :]


class Fuzz:
    """The connections of one run, and what became of them."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self.left = count
        self.outcomes: Counter[str] = Counter()
        self.stuck: list[bytes] = []
        """What was sent on connections that did not end."""

    async def run(self, seed: int) -> None:
        await asyncio.gather(*(self._connections(random.Random(seed * 100 + number)) for number in range(AT_ONCE)))

    async def _connections(self, rng: random.Random) -> None:
        while self.left > 0:
            sent: list[bytes] = []
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
            try:
                async with asyncio.timeout(ANSWER_S):
                    self.outcomes[await self._one(rng, reader, writer, sent)] += 1
            except TimeoutError:
                self.stuck.append(b"".join(sent)[:1200])
            except OSError:
                self.outcomes["reset"] += 1
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _one(
        self, rng: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: list[bytes]
    ) -> str:
        """What becomes of a connection."""
        self.left -= 1
        head = upgrade(rng)
        sent.append(head)
        writer.write(head)
        is_whole = head.endswith(b"\r\n\r\n") and b"Content-Length" not in head and b"chunked" not in head
        if not is_whole:
            writer.write_eof()  # the rest of it will never come
        first = await reader.readline()
        if b" 101 " not in first or not is_whole:
            if is_whole:
                writer.write_eof()
            await reader.read()
            return "refused"
        for _ in range(rng.randrange(1, 12)):
            self.left -= 1
            sent.append(frame(rng))
            writer.write(sent[-1])
        if rng.random() < 0.3:
            return "left alone"
        writer.write_eof()
        await reader.read()
        return "ended"


@pytest.mark.parametrize("count", [COUNT])
@pytest.mark.parametrize("lane", ["http.fast_lane=true", "http.fast_lane=false"], ids=["fast", "aiohttp"])
async def test_no_upgrade_and_no_frame_fells_the_server(
    lane: str, count: int, start_server: StartServer, tell: Tell
) -> None:
    sets = (lane, "storage.enabled=false", "bayeux.max_message_bytes=65536", "http.header_timeout_ms=2000")
    server = await asyncio.to_thread(start_server, *sets)
    assert server.port is not None
    await Fuzz(server.port, 100).run(1)  # what the first ones need stays
    await asyncio.to_thread(until, lambda: descriptors(server) <= 64)
    opened, before = descriptors(server), resident(server)
    fuzz = Fuzz(server.port, count)
    await fuzz.run(2)
    await asyncio.to_thread(until, lambda: descriptors(server) <= opened + 2)
    grown = resident(server) - before
    tell(
        f"{count} upgrades and frames: {dict(fuzz.outcomes)}; {grown / 2**20:.1f} MiB more; load {os.getloadavg()[0]:.1f}"
    )
    assert not fuzz.stuck, fuzz.stuck[:3]
    assert "Traceback" not in server.stderr, server.stderr[server.stderr.index("Traceback") - 500 :][:5000]
    assert min(fuzz.outcomes["refused"], fuzz.outcomes["ended"]) > count / 100
    assert grown < GROWTH
