"""The proxy of other tests leaves nothing open, whatever its clients do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.cutting_proxy import CuttingProxy

pytestmark = pytest.mark.server
MORE_THAN_FITS = b"x" * 20_000_000


@pytest.fixture
def clients() -> Iterator[list[socket.socket]]:
    """Connections that nothing is read from, and that are closed after the loop has ended."""
    opened: list[socket.socket] = []
    yield opened
    for each in opened:
        each.close()


def connected(proxy: CuttingProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port))


async def test_a_client_that_does_not_read_leaves_no_connection_open(clients: list[socket.socket]) -> None:
    sent = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(MORE_THAN_FITS)
        sent.set()

    server = await asyncio.start_server(send, "127.0.0.1", 0)
    async with CuttingProxy(server.sockets[0].getsockname()[1]) as proxy:
        clients.append(connected(proxy))
        async with asyncio.timeout(5):
            await sent.wait()
            while not any(each.get_write_buffer_size() for each in proxy._transports):
                await asyncio.sleep(0)
        clients.append(connected(proxy))  # it comes while the proxy ends
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)  # with the next turn they are gone
    assert all(each.is_closing() and not each.get_write_buffer_size() for each in proxy._transports)
