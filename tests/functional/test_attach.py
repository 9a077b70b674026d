"""Crewel mounted in an aiohttp application of somebody else's, by aiohttp's own test tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient

import crewel.extensions.ack
import crewel.extensions.replay
import crewel.extensions.timesync
import crewel.extensions.update  # noqa: F401 - imported by name when a server is made, which would block the loop of a test
from crewel import server
from crewel.errors import SettingsError
from crewel.settings import Settings
from crewel.settings.access import Admin
from crewel.settings.storage import Storage

TOKEN = "an-admin-token-for-tests"
PATHS = {
    "api": "/api/publish",
    "admin": "/admin/api/sessions",
    "health": "/health/live",
    "metrics": "/metrics",
    "extensions": "/extensions/ack-none.js",
}


def without_store() -> Settings:
    return Settings(storage=Storage(enabled=False), admin=Admin(token=TOKEN))


async def statuses(client: AiohttpClient, *mount: str) -> dict[str, int]:
    """Return how an application answers that mounts these, by what each is."""
    app = web.Application()
    server.attach(app, without_store(), mount=mount)
    asking = await client(app)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return {name: (await asking.get(path, headers=headers)).status for name, path in PATHS.items()}


async def test_bayeux_alone_is_mounted_unless_more_is_named(aiohttp_client: AiohttpClient) -> None:
    assert await statuses(aiohttp_client) == dict.fromkeys(PATHS, 404)


async def test_each_mount_serves_what_its_name_says(aiohttp_client: AiohttpClient) -> None:
    assert await statuses(aiohttp_client, "health", "metrics") == {
        "api": 404, "admin": 404, "health": 200, "metrics": 200, "extensions": 404,
    }  # fmt: skip
    assert await statuses(aiohttp_client, *server.MOUNTS) == {
        "api": 405, "admin": 200, "health": 200, "metrics": 200, "extensions": 404,
    }  # fmt: skip


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
