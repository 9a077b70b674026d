"""Crewel mounted in an aiohttp application of somebody else's, by aiohttp's own test tools."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient

import crewel.extensions.ack
import crewel.extensions.replay
import crewel.extensions.timesync
import crewel.extensions.update  # noqa: F401 - imported by name when a server is made, which would block the loop of a test
from crewel import server
from crewel.broker.services import Service
from crewel.errors import ServiceError, SettingsError
from crewel.settings import Settings, load
from crewel.settings.access import Admin
from crewel.settings.storage import Storage

TOKEN = "an-admin-token-for-tests"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
PATHS = {
    "api": "/api/publish",
    "admin": "/admin/api/sessions",
    "health": "/health/live",
    "metrics": "/metrics",
    "extensions": "/extensions/update.js",
}


def without_store() -> Settings:
    return Settings(storage=Storage(enabled=False), admin=Admin(token=TOKEN))


async def statuses(client: AiohttpClient, *mount: str) -> dict[str, int]:
    """Return how an application answers that mounts these, by what each is."""
    app = web.Application()
    server.attach(app, without_store(), mount=mount)
    asking = await client(app)
    return {name: (await asking.get(path, headers=OPERATOR)).status for name, path in PATHS.items()}


async def test_bayeux_alone_is_mounted_unless_more_is_named(aiohttp_client: AiohttpClient) -> None:
    assert await statuses(aiohttp_client) == dict.fromkeys(PATHS, 404)


async def test_each_mount_serves_what_its_name_says(aiohttp_client: AiohttpClient) -> None:
    assert await statuses(aiohttp_client, "health", "metrics") == {
        "api": 404, "admin": 404, "health": 200, "metrics": 200, "extensions": 404,
    }  # fmt: skip
    assert await statuses(aiohttp_client, *server.MOUNTS) == {
        "api": 405, "admin": 200, "health": 200, "metrics": 200, "extensions": 200,
    }  # fmt: skip


def routes(app: web.Application) -> set[tuple[str, str]]:
    """Return the method and the path of each route."""
    return {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}


async def test_all_mounts_together_are_what_serve_has_but_for_its_pages() -> None:
    app = web.Application()
    server.attach(app, without_store(), mount=server.MOUNTS)
    settings = without_store()
    settings.http.demos = False
    assert routes(app) == routes(server.build(settings))
    assert {"/cometd", "/api/publish", "/admin/api/sessions", "/health/ready", "/metrics"} <= {
        path for _, path in routes(app)
    }


async def test_a_service_is_installed_in_several_servers_at_once(aiohttp_client: AiohttpClient) -> None:
    service = Service("echoes")
    heard: list[object] = []
    service.subscription("/a")(lambda message: heard.append(message.data))
    brokers = []
    for number in range(2):
        app = web.Application()
        brokers.append(server.attach(app, without_store(), services=[service], mount=["api"]))
        client = await aiohttp_client(app)
        answer = await client.post("/api/publish", json={"channel": "/a", "data": number}, headers=OPERATOR)
        assert (answer.status, heard) == (200, list(range(number + 1)))
    assert service.brokers == brokers
    with pytest.raises(ServiceError, match="is installed in 2 servers"):
        service.publish("/a", 1)


async def test_scripts_of_extensions_are_served(aiohttp_client: AiohttpClient) -> None:
    app = web.Application()
    server.attach(app, without_store(), mount=["extensions"])
    answer = await (await aiohttp_client(app)).get("/extensions/update.js")
    assert (answer.status, answer.content_type) == (200, "text/javascript")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_client_shakes_hands_with_a_mounted_server(aiohttp_client: AiohttpClient) -> None:
    app = web.Application()

    async def mine(_: web.Request) -> web.Response:
        return web.Response(text="mine")

    app.router.add_get("/", mine)
    server.attach(app, without_store())
    client = await aiohttp_client(app)
    assert await (await client.get("/")).text() == "mine"
    hand = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
    (reply,) = await (await client.post("/cometd", json=[hand])).json()
    assert reply["successful"] is True


async def test_an_unknown_mount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mount: there is no 'pages'; known are api, admin, health"):
        server.attach(web.Application(), Settings(storage=Storage(data_dir=tmp_path)), mount=["pages"])


@pytest.mark.parametrize("sets", [["storage.server_binary=/none"], ["security.policy=jwt", "security.jwt_keys=/none"]])
async def test_a_start_that_fails_leaves_no_directory(tmp_path: Path, sets: list[str]) -> None:
    settings = await asyncio.to_thread(load, None, [f"storage.data_dir={tmp_path / 'data'}", *sets])
    app = web.Application()
    server.attach(app, settings)
    runner = web.AppRunner(app)
    with pytest.raises(SettingsError, match="/none"):
        await runner.setup()
    await runner.cleanup()
    assert not (tmp_path / "data").exists()
