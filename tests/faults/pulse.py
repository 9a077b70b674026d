"""Asks a server for its health a hundred times a second, in a process of its own, so that nothing but the server makes it wait:
`python -m tests.faults.pulse PORT`. It ends with its standard input, and prints the seconds that each answer took as JSON.

A server may close a connection that was idle while this process had to wait for a processor: then the question is asked once
more, on another one."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from time import perf_counter

REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One question and its answer."""
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))


async def watch(port: int) -> list[float]:
    """How long each answer took, in seconds, until the standard input ends."""
    seconds: list[float] = []
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while not over.done():
        begun = perf_counter()
        try:
            await ask(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await ask(reader, writer)
        seconds.append(perf_counter() - begun)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(over), 0.01)
    writer.close()
    await writer.wait_closed()
    return seconds


if __name__ == "__main__":
    print(json.dumps(asyncio.run(watch(int(sys.argv[1])))))
