"""What the server shows beside Bayeux: health, figures, scripts and the demos."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

import crewel.extensions.ack  # imported by name when a server is made, which in a test would block its loop
import crewel.extensions.timesync  # noqa: F401
from crewel import server as crewel_server
from crewel.settings import Settings
from crewel.settings.server_settings import Http
from crewel.settings.storage import Storage
from crewel.version import VERSION
from tests.functional.bayeux import Client, data
from tests.functional.conftest import Serve
from tests.functional.wire import Connection, Response, figures, parse_figures
from tests.house.source import ROOT
from tests.server_process import Server


def get(server: Server, path: str) -> Response:
    with Connection(server) as connection:
        return connection.get(path)


def test_health(server: Server) -> None:
    assert (get(server, "/health/live").status, get(server, "/health/live").json()) == (
        200,
        {"status": "live", "version": VERSION},
    )
    assert (get(server, "/health/ready").status, get(server, "/health/ready").json()) == (200, {"status": "ready"})


def test_the_version_is_said_everywhere_and_in_one_place(server: Server) -> None:
    """pyproject.toml has it; the npm package needs a copy."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    assert json.loads((ROOT / "browser" / "package.json").read_text())["version"] == VERSION
    assert figures(server)[f'crewel_build_info{{version="{VERSION}"}}'] == 1
    for path in ("/", "/chat/"):
        assert f'<span class="version">{VERSION}</span>' in get(server, path).body.decode()


async def test_a_server_that_goes_down_is_alive_and_not_ready(tmp_path: Path) -> None:
    app = web.Application()
    settings = Settings(http=Http(demos=False), storage=Storage(data_dir=str(tmp_path)))
    broker = crewel_server.attach(app, settings, mount=["health"])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        broker.drain()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with asyncio.timeout(30), ClientSession() as session:
            async with session.get(f"{base}/health/ready") as ready:
                assert ready.status == 503
            async with session.get(f"{base}/health/live") as live:
                assert live.status == 200
    finally:
        await runner.cleanup()


def test_the_figures_are_in_the_form_of_prometheus(server: Server) -> None:
    response = get(server, "/metrics")
    assert response.status == 200
    assert (response.header("Content-Type") or "").startswith("text/plain; version=")
    lines = response.body.decode().splitlines()
    described = {line.split()[2] for line in lines if line.startswith("# HELP")}
    typed = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    assert described == typed.keys()
    assert set(typed.values()) <= {"counter", "gauge", "histogram"}
    assert all(name.startswith("crewel_") for name in typed)
    assert parse_figures(response.body)["crewel_tasks"] >= 1


def test_the_figures_move(serve: Serve) -> None:
    server = serve()
    before = figures(server)
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/a")
    polling = client.hold()
    during = figures(server)
    other.publish("/a", 1)
    assert data(polling.response().messages) == [1]
    other.send({"channel": "/a", "clientId": "nobody"})
    other.disconnect()
    with Connection(server) as connection:
        assert connection.post("/cometd", b"{").status == 400
    after = figures(server)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["crewel_handshakes_total"] == 2
    assert grown["crewel_connects_total"] == 3
    assert grown["crewel_publishes_total"] == 1
    assert grown["crewel_deliveries_total"] == 1
    assert grown["crewel_sessions"] == 1
    assert grown['crewel_errors_total{code="402"}'] == 1
    assert grown['crewel_refused_payloads_total{fault="malformed"}'] == 1
    assert during["crewel_held_connects"] == 1
    assert after["crewel_held_connects"] == 0


def test_the_browser_halves_of_extensions_are_scripts(server: Server) -> None:
    for script in (ROOT / "extensions").glob("*.js"):
        response = get(server, f"/extensions/{script.name}")
        assert response.status == 200
        assert (response.header("Content-Type") or "").startswith("text/javascript")
        assert response.header("X-Content-Type-Options") == "nosniff"
        assert response.body == script.read_bytes()
    for path in ("/extensions/nothing.js", "/extensions/ack.py", "/extensions/"):
        assert get(server, path).status == 404
    assert get(server, "/extensions/%2e%2e/pyproject.js").status == 400


def test_pages_of_other_origins_can_import_the_client_and_nothing_else(server: Server) -> None:
    """A browser imports a module of another origin only if the answer allows it. Nothing in these depends on the user."""
    shared = ("/extensions/update.js", "/static/vendor/cometd/cometd.js")
    for path in (*shared, "/chat/", "/static/chat/chat.js", "/health/live"):
        assert get(server, path).header("Access-Control-Allow-Origin") == ("*" if path in shared else None), path


@pytest.mark.parametrize("path", ["/", "/chat/"])
def test_pages_are_protected(server: Server, path: str) -> None:
    response = get(server, path)
    assert response.status == 200
    assert (response.header("Content-Type") or "").startswith("text/html")
    policy = dict(
        part.strip().partition(" ")[::2] for part in (response.header("Content-Security-Policy") or "").split(";")
    )
    assert policy["default-src"] == "'self'"
    assert policy["object-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in str(policy)
    assert response.header("X-Content-Type-Options") == "nosniff"
    assert response.header("Referrer-Policy") == "same-origin"


def test_the_chat_is_found_without_its_slash(server: Server) -> None:
    response = get(server, "/chat")
    assert response.status in (301, 302, 307, 308)
    assert response.header("Location") == "/chat/"


@pytest.mark.parametrize(
    "path",
    [
        "/static/package.json",
        "/static/package-lock.json",
        "/static/.npmrc",
        "/static/index.html",
        "/static/node_modules/cometd/package.json",
        "/static/node_modules/cometd/cometd.js",
    ],
)
def test_what_only_a_checkout_has_is_not_served(server: Server, path: str) -> None:
    assert get(server, path).status == 404


@pytest.mark.parametrize(
    "path", ["/static/style.css", "/static/icon.svg", "/static/chat/chat.js", "/static/vendor/cometd/cometd.js"]
)
def test_what_the_pages_need_is_served(server: Server, path: str) -> None:
    assert get(server, path).status == 200


@pytest.mark.parametrize(
    "path", ["/static/../pyproject.toml", "/static/%2e%2e/pyproject.toml", "/static/", "/static//etc/passwd"]
)
def test_only_pages_are_served_from_the_directory_of_pages(server: Server, path: str) -> None:
    assert get(server, path).status in (400, 403, 404)


def test_the_demos_can_be_left_out(serve: Serve) -> None:
    server = serve("http.demos=false")
    for path in ("/", "/chat/", "/chat", "/static/style.css"):
        assert get(server, path).status == 404
    assert get(server, "/health/live").status == 200
    assert get(server, "/metrics").status == 200
    assert Client(server).handshake()["successful"] is True
