"""What the storage tests share: a real store, and prefixes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage.store import Store
from tests.store_process import OTHER_PROGRAM, StoreProcess, own_prefix, shared_store

StartStore = Callable[..., StoreProcess]
OpenStore = Callable[..., Awaitable[Store]]
LIMIT_S = 30


def settings_for(*sets: str) -> Settings:
    """Return the settings with these `--set` texts of the group `storage`, without reading files as `load` does."""
    given = dict(text.removeprefix("storage.").split("=", 1) for text in sets)
    return Settings(storage=Storage.model_validate({"server_binary": OTHER_PROGRAM} | given))


@asynccontextmanager
async def opened(directory: Path, *sets: str) -> AsyncIterator[Store]:
    """Open a store of its own in `directory`, and close it after."""
    store = Store(settings_for(f"storage.data_dir={directory}", *sets))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that the loop brings about."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0.005)


@pytest.fixture(scope="session")
def server() -> StoreProcess:
    """The store that all tests share."""
    return shared_store()


@pytest.fixture
def start_store(tmp_path: Path) -> Iterator[StartStore]:
    """Start stores of the test's own: `start_store(maxmemory="10mb")`. They end with the test."""
    started: list[StoreProcess] = []

    def start(**options: str) -> StoreProcess:
        directory = tmp_path / f"store{len(started)}"
        directory.mkdir()
        started.append(StoreProcess(directory, **options))
        return started[-1]

    yield start
    for store in started:
        store.close()


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    """Open stores: `await open_store("storage.url=…")`, each under a prefix of its own. They are closed with the test."""
    async with AsyncExitStack() as stack:

        async def opened(*sets: str) -> Store:
            store = Store(settings_for(f"storage.prefix={own_prefix()}", *sets))
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield opened


@pytest.fixture
async def store(server: StoreProcess) -> AsyncIterator[Store]:
    """An open store under a prefix that no other test uses."""
    store = Store(settings_for(f"storage.url={server.url}", f"storage.prefix={own_prefix()}"))
    await store.open()
    yield store
    await store.close()
