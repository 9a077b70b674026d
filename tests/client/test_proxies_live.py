"""The client and the commands through a proxy, which alone knows where the server is."""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from crewel.client import Client, ProxyDeniedError, TransportError, UpgradeRefusedError
from crewel.client.sync import Client as SyncClient
from tests.admin.desk import TOKEN
from tests.cli.command import Ended, crewel
from tests.client.support import LIMIT_S, QUICK
from tests.forward_proxy import LOGIN, ForwardProxy
from tests.ports import free_port
from tests.server_process import Server, serving

pytestmark = pytest.mark.server
HOST = "crewel.invalid"
SECRETS = ("cret", "am9lOnM6Y3JldA")
"""Parts of `LOGIN`, and of what is sent for it."""
SCHEMES = ("http", "https")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the certificate of the server, and that of its authority."""
    directory = tmp_path_factory.mktemp("authority")
    issuer = trustme.CA()
    issuer.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    issuer.cert_pem.write_to_path(str(directory / "ca.pem"))
    return directory


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Iterator[dict[str, Server]]:
    """A server without TLS, and one with it."""
    sets = ("bayeux.timeout_ms=500", f"admin.token={TOKEN}", "http.allowed_hosts=*")
    tls = (f"http.tls_cert={authority / 'server.pem'}", f"http.tls_key={authority / 'server.pem'}")
    with (
        serving(tmp_path_factory.mktemp("plain"), *sets) as plain,
        serving(tmp_path_factory.mktemp("secure"), *sets, *tls) as secure,
    ):
        yield {"http": plain, "https": secure}


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def options(scheme: str, authority: Path) -> dict[str, Any]:
    """What each client here has."""
    trusting = ssl.create_default_context(cafile=str(authority / "ca.pem")) if scheme == "https" else None
    return {"ssl": trusting, "backoff": QUICK, "open_timeout": LIMIT_S}


@pytest.fixture
async def proxy(servers: dict[str, Server], scheme: str) -> AsyncIterator[ForwardProxy]:
    """A proxy that asks for a password."""
    async with ForwardProxy({HOST: servers[scheme].port}, has_login=True) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def asked(scheme: str, transport: str) -> str:
    """What the proxy is asked for first."""
    if scheme == "https":
        return f"CONNECT {HOST}:443"
    return f"{'GET' if transport == 'websocket' else 'POST'} http://{HOST}/cometd"


async def test_a_client_reaches_a_server_that_only_the_proxy_knows(
    proxy: ForwardProxy,
    scheme: str,
    transport: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(f"{scheme}_proxy", proxy.url)
    async with Client(f"{scheme}://{HOST}", transports=[transport], **options) as client:
        heard = await client.subscribe(f"/proxies/{transport}")
        await client.publish(f"/proxies/{transport}", 1)
        assert (await heard.receive(LIMIT_S)).data == 1
        consumer = client.consume("/a", name="worker/1", resume_file="unused")
        assert consumer.client._config.through == client._config.through
        assert client.transport == transport
    assert set(proxy.asked) == {asked(scheme, transport)}
    assert not any(secret in caplog.text for secret in SECRETS)


async def test_the_option_counts_for_a_server_on_loopback_too(servers: dict[str, Server]) -> None:
    server = servers["http"]
    async with ForwardProxy({"127.0.0.1": server.port}) as proxy:

        def publish() -> None:
            with SyncClient(server.url, proxy=proxy.url) as client:
                client.publish("/a", 1)

        await asyncio.to_thread(publish)
        assert proxy.asked


async def test_a_proxy_that_forwards_no_upgrade_leaves_long_polling(servers: dict[str, Server]) -> None:
    class Old(ForwardProxy):
        """Takes the upgrade out of each request."""

        async def _open_at(self, port: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await super()._open_at(port)
            write = writer.write
            writer.write = lambda chunk: write(chunk.replace(b"Upgrade: websocket\r\n", b""))  # type: ignore[method-assign]
            return reader, writer

    async with Old({HOST: servers["http"].port}) as proxy:
        async with Client(f"http://{HOST}", proxy=proxy.url) as client:
            await client.publish("/a", 1)
            assert client.transport == "long-polling"
        with pytest.raises(
            UpgradeRefusedError, match=r"through the proxy http://127.* a proxy does not forward the Upg"
        ):
            await Client(f"http://{HOST}", proxy=proxy.url, transports=["websocket"], open_timeout=0).__aenter__()


async def test_a_proxy_that_does_not_know_the_client_is_told_at_once(
    proxy: ForwardProxy, scheme: str, transport: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = proxy.url.replace(LOGIN, "joe:a-secret")
    kind = ProxyDeniedError if scheme == "https" or transport == "long-polling" else UpgradeRefusedError
    with pytest.raises(kind) as failed:
        await Client(f"{scheme}://{HOST}", transports=[transport], proxy=wrong, **options).__aenter__()
    told = f"{scheme}://{HOST}/cometd (through the proxy http://127.0.0.1:{proxy.port})"
    assert str(failed.value).startswith(told)
    assert "answered 407" in str(failed.value)
    assert "http://NAME:PASSWORD@HOST:PORT" in str(failed.value)
    assert "a-secret" not in "".join(traceback.format_exception(failed.value)) + caplog.text + repr(failed.value)


async def test_a_server_that_the_proxy_does_not_find_is_told(
    proxy: ForwardProxy, scheme: str, transport: str, options: dict[str, Any]
) -> None:
    options["open_timeout"] = 0
    with pytest.raises(TransportError, match=r"\(through the proxy http://127[^)]*\).* answered 502") as failed:
        await Client(f"{scheme}://other.invalid", transports=[transport], proxy=proxy.url, **options).__aenter__()
    assert not any(secret in "".join(traceback.format_exception(failed.value)) for secret in SECRETS)


async def test_a_proxy_that_is_not_there_is_told(scheme: str, transport: str, options: dict[str, Any]) -> None:
    options["open_timeout"] = 0
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(TransportError) as failed:
        await Client(
            f"{scheme}://{HOST}", transports=[transport], proxy=f"http://{LOGIN}@{address}", **options
        ).__aenter__()
    told = f"(through the proxy http://{address}): the proxy cannot be reached: connection refused"
    assert str(failed.value) == f"{scheme}://{HOST}/cometd {told}"


async def run(*arguments: str, directory: Path, **environ: str) -> Ended:
    return await asyncio.to_thread(crewel, *arguments, directory=directory, environ=environ)


async def test_commands_go_through_the_proxy(proxy: ForwardProxy, scheme: str, authority: Path, tmp_path: Path) -> None:
    url = f"{scheme}://{HOST}/cometd"
    given = ("--url", url, "--token", TOKEN)
    if scheme == "https":  # a process of its own has to read this variable, and one is enough
        environ = {"SSL_CERT_FILE": str(authority / "ca.pem"), "HTTPS_PROXY": proxy.url}
        ended = [await run("sessions", "list", *given, directory=tmp_path, **environ)]
    else:
        checks = ("--only", "subscribe-fields", "--transport", "websocket")
        ended = [
            await run("sessions", "list", *given, directory=tmp_path, http_proxy=proxy.url),
            await run("pub", "/a", "1", *given, "--proxy", proxy.url, directory=tmp_path),
            await run("conformance", url, *checks, directory=tmp_path, CREWEL_PROXY=proxy.url),
        ]
    assert [(each.status, each.err) for each in ended] == [(0, "")] * len(ended)
    assert len(proxy.asked) >= len(ended)


async def test_commands_tell_what_the_proxy_says_without_its_password(
    proxy: ForwardProxy, scheme: str, tmp_path: Path
) -> None:
    where = f"(through the proxy http://127.0.0.1:{proxy.port})"
    wrong = proxy.url.replace(LOGIN, "joe:a-secret")
    url = f"{scheme}://{HOST}/cometd"
    refused = await run("sessions", "list", "--url", url, "--proxy", wrong, directory=tmp_path)
    tried = await run("conformance", url, "--proxy", wrong, directory=tmp_path)
    for ended in (refused, tried):
        assert ended.status != 0
        assert "a-secret" not in ended.err
        assert "407" in ended.err
    assert where in refused.err
    url = f"{scheme}://other.invalid"
    unfound = await run("sessions", "list", "--url", url, "--proxy", proxy.url, directory=tmp_path)
    assert where in unfound.err
    assert "answered 502 Bad Gateway" in unfound.err


@pytest.mark.parametrize("command", [("sessions", "list"), ("pub", "/a", "1"), ("conformance", "http://127.0.0.1:1")])
async def test_a_proxy_that_is_none_is_wrong_usage(command: tuple[str, ...], tmp_path: Path) -> None:
    ended = await run(*command, "--proxy", "socks5://joe:a-secret@x", directory=tmp_path)
    assert (ended.status, "a-secret" in ended.err) == (2, False)
    assert "is the address of an HTTP proxy" in " ".join(ended.err.split())


async def test_the_admin_token_of_this_machine_goes_through_no_proxy(tmp_path: Path) -> None:
    with serving(tmp_path, "http.allowed_hosts=*") as server:
        async with ForwardProxy({"127.0.0.1": server.port}) as proxy:
            near = await run("sessions", "list", "--url", server.url, directory=tmp_path)
            assert (near.status, near.err) == (0, "")
            through = await run("sessions", "list", "--url", server.url, "--proxy", proxy.url, directory=tmp_path)
            assert through.status == 1
            assert "--token or CREWEL_TOKEN" in through.err
            assert len(proxy.asked) == 1
