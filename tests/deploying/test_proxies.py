"""That the files of docs/how-to/proxies.md do what the page says, with the real proxies: `make test-deploying`."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from yarl import URL

from crewel.client import Client
from tests.conftest import StartServer
from tests.house.source import ROOT
from tests.ports import free_port
from tests.server_process import Server
from tests.terminals import blocks

pytestmark = pytest.mark.server

FILES = {block.title: block.text for block in blocks(ROOT / "docs" / "how-to" / "proxies.md") if block.is_file}
LIMIT_S = 60
DISGUISED = (
    *("/%6detrics", "/metric%73", "/%6Detrics", "//metrics", "/./metrics", "/x/../metrics", "/x/%2e%2e/metrics"),
    *(
        "/metrics;x",
        "/METRICS",
        "/metrics/",
        "/metrics%00",
        "/metrics%20",
        "/metrics%0a",
        "/metrics%3Fx",
        "/%2Fmetrics",
    ),
    *(
        "/%61dmin/api/nodes",
        "/adm%69n/",
        "//admin/",
        "/./admin/",
        "/admin%2Fapi%2Fnodes",
        "/admin;x/api/nodes",
        "/ADMIN/api/nodes",
    ),
    *(
        "/%68ealth/ready",
        "/health%2Fready",
        "/health//ready",
        "/health/./ready",
        "/x/..%2fhealth/ready",
        "/Health/ready",
    ),
    *("/%61pi/publish", "/api%2fpublish", "//api/publish", "/chat/..;/admin/api/nodes", "/chat/%2e%2e;/metrics"),
)
"""What the rules of a proxy must not let pass as another path than the server serves."""


class World:
    """A server, a certificate, and a place for the files of a proxy."""

    def __init__(self, directory: Path, start_server: StartServer, *sets: str) -> None:
        self.directory, self.port = directory, free_port()
        self.authority = trustme.CA()
        certificate = self.authority.issue_cert("localhost")
        self.chain, self.key, self.both = (directory / name for name in ("chain.pem", "key.pem", "both.pem"))
        certificate.private_key_pem.write_to_path(self.key)
        certificate.private_key_and_cert_chain_pem.write_to_path(self.both)
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(self.chain, append=True)
        self.base = f"https://localhost:{self.port}"
        self.server: Server = start_server(
            f"http.public_url={self.base}", "http.trusted_proxies=127.0.0.1", "bayeux.timeout_ms=2000", *sets
        )

    @property
    def trust(self) -> ssl.SSLContext:
        """What a client of the proxy trusts."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def written(self, name: str, *changes: tuple[str, str]) -> Path:
        """Write a file of the page with the addresses of this world; each change must find its text."""
        text = FILES[name]
        for shown, here in (("127.0.0.1:8080", f"127.0.0.1:{self.server.port}"), *changes):
            assert shown in text, (name, shown)
            text = text.replace(shown, here)
        file = self.directory / name
        file.write_text(text, "utf-8")
        return file


@pytest.fixture
def world(tmp_path: Path, start_server: StartServer) -> World:
    return World(tmp_path, start_server)


def nginx(world: World) -> list[str]:
    """Write nginx's files, have it check them, and return its command."""
    site = world.written(
        "crewel.conf",
        ("listen 443 ssl", f"listen 127.0.0.1:{world.port} ssl"),
        ("chat.example.org;", "localhost;"),
        ("/etc/letsencrypt/live/chat.example.org/fullchain.pem", str(world.chain)),
        ("/etc/letsencrypt/live/chat.example.org/privkey.pem", str(world.key)),
    )
    temporary = "".join(
        f"{kind}_temp_path {world.directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = world.directory / "nginx.conf"
    main.write_text(
        f"daemon off; pid {world.directory}/nginx.pid; error_log stderr; worker_processes 1;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}include {site};\n}}\n"
    )
    command = ["nginx", "-c", str(main), "-p", str(world.directory), "-e", "stderr"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=LIMIT_S)
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr, checked.stderr
    return command


def caddy(world: World) -> list[str]:
    """Write Caddy's file, with a certificate in place of one from the internet; return its command."""
    file = world.written(
        "Caddyfile",
        ("chat.example.org {", f"{world.base} {{\n    bind 127.0.0.1\n    tls {world.chain} {world.key}"),
    )
    file.write_text("{\n    admin off\n    auto_https disable_redirects\n}\n" + file.read_text("utf-8"), "utf-8")
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]
    checked = subprocess.run(["caddy", "validate", *command[2:]], capture_output=True, text=True, timeout=LIMIT_S)
    assert checked.returncode == 0, checked.stderr
    return command


def haproxy(world: World) -> list[str]:
    """Write HAProxy's file, have it check it, and return its command."""
    file = world.written(
        "haproxy.cfg",
        ("bind :443", f"bind 127.0.0.1:{world.port}"),
        ("/etc/haproxy/certs/chat.example.org.pem", str(world.both)),
    )
    checked = subprocess.run(["haproxy", "-c", "-f", str(file)], capture_output=True, text=True, timeout=LIMIT_S)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr, checked.stderr
    return ["haproxy", "-db", "-f", str(file)]


@contextmanager
def running(proxy: Callable[[World], list[str]], world: World) -> Iterator[None]:
    """Have the proxy in the world, which accepts connections."""
    assert shutil.which(proxy.__name__), f"{proxy.__name__} is missing: `make test-deploying` installs it"
    log = world.directory / "proxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            proxy(world), cwd=world.directory, stdout=output, stderr=output, env=_environment(world)
        )
    try:
        _wait_for(world.port, process, log)
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_S)


@pytest.fixture(params=[nginx, caddy, haproxy], ids=lambda proxy: proxy.__name__)
def proxied(request: pytest.FixtureRequest, world: World) -> Iterator[World]:
    """The world with its proxy."""
    with running(request.param, world):
        yield world


def _environment(world: World) -> dict[str, str]:
    return os.environ | {"HOME": str(world.directory), "XDG_DATA_HOME": str(world.directory)}


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + LIMIT_S
    while True:
        assert process.poll() is None, log.read_text("utf-8", errors="replace")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S).close()
        except ConnectionRefusedError:
            assert time.monotonic() < limit, log.read_text("utf-8", errors="replace")
            time.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
async def test_clients_connect_through_the_proxy(proxied: World, transport: str) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        Client(f"{proxied.base}/cometd", ssl=proxied.trust, transports=[transport]) as client,
    ):
        subscription = await client.subscribe("/chat/demo")
        await client.publish("/chat/demo", "through the proxy", persistent=True)
        assert (await anext(subscription)).data == "through the proxy"


async def test_the_proxy_keeps_operators_paths_to_itself_and_names_the_client(proxied: World) -> None:
    handshake = [{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]
    async with (
        asyncio.timeout(LIMIT_S),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=proxied.trust)) as web,
    ):
        for path, status in (("/chat/", 200), ("/metrics", 403), ("/health/ready", 403), ("/admin/api/sessions", 403)):
            async with web.get(proxied.base + path) as answer:
                assert (path, answer.status) == (path, status)
        for path in DISGUISED:
            async with web.get(URL(proxied.base + path, encoded=True)) as answer:
                assert answer.status in (400, 403, 404), (path, answer.status)
        for origin, status in ((proxied.base, 200), ("https://elsewhere.example", 403)):
            async with web.post(f"{proxied.base}/cometd", json=handshake, headers={"Origin": origin}) as answer:
                assert (origin, answer.status) == (origin, status)
