"""Mutated requests through nginx and HAProxy, to both lanes: each connection gets answers to its own messages alone, in the
order in which it sent them, and both lanes answer alike.

A proxy sends the requests of many clients on one connection. Where it takes for one request what the server takes for two, a
client gets the answer to what another one has sent.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.deploying.test_proxies import World, haproxy, nginx, running
from tests.faults.mutated_requests import STATUS, requests

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

COUNT = 150
"""Connections to each lane."""
AT_ONCE = 16
ANSWER_S = 4.0


def ended(number: int) -> bytes:
    """A request that ends the connection: over TLS, a client cannot close its direction alone."""
    body = b'[{"channel":"/a","clientId":"none","id":"m%dend"}]' % number
    head = b"POST /cometd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


async def answered(world: World, trust: ssl.SSLContext, sent: bytes) -> list[str]:
    """What comes of these bytes until the connection ends, or for so long."""
    reader, writer = await asyncio.open_connection("localhost", world.port, ssl=trust)
    received, end = b"", "ended"
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(sent)
            while data := await reader.read(2**16):
                received += data
    except TimeoutError:
        end = "not ended"
    except OSError:
        end = "reset"
    finally:
        writer.transport.abort()
    return [*((status or number).decode() for status, number in STATUS.findall(received)), end]


@pytest.mark.parametrize("proxy", [nginx, haproxy], ids=lambda proxy: proxy.__name__)
async def test_each_connection_gets_its_own_answers(
    proxy: Callable[[World], list[str]], tmp_path: Path, start_server: StartServer
) -> None:
    foreign: list[tuple[bytes, list[str]]] = []
    different: dict[int, list[list[str]]] = {}
    with ExitStack() as stack:
        worlds = []
        for lane in ("true", "false"):
            directory = tmp_path / lane
            directory.mkdir()
            sets = (f"http.fast_lane={lane}", "storage.enabled=false")
            worlds.append(await asyncio.to_thread(World, directory, start_server, *sets))
            stack.enter_context(running(proxy, worlds[-1]))
        trusts = [world.trust for world in worlds]

        async def compare(number: int) -> None:
            sent = b"".join((*requests(random.Random(number), f"m{number}x"), ended(number)))
            own = [f"m{number}x0", f"m{number}x1", f"m{number}x2", f"m{number}end"]
            both = [await answered(world, trust, sent) for world, trust in zip(worlds, trusts, strict=True)]
            for each in both:
                ids = [word for word in each[:-1] if not word.isdigit()]
                if ids != [word for word in own if word in ids]:
                    foreign.append((sent, each))
            different.pop(number, None)
            if both[0] != both[1]:
                different[number] = both

        left = iter(range(COUNT))

        async def compare_all() -> None:
            for number in left:
                await compare(number)

        await asyncio.gather(*(compare_all() for _ in range(AT_ONCE)))
        for number in list(different):  # alone, so that no time decides
            await compare(number)
    assert not foreign, (len(foreign), foreign[:5])
    assert not different, (len(different), list(different.items())[:5])
    for world in worlds:
        assert "Traceback" not in world.server.stderr, world.server.stderr[-5000:]
