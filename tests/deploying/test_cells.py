"""Two cells behind the balancer of the profile `cells`: a client reaches the cell of its tenant, and nothing crosses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from crewel.client import Client
from tests.conftest import StartServer
from tests.deploying.test_cluster import is_listening
from tests.functional.wire import until
from tests.house.source import ROOT
from tests.ports import free_port
from tests.server_process import Server

pytestmark = pytest.mark.server

COMPOSE: Final = ROOT / "deploy" / "compose"
CELLS: Final = ("eu", "us")
TENANTS: Final = {"acme.chat.example.org": "eu", "globex.chat.example.org": "us"}
MESSAGES: Final = 50
LIMIT_S: Final = 60


@dataclass(eq=False)
class World:
    """The cells, and the port of their balancer."""

    port: int
    servers: dict[str, Server]

    def url(self, cell: str) -> str:
        """Where a client of a tenant of this cell connects."""
        return f"http://127.0.0.1:{self.port}/{cell}/cometd"

    async def ask(self, path: str, host: str) -> int:
        """The status of a GET with this host name. The path is sent as it is."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        writer.close()
        return status


@pytest.fixture
async def world(start_server: StartServer, tmp_path: Path) -> AsyncIterator[World]:
    servers: dict[str, Server] = {}
    for cell in CELLS:
        servers[cell] = await asyncio.to_thread(
            start_server,
            *(f"node.name={cell}", f"bayeux.path=/{cell}/cometd", f"bayeux.cookie_path=/{cell}"),
            "http.trusted_proxies=127.0.0.1",
        )
    port = free_port()
    text = (COMPOSE / "cells.cfg").read_text("utf-8")
    for old, new in (
        ("maxconn 20000", "maxconn 500"),
        ("bind :8080", f"bind 127.0.0.1:{port}"),
        ("/usr/local/etc/haproxy/cells.map", str(COMPOSE / "cells.map")),
        *((f"cell-{cell}:8080", f"127.0.0.1:{servers[cell].port}") for cell in CELLS),
    ):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "haproxy.cfg"
    file.write_text(text)
    balancer = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", file)
    try:
        await asyncio.to_thread(until, lambda: is_listening(port), LIMIT_S)
        yield World(port, servers)
    finally:
        balancer.terminate()
        await balancer.wait()


async def data_until(subscription: Any, last: str) -> set[Any]:
    """The data of the next messages, up to this one."""
    heard = set()
    async with asyncio.timeout(LIMIT_S):
        while last not in heard:
            heard.add((await anext(aiter(subscription))).data)
    return heard


def labels(cell: str) -> list[str]:
    """What is published in this cell."""
    return [f"{cell} {number}" for number in range(MESSAGES)]


def mark(cell: str) -> str:
    """What is published in this cell at the end."""
    return f"{cell} end"


@pytest.mark.parametrize("transport", ["long-polling", "websocket"])
async def test_no_message_crosses(world: World, transport: str) -> None:
    """The same channels, groups and subjects in both cells; at the end a mark in each, behind which nothing is left."""
    workers: dict[str, Client] = {}
    receiving: list[tuple[str, Any]] = []
    async with AsyncExitStack() as stack:
        for cell in CELLS:
            amy, worker = [
                await stack.enter_async_context(
                    Client(world.url(cell), name=name, transports=[transport], open_timeout=LIMIT_S)
                )
                for name in ("client/amy/1", "client/worker/1")
            ]
            receiving.append((cell, await amy.subscribe("/**")))
            receiving.append((cell, await worker.subscribe("/work", group="workers")))
            workers[cell] = worker
        async with asyncio.TaskGroup() as publishing:
            for cell, worker in workers.items():
                publishing.create_task(publish(worker, *labels(cell)))
        for cell, worker in workers.items():
            await publish(worker, mark(cell))
        for cell, subscription in receiving:
            assert await data_until(subscription, mark(cell)) == {*labels(cell), mark(cell)}


async def publish(client: Client, *texts: str) -> None:
    """Publish to a channel, to a subject and to a group."""
    for text in texts:
        await client.publish("/news", text, persistent=True)
        await client.publish("/mail", text, to="client/amy")
        await client.publish("/work", text, persistent=True)


async def test_a_browser_keeps_a_session_in_each_cell(world: World) -> None:
    """Both cells set their cookie at one host name: neither may replace the other's."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        connects = {}
        for cell in CELLS:
            handshake = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
            (shaken,) = await sent(browser, world.url(cell), handshake)
            connects[cell] = {
                "channel": "/meta/connect",
                "clientId": shaken["clientId"],
                "connectionType": "long-polling",
                "advice": {"timeout": 0},
            }
        for cell in CELLS:
            (connected,) = await sent(browser, world.url(cell), connects[cell])
            assert connected["successful"], (cell, connected)
        (refused,) = await sent(browser, world.url("eu"), connects["us"])
        assert refused["error"].startswith("402:"), "a session of another cell"


async def sent(browser: aiohttp.ClientSession, url: str, message: dict[str, Any]) -> list[dict[str, Any]]:
    async with browser.post(url, data=json.dumps([message]), headers={"Content-Type": "application/json"}) as response:
        assert response.status == 200, await response.text()
        replies: list[dict[str, Any]] = await response.json()
        return replies


async def test_the_balancer_sends_nothing_that_it_does_not_know(world: World) -> None:
    for host, cell in TENANTS.items():
        (other,) = set(CELLS) - {cell}
        assert await world.ask(f"/{cell}/cometd", host) != 404
        assert await world.ask(f"/{cell}/cometd", f"{host.upper()}:8091") != 404
        assert await world.ask(f"/{other}/cometd", host) == 404, "the host name decides: its cell has no such path"
    for path in ("/", "/cometd", "/asia/cometd", "/%65u/cometd", "//eu/cometd", "/./eu/cometd", "/metrics"):
        assert await world.ask(path, "chat.example.org") == 404, path
    for path in ("/metrics", "/%6detrics", "/admin/api/nodes", "/%61dmin/api/nodes", "/health/ready", "/api/publish"):
        assert await world.ask(path, "acme.chat.example.org") == 403, path


async def test_a_cell_that_dies_takes_no_other_with_it(world: World) -> None:
    world.servers["eu"].kill()
    async with Client(world.url("us"), open_timeout=LIMIT_S) as client:
        subscription = await client.subscribe("/news")
        await client.publish("/news", "still here", persistent=True)
        assert await data_until(subscription, "still here") == {"still here"}
    assert await world.ask("/eu/cometd", "chat.example.org") in (502, 503)
