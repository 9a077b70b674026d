"""A proxy that sends each request twice: a named session is had, and taken over, by the client behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.client import Client
from tests.client.support import LIMIT_S
from tests.conftest import StartServer
from tests.duplicating_proxy import DuplicatingProxy

pytestmark = pytest.mark.parametrize("settling", [{"ack": True}, {"update": True}], ids=str)


async def hears(client: Client, url: str, *numbers: int) -> None:
    """The client takes what another one publishes."""
    async with asyncio.timeout(LIMIT_S), client, Client(url) as publisher:
        subscription = await client.subscribe("/a")
        for number in numbers:
            await publisher.publish("/a", number, persistent=True)
            while (await subscription.receive()).data != number:
                pass  # what was heard right before the client left may come again


@pytest.mark.parametrize("answers", ["first", "second"])
async def test_a_named_session_is_taken_over_behind_it(
    start_server: StartServer, settling: dict[str, Any], answers: str
) -> None:
    server = start_server("bayeux.timeout_ms=500")
    polling: dict[str, Any] = {"transports": ["long-polling"], "name": "joe/1", "leave": True, **settling}
    joe = Client(server.url, **polling)
    await hears(joe, server.url, 1)
    async with DuplicatingProxy(server.port, passes_on=answers) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        for number in (2, 3):
            joe = Client(url, resume=joe.resume, **polling)
            await hears(joe, server.url, number)


@pytest.mark.parametrize("answers", ["first", "second"])
async def test_a_name_is_had_behind_it(start_server: StartServer, settling: dict[str, Any], answers: str) -> None:
    server = start_server("bayeux.timeout_ms=500")
    polling: dict[str, Any] = {"transports": ["long-polling"], "name": "joe/1", "leave": True, **settling}
    async with DuplicatingProxy(server.port, passes_on=answers) as proxy:
        await hears(Client(f"http://127.0.0.1:{proxy.port}/cometd", **polling), server.url, 1, 2)
