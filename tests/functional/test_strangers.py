"""What reaches the port of the nodes and is no node has three seconds, one of few links, and a line of the log at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

from tests.conftest import StartServer
from tests.functional.cluster import LONG, NODE
from tests.functional.people import Person
from tests.functional.wire import Connection, until
from tests.patience import patience
from tests.ports import free_port
from tests.server_process import Server

INTRODUCTION_S = 3.0
CAP = 64
HELLO = b"\0\0\x0f\x00\x01\0\0\0\0" + b" " * 4000
"""The beginning of a first frame."""


class Strangers:
    """So many links at a time that send a byte of their introduction now and then, and come again when they are closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.are_on = True
        self.durations: list[float] = []
        """How long each link lasted, in seconds."""

    async def dribble(self) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                began = monotonic()
                sending = asyncio.create_task(self._send(writer))
                with suppress(OSError):
                    while await reader.read(4096):
                        pass
                self.durations.append(monotonic() - began)
                sending.cancel()
                writer.close()
            if not self.are_on:
                return
            await asyncio.sleep(0.1)

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            for byte in HELLO:
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0.2)


@asynccontextmanager
async def dribbling(port: int, count: int) -> AsyncIterator[Strangers]:
    strangers = Strangers(port)
    async with asyncio.timeout(60 * patience()), asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(strangers.dribble())
        yield strangers
        strangers.are_on = False


def refusals(server: Server) -> int:
    """How many lines of the log are about refused links."""
    return server.stderr.count("another node was refused") + server.stderr.count("other nodes were refused")


async def test_links_without_a_proof_have_a_deadline_and_one_line_of_the_log(start_server: StartServer) -> None:
    port = free_port()
    server = await asyncio.to_thread(start_server, NODE, LONG, f"cluster.listen=127.0.0.1:{port}")
    async with dribbling(port, CAP // 2) as strangers:
        pass
    assert len(strangers.durations) == CAP // 2
    assert min(strangers.durations) > INTRODUCTION_S - 0.1
    assert max(strangers.durations) < (INTRODUCTION_S + 2) * patience()
    await asyncio.to_thread(until, lambda: refusals(server))
    assert refusals(server) == 1, server.stderr
    assert "has not proved itself within 3 s (from 127.0.0.1)" in server.stderr
    assert await asyncio.to_thread(lambda: Connection(server).get("/health/ready").status) == 200


async def test_nodes_reach_each_other_beside_more_strangers_than_there_may_be(start_server: StartServer) -> None:
    port = free_port()
    first = await asyncio.to_thread(start_server, NODE, LONG, f"cluster.listen=127.0.0.1:{port}")
    async with dribbling(port, 3 * CAP) as strangers:
        person = await asyncio.to_thread(Person(first).be)
        second = await asyncio.to_thread(start_server, *first.store_sets, NODE, LONG)
        person.server = second
        person.forget_connections()
        await asyncio.to_thread(person.subscribe, "/a")  # only the first node has the session
    assert sorted(strangers.durations)[len(strangers.durations) // 2] < INTRODUCTION_S / 2, "the cap closes the oldest"
    await asyncio.to_thread(until, lambda: refusals(first))
    assert refusals(first) == 1, first.stderr


async def test_1600_links_that_are_refused_write_one_line(start_server: StartServer) -> None:
    port = free_port()
    server = await asyncio.to_thread(start_server, NODE, LONG, f"cluster.listen=127.0.0.1:{port}")

    async def knock() -> None:
        for _ in range(100):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                with suppress(OSError):
                    await reader.read()
                writer.close()

    async with asyncio.timeout(30 * patience()), asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(knock())
    await asyncio.to_thread(until, lambda: "a link with another node was refused" in server.stderr)
    assert refusals(server) == 1, server.stderr
