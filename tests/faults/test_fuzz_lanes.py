"""Mutated requests, one or several on a connection: both lanes take them for as many, and answer each alike.

Where one takes for one request what the other takes for two, a proxy in front may be led to pass on what it refuses. They
differ in two things. aiohttp reads all that has come before it answers anything, so where a part of that is wrong, it refuses
the whole of it. And where the client ends its side in the middle of a request, it closes without an answer if it reads the end
by itself, which is a matter of speed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.faults.mutated_requests import STATUS, requests

pytestmark = pytest.mark.timeout(1800 if IS_FULL else 120)

COUNT = volume(20_000, 600)
"""Connections to each lane."""
AT_ONCE = 16
ANSWER_S = 8.0


async def answered(port: int, sent: bytes) -> list[str]:
    """What comes of these bytes until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    received = b""
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(sent)
            writer.write_eof()
            while data := await reader.read(2**16):
                received += data
    except TimeoutError:
        return ["not ended"]
    except OSError:
        received += b"HTTP/1.1 reset "
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return [(status or number).decode() for status, number in STATUS.findall(received)]


async def test_both_lanes_take_what_is_sent_for_the_same_requests(start_server: StartServer, tell: Tell) -> None:
    sets = ("storage.enabled=false", "http.header_timeout_ms=2000", "http.body_timeout_ms=2000")
    servers = [await asyncio.to_thread(start_server, f"http.fast_lane={lane}", *sets) for lane in ("true", "false")]
    ports = [server.port for server in servers]
    left = iter(range(COUNT))
    outcomes: Counter[str] = Counter()
    different: list[tuple[bytes, list[str], list[str]]] = []

    async def compare() -> None:
        for number in left:
            several = requests(random.Random(number), f"m{number}x")
            sent = b"".join(several)
            fast, slow = [await answered(port or 0, sent) for port in ports]
            outcomes[" ".join(each for each in fast if each.isdigit()) or "none"] += 1
            has_answered_all = fast[-1:] != ["400"] and sum(map(str.isdigit, fast)) == len(several)
            is_cut = fast == [*slow, "400"]
            if fast != slow and not is_cut and (has_answered_all or slow != ["400"]):
                different.append((sent, fast, slow))

    await asyncio.gather(*(compare() for _ in range(AT_ONCE)))
    tell(f"{COUNT} connections to each lane: {dict(outcomes.most_common(8))}; load {os.getloadavg()[0]:.1f}")
    for server in servers:
        assert "Traceback" not in server.stderr, server.stderr[server.stderr.index("Traceback") - 500 :][:5000]
    assert not different, (len(different), different[:5])
