"""A page of another host name that points at loopback (DNS rebinding) gets no answer, by any way into the server."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from crewel import server as crewel_server
from crewel.settings import Settings
from crewel.settings.storage import Storage
from tests.functional.conftest import Serve
from tests.functional.frames import Refused, Socket
from tests.functional.wire import Connection, figures
from tests.server_process import Server

ALL = "bayeux.transports=websocket,long-polling,callback-polling"
HANDSHAKE = [{"channel": "/meta/handshake", "id": "1"}]
EVIL = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080", "Sec-Fetch-Site": "same-origin"}
PATHS = ["/cometd", "/cometd/handshake", "/", "/chat/", "/metrics", "/health/ready", "/admin/api/", "/admin/api/openapi.json",
         "/admin/api/sessions", "/extensions/ack.js", "/nowhere"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_name_is_refused_everywhere(server: Server, path: str) -> None:
    with Connection(server) as connection:
        response = connection.get(path, EVIL)
        assert response.status == 421
        assert b"http.allowed_hosts" in response.body
        assert connection.get("/health/live").status == 200, "the connection serves its next request"


def test_a_foreign_name_is_refused_on_each_transport(server: Server) -> None:
    with Connection(server) as connection:
        for _ in range(2):  # the second time, the fast lane has seen the head before
            assert connection.post("/cometd", HANDSHAKE, EVIL).status == 421
        assert connection.post("/api/publish", HANDSHAKE, EVIL).status == 421
        assert (
            connection.get("/cometd?jsonp=cb&message=" + json.dumps(HANDSHAKE[0]).replace(" ", ""), EVIL).status == 421
        )
        assert connection.post("/cometd", HANDSHAKE).messages[0]["successful"] is True
    with pytest.raises(Refused) as refused:
        Socket(server, headers=EVIL)
    assert refused.value.response.status == 421


def test_a_refused_name_is_counted_and_logged_once(serve: Serve) -> None:
    server = serve()
    with Connection(server) as connection:
        for _ in range(3):
            assert connection.post("/cometd", HANDSHAKE, EVIL).status == 421
    assert figures(server)['crewel_refused_payloads_total{fault="host"}'] == 3
    server.close()  # all that it has logged is read
    assert server.stderr.count("evil.example") == 1


def test_names_of_the_settings_are_served(serve: Serve) -> None:
    server = serve(ALL, "http.public_url=https://chat.example.org", "http.allowed_hosts=shop.example,[::2]")
    with Connection(server) as connection:
        for host in ("chat.example.org", "shop.example:8080", "[::2]:80", "localhost:1", "[::1]"):
            assert connection.post("/cometd", HANDSHAKE, {"Host": host}).status == 200, host
        assert connection.post("/cometd", HANDSHAKE, EVIL).status == 421


def test_a_server_for_more_than_loopback_answers_to_any_name(serve: Serve) -> None:
    server = serve("http.host=0.0.0.0", "security.allow_open=true")
    with Connection(server) as connection:
        assert connection.post("/cometd", HANDSHAKE, {"Host": "chat.example"}).status == 200


async def test_an_attached_server_refuses_foreign_names_for_bayeux(tmp_path: Path) -> None:
    """The application's own pages are the application's affair."""
    app = web.Application()
    app.router.add_get("/", _own_page)
    crewel_server.attach(app, Settings(storage=Storage(data_dir=str(tmp_path))))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with ClientSession() as http:
        async with http.post(base + "/cometd", json=HANDSHAKE, headers={"Host": "evil.example"}) as response:
            assert response.status == 421
        async with http.post(base + "/cometd", json=HANDSHAKE) as response:
            assert response.status == 200
        async with http.get(base + "/", headers={"Host": "evil.example"}) as response:
            assert response.status == 200
    await runner.cleanup()


async def _own_page(request: web.Request) -> web.Response:
    return web.Response(text="the application's own page")


async def test_an_attached_server_knows_loopback_on_a_socket_for_both_families(tmp_path: Path) -> None:
    """There, 127.0.0.1 is `::ffff:127.0.0.1`."""
    app = web.Application()
    crewel_server.attach(app, Settings(storage=Storage(data_dir=str(tmp_path))))
    runner = web.AppRunner(app)
    await runner.setup()
    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    await web.SockSite(runner, both).start()
    url = f"http://127.0.0.1:{both.getsockname()[1]}/cometd"
    async with ClientSession() as client:
        statuses = [(await client.post(url, json=HANDSHAKE, headers=headers)).status for headers in (EVIL, {})]
    await runner.cleanup()
    assert statuses == [421, 200]
