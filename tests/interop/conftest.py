"""Start other people's clients for the tests, and refuse to pretend when they are not installed."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

import pytest

from tests.interop.peers import HERE, Kind, Peer
from tests.server_process import Server

_numbers = itertools.count(1)


class OpenPeer(Protocol):
    """Start a client of a kind in a process of its own, handshake and connect to the server on this port."""

    async def __call__(self, kind: Kind, port: int | None, **options: Any) -> Peer: ...


@pytest.fixture(scope="session")
def installed_clients() -> None:
    """Fail, rather than skips, where the clients are missing: a matrix that did not run must not look green."""
    if shutil.which("node") is None:
        pytest.fail("the interop tests need Node.js 18 or newer, and `node` was not found", pytrace=False)
    if not (HERE / "node_modules" / "cometd").is_dir():
        pytest.fail(
            "the npm packages of tests/interop are missing: `make test` installs them (npm ci --prefix tests/interop)",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """One server for each lane, and other settings if they are named, for all tests that leave it running; each takes a
    `root` of its own for its channels."""
    running: dict[tuple[str, ...], Server] = {}

    def server_of(*sets: str) -> Server:
        if sets not in running:
            options = ["--port=0", *(f"--set={text}" for text in sets), "--service=tests.interop.calls"]
            running[sets] = Server(options, tmp_path_factory.mktemp("server"))
        return running[sets]

    yield server_of
    for server in running.values():
        server.end_well()


@pytest.fixture
def server(kind: Kind, servers: Callable[..., Server]) -> Server:
    """The shared server of the client's lane."""
    return servers(kind.lane)


@pytest.fixture
def root() -> str:
    """A channel that no other test uses."""
    return f"/interop{next(_numbers)}"


@pytest.fixture
async def open_peer(installed_clients: None) -> AsyncIterator[OpenPeer]:
    """Open clients; all are ended with the test.

    They use the host name, as aiohttp's cookie jar (in aiocometd-ng) ignores the cookies of a numeric address.
    """
    async with contextlib.AsyncExitStack() as running:

        async def start(kind: Kind, port: int | None, **options: Any) -> Peer:
            peer = Peer(kind)
            await peer.start()
            running.push_async_callback(peer.stop)
            await peer.open(f"http://localhost:{port}/cometd", **options)
            return peer

        yield start
