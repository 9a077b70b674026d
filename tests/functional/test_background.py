"""Background work of a service: each process of a server runs it once, from its start to its end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from aiohttp import web
from pytest_aiohttp import AiohttpClient

import crewel.extensions.ack
import crewel.extensions.replay
import crewel.extensions.timesync
import crewel.extensions.update  # noqa: F401 - imported by name when a server is made, which would block the loop of a test
from crewel import server
from crewel.broker.services import Service
from crewel.settings import Settings
from crewel.settings.storage import Storage
from tests.conftest import StartServer
from tests.functional.cluster import LONG, NODE
from tests.functional.wire import until
from tests.server_process import processes

SERVICE = "tests.functional.background_service"
START_S = 60.0
"""How long a worker may take to start."""


def noted(directory: Path, word: str) -> list[int]:
    """Return the processes that have begun the work, or have ended it."""
    file = directory / "work"
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(word)]


def test_a_server_without_workers_runs_it_once(start_server: StartServer, tmp_path: Path) -> None:
    started = start_server(service=SERVICE)
    until(lambda: noted(tmp_path, "begin"))
    assert started.terminate() == 0
    assert noted(tmp_path, "begin") == noted(tmp_path, "end") == started.pids


def test_each_worker_runs_it_and_so_does_its_successor(start_server: StartServer, tmp_path: Path) -> None:
    started = start_server("cluster.workers=2", LONG, service=SERVICE)
    until(lambda: len(noted(tmp_path, "begin")) == 2, START_S)
    killed, kept = processes(started)
    assert Counter(noted(tmp_path, "begin")) == Counter([killed, kept])
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(noted(tmp_path, "begin")) == 3, START_S)
    successor = noted(tmp_path, "begin")[2]
    assert Counter(processes(started)) == Counter([kept, successor])
    assert started.terminate() == 0
    assert Counter(noted(tmp_path, "end")) == Counter([kept, successor])


def test_each_node_runs_it(start_server: StartServer, tmp_path: Path) -> None:
    first = start_server(NODE, LONG, "node.name=a", service=SERVICE)
    second = start_server(*first.store_sets, NODE, LONG, "node.name=b", service=SERVICE)
    until(lambda: len(noted(tmp_path, "begin")) == 2)
    assert Counter(noted(tmp_path, "begin")) == Counter([first.pid, second.pid])
    for node in (second, first):
        assert node.terminate() == 0
    assert noted(tmp_path, "end") == [second.pid, first.pid]


async def test_an_attached_server_runs_it_as_long_as_the_application_runs(aiohttp_client: AiohttpClient) -> None:
    service, noted = Service("worker"), []

    @service.background
    async def work() -> None:
        noted.append("begin")
        try:
            await asyncio.Event().wait()
        finally:
            noted.append("end")

    app = web.Application()
    server.attach(app, Settings(storage=Storage(enabled=False)), services=[service], mount=["health"])
    assert noted == []
    client = await aiohttp_client(app)
    assert (await client.get("/health/ready")).status == 200
    assert noted == ["begin"]
    await client.close()
    assert noted == ["begin", "end"]
