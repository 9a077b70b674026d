"""What the fault tests share: how much of them runs, and the report that a full run writes.

`make test` runs a few shots with fixed seeds. `make faults` sets FAULTS=full and runs the full counts; its report is
RESULTS.md beside this file.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.faults import report
from tests.faults.load import Load
from tests.functional.wire import close_connections
from tests.patience import patience
from tests.store_process import StoreProcess

IS_FULL = os.environ.get("FAULTS") == "full"

Tell = Callable[[str], None]


def volume(full: int, short: int) -> int:
    """How many messages or frames a test sends: in a full run FAULT_VOLUME per cent of the full count, else few."""
    return full * int(os.environ.get("FAULT_VOLUME", "100")) // 100 if IS_FULL else short


def pytest_configure(config: pytest.Config) -> None:
    """Write the report also of one directory or file, which was not started by `make faults`."""
    if not config.pluginmanager.is_registered(report):
        config.pluginmanager.register(report)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a full run has."""
    left_out = [] if IS_FULL else [each for each in items if each.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if each not in left_out]


@pytest.fixture
def start_server(start_server: StartServer) -> Iterator[StartServer]:
    """As everywhere. In a short run, connections end before the servers, which wait for the close of each WebSocket."""
    yield start_server
    if not IS_FULL:
        close_connections()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Say in one line what a test did and found out, for the report."""

    def say(text: str) -> None:
        request.node.user_properties.append((report.DID, text))  # it comes with the report, also from another process
        print(text)

    return say


@pytest.fixture
async def load(request: pytest.FixtureRequest) -> AsyncIterator[Load]:
    """The clients of one run. Its random numbers are those of the parameter `seed`, if the test has it."""
    seed = getattr(request.node, "callspec", None)
    load = Load(random.Random(seed.params.get("seed", 0) if seed else 0))
    yield load
    async with asyncio.timeout(30 * patience()):
        await load.stop()


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store of our own."""
    store = StoreProcess(tmp_path)
    yield store
    store.close()
