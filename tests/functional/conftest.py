"""What the functional tests share: both lanes, and servers that several tests use one after the other.

A test of a setting starts a server of its own with `serve`; any other takes a `shared` one and keeps to channels and
sessions of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.functional.cluster import nodes, pair, workers
from tests.functional.on_several_nodes import REASONS
from tests.functional.wire import close_connections, figures, until
from tests.server_process import Server, nodes_of_tests, start

# The options under which everything here has to hold: one tuple of `--set` texts a way of answering HTTP requests.
LANES: list[tuple[str, ...]] = [("http.fast_lane=true",), ("http.fast_lane=false",)]

# For tests that wait long for what no lane has a part in: sessions that expire, sockets that idle.
one_lane = pytest.mark.parametrize("lane", LANES[:1], indirect=True, ids=["one lane"])

__all__ = ["nodes", "pair", "workers"]

Serve = Callable[..., Server]
_MAX_SHARED = 6


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On several nodes, let those tests fail that need not hold there."""
    if nodes_of_tests() == 1:
        return
    for item in items:
        reason = REASONS.get(f"{item.path.name}::{getattr(item, 'originalname', item.name)}")
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.fixture(params=LANES, ids=lambda lane: ",".join(lane) or "default")
def lane(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The lane's options."""
    options: tuple[str, ...] = request.param
    return options


@pytest.fixture
def start_server(start_server: StartServer) -> Iterator[StartServer]:
    """As everywhere; but connections end before the servers, which wait for the close of each WebSocket."""
    yield start_server
    close_connections()


@pytest.fixture
def serve(lane: tuple[str, ...], start_server: StartServer) -> Serve:
    """Start a server for this test alone: `serve("bayeux.timeout_ms=1000")`."""

    def start(*sets: str, **options: object) -> Server:
        return start_server(*lane, *sets, **options)

    return start


class Pool:
    """Servers by their settings, a few at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[tuple[str, ...], Server] = {}

    def get(self, sets: tuple[str, ...]) -> Server:
        server = self._servers.pop(sets, None)
        if server is None:
            if len(self._servers) >= _MAX_SHARED:
                self._end(next(iter(self._servers)))
            server = start(["--port=0", *(f"--set={text}" for text in sets)], self._directory)
        self._servers[sets] = server
        return server

    def check(self) -> None:
        """Fail the test that made a server complain; that server is not used again."""
        for sets, server in list(self._servers.items()):
            if "Traceback" in server.stderr or server.returncode is not None:
                self._end(sets)

    def close(self) -> None:
        for sets in list(self._servers):
            self._end(sets)

    def _end(self, sets: tuple[str, ...]) -> None:
        self._servers.pop(sets).end_well()


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The shared servers."""
    pool = Pool(tmp_path_factory.mktemp("shared"))
    yield pool
    pool.close()


@pytest.fixture
def shared(lane: tuple[str, ...], pool: Pool) -> Iterator[Serve]:
    """A server with these settings, which other tests use too; nobody else's connections are open."""

    def get(*sets: str) -> Server:
        server = pool.get((*lane, *sets))
        until(lambda: _is_quiet(server))
        return server

    yield get
    pool.check()


@pytest.fixture
def server(shared: Serve) -> Server:
    """The shared server with the settings that most tests need: all transports, and otherwise the defaults."""
    return shared("bayeux.transports=websocket,long-polling,callback-polling")


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    """Close what a test left open."""
    yield
    close_connections()


_numbers = itertools.count(1)


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"/test/{next(_numbers)}"


def _is_quiet(server: Server) -> bool:
    now = figures(server)
    return now["crewel_held_connects"] == 0 and now["crewel_sockets"] == 0
