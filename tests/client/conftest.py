"""Servers and transports for the client's tests."""

from collections.abc import Iterator

import pytest

from tests.client.support import SERVICE
from tests.server_process import Server


@pytest.fixture(params=["websocket", "long-polling"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a module that leave it as it was; its connects are held for two seconds."""
    sets = ("bayeux.timeout_ms=2000", "bayeux.sweep_ms=100")
    options = ["--port=0", f"--service={SERVICE}", *(f"--set={text}" for text in sets)]
    server = Server(options, tmp_path_factory.mktemp("server"))
    yield server
    server.end_well()
