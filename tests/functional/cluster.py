"""Nodes: servers that share one store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.functional.wire import close_connections
from tests.server_process import Server, processes

NODE = "cluster.enabled=true"
TOKEN = "the-token-of-the-operators"
OPERATED = f"admin.token={TOKEN}"
LONG = "cluster.lease_ms=600000"
"""So long that only a death that is certain ends a lease: a node or worker that is stopped stays alive."""
PATIENT = "bayeux.max_interval_ms=600000"
"""For tests with more clients than connect again in time."""


@pytest.fixture
def nodes(start_server: StartServer) -> list[Server]:
    """Two nodes, whose leases are so long that only a death that is certain ends one."""
    first = start_server(NODE, LONG, OPERATED, PATIENT, "node.name=a")
    return [first, start_server(*first.store_sets, NODE, LONG, OPERATED, PATIENT, "node.name=b")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """The same, for tests that end none of them."""
    directory = tmp_path_factory.mktemp("pair")
    common = [f"--set={text}" for text in (NODE, LONG, OPERATED)]
    first = Server(["--port=0", *common, "--set=node.name=a"], directory)
    same = [f"--set={text}" for text in first.store_sets]
    second = Server(["--port=0", *same, *common, "--set=node.name=b"], directory)
    yield [first, second]
    close_connections()
    first.end_well()
    second.end_well()


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two workers, for tests that end none of them: a worker takes a second of the processor to start."""
    sets = ("cluster.workers=2", LONG, OPERATED)
    server = Server(["--port=0", *(f"--set={each}" for each in sets)], tmp_path_factory.mktemp("workers"))
    yield server
    pids = processes(server)
    close_connections()
    server.end_well()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not server.stdout_after_ready
