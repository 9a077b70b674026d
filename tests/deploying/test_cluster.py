"""That the files of `deploy/` work with the real programs: units, and balancer and store of the profile `cluster`."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from crewel.client import Client
from crewel.settings.storage import Storage
from crewel.storage.embedded import server_binary
from tests.conftest import StartServer
from tests.functional.wire import until
from tests.house.source import ROOT
from tests.ports import free_ports
from tests.store_group import client_at

pytestmark = pytest.mark.server

DEPLOY = ROOT / "deploy"
NODE = ("cluster.enabled=true", "admin.token=the-token-of-the-operators-of-both")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda each: each.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text("utf-8").replace("/opt/crewel/bin/crewel", sys.executable))
    found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")


async def test_clients_chat_across_nodes_through_the_balancer(start_server: StartServer, tmp_path: Path) -> None:
    first = await asyncio.to_thread(start_server, *NODE, "node.name=a")
    second = await asyncio.to_thread(start_server, *first.store_sets, *NODE, "node.name=b")
    (port,) = free_ports(1)
    text = (DEPLOY / "compose" / "haproxy.cfg").read_text("utf-8")
    for old, new in (
        ("maxconn 20000", "maxconn 500"),
        ("bind :8080", f"bind 127.0.0.1:{port}"),
        ("node-a:8080", f"127.0.0.1:{first.port}"),
        ("node-b:8080", f"127.0.0.1:{second.port}"),
    ):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "haproxy.cfg"
    file.write_text(text)
    balancer = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", file)
    url = f"http://127.0.0.1:{port}/cometd"
    await asyncio.to_thread(until, lambda: is_listening(port), 60)
    try:
        for transport in ("long-polling", "websocket"):
            async with (
                Client(url, transports=[transport], open_timeout=60) as joe,
                Client(url, transports=[transport], open_timeout=60) as ann,
            ):
                subscription = await joe.subscribe("/a")
                await ann.publish("/a", transport, persistent=True)
                async with asyncio.timeout(20):
                    message = await anext(aiter(subscription))
                assert message.data == transport
    finally:
        balancer.terminate()
        await balancer.wait()


def is_listening(port: int) -> bool:
    """Whether a connection is accepted there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(script: str, *words: str, directory: Path, port: int, primary: int) -> Iterator[None]:
    """A script of the profile, with the program that it starts."""
    programs = directory / "programs"
    programs.mkdir(parents=True)
    for name in ("valkey-server", "valkey-sentinel"):
        (programs / name).symlink_to(server_binary(Storage()))
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "STORE_DIR": str(directory), "STORE_PORT": str(port)}
    process = subprocess.Popen(
        [DEPLOY / "compose" / script, *words],
        env=variables | {"PRIMARY_PORT": str(primary)},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def replicas(port: int) -> int:
    """How many replicas the store on this port has; -1 while it does not answer."""
    try:
        with client_at(port) as client:
            return int(dict(client.info("replication"))["connected_slaves"])
    except redis.RedisError:
        return -1


def watched(port: int) -> tuple[int, int, int]:
    """What a sentinel knows: the port of the primary, its replicas, and the other sentinels."""
    try:
        with client_at(port) as client:
            state: Any = client.sentinel_master("crewel")
    except redis.RedisError:
        return 0, 0, 0
    return int(state["port"]), int(state["num-slaves"]), int(state["num-other-sentinels"])


def test_the_store_of_compose_elects_another_primary(start_server: StartServer, tmp_path: Path) -> None:
    stores, sentinels = free_ports(3), free_ports(3)
    local, first = "127.0.0.1", stores[0]
    with ExitStack() as stack, ExitStack() as death:
        for port in stores:
            words = [local] if port == first else [local, local]
            entering = death if port == first else stack
            entering.enter_context(
                running("store.sh", *words, directory=tmp_path / str(port), port=port, primary=first)
            )
        until(lambda: replicas(first) == 2, 60)
        for port in sentinels:
            directory = tmp_path / str(port)
            stack.enter_context(running("sentinel.sh", local, local, directory=directory, port=port, primary=first))
        until(lambda: all(watched(port) == (first, 2, 2) for port in sentinels), 60)
        places = ",".join(f"{local}:{port}" for port in sentinels)
        server = start_server(f"storage.url=redis+sentinel://{places}/crewel", "storage.replicas=1")
        death.close()
        until(lambda: watched(sentinels[0])[0] not in (0, first), 60)
        assert server.returncode is None
