"""Starts other people's clients for the tests, and refuses to pretend when they are not installed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from .peers import HERE, Kind, Peer

StartPeer = Callable[[Kind], Awaitable[Peer]]


@pytest.fixture(scope="session")
def installed_clients() -> None:
    """Fails, rather than skips, where the clients are missing: a matrix that did not run must not look green."""
    if shutil.which("node") is None:
        pytest.fail("the interop tests need Node.js 18 or newer: `node` was not found", pytrace=False)
    if not (HERE / "node_modules" / "cometd").is_dir():
        pytest.fail(
            "the npm packages of tests/interop are missing: `make test` installs them (npm ci --prefix tests/interop)",
            pytrace=False,
        )


@pytest.fixture
async def start_peer(installed_clients: None) -> AsyncIterator[StartPeer]:
    """Starts a client of a kind in a process of its own; all are ended with the test."""
    async with contextlib.AsyncExitStack() as running:

        async def start(kind: Kind) -> Peer:
            peer = Peer(kind)
            await peer.start()
            running.push_async_callback(peer.stop)
            return peer

        yield start
