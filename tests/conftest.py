"""What all tests share: servers in processes of their own, and a watch on blocking calls.

The pure tests share it too and have to be quick: what they need not is imported where it is used.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from blockbuster import BlockBuster

from tests import levels

if TYPE_CHECKING:
    from tests.server_process import Server

StartServer = Callable[..., "Server"]
TESTS = Path(__file__).parent
pytest_plugins = ["tests.tries", "crewel.testing.plugin", "crewel.mock.plugin"]

# No deadline, and none for making an example: the machine may be busy with other things. Each run meets new examples.
hypothesis.settings.register_profile(
    "crewel",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
    max_examples=1000 if os.environ.get("FAULTS") == "full" else 10,
)
hypothesis.settings.load_profile("crewel")

_blocking_calls = BlockBuster("crewel")
# The synchronous client waits for its own loop; tests/client/over_sync.py lets it do so in the loop of a test.
_blocking_calls.functions["threading.Lock.acquire"].can_block_in("client/sync/background.py", {"call"})
gc.set_threshold(20_000)  # what is collected here are tests, which stay


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read the directories of other levels than the one that was asked for."""
    is_directory = collection_path.parent == TESTS and collection_path.is_dir()
    return True if is_directory and levels.is_left_out(collection_path.name, config.option.markexpr) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its level; and count no branch as covered that an example drawn at random has met.

    The next run may draw other examples.
    """
    for item in items:
        item.add_marker(levels.level(item))
        if hypothesis.is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker("uncounted")


def pytest_collection_finish() -> None:
    """Never look for garbage in the tests and what they have imported."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Look there at the end: DuckDB reports what is left of its own as leaked."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _end_shared_processes() -> Iterator[None]:
    """End what the servers of all tests share, after the last of them: their store, and the process that forks them."""
    yield
    if module := sys.modules.get("tests.template"):
        module.end_template()
    if module := sys.modules.get("tests.store_process"):
        module.end_shared_store()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hold a test that needs nothing, and the fixtures that are made for it, to that.

    Start the shared store before any other test, in this thread: the store ends with the thread that started it.
    """
    needs_nothing = levels.needs_nothing(item)
    if not needs_nothing:
        from tests.store_process import shared_store

        shared_store()
    with levels.alone(item.nodeid) if needs_nothing else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Fail the test in which a server of several tests logs a traceback. At the end of them all, only the last one would fail,
    and pass when it runs again."""
    result = yield
    if module := sys.modules.get("tests.server_process"):
        module.check_running()
    return result


@pytest.fixture(autouse=True, scope="session")
def _no_blocking_calls() -> Iterator[None]:
    """Fail a test in which code of Crewel blocks the event loop. Not for each test: it changes sixty functions."""
    _blocking_calls.activate()
    yield
    _blocking_calls.deactivate()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers: `start_server("bayeux.timeout_ms=1000", service="package.module", port=0) -> Server`.

    Each positional text is a `--set`; `service` is one module or several, `arguments` and `environ` are more for the
    command. Each runs in the test's empty directory, may import what the tests can, and is ended with the test. Each has
    a prefix of its own in the store that all share; `start_server(*other.store_sets)` has that of another. One that
    logged a traceback, or did not exit with 0 after SIGTERM, fails the test.
    """
    from tests.server_process import Server

    servers: list[Server] = []

    def start(
        *sets: str,
        service: str | Sequence[str] = (),
        port: int = 0,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Server:
        modules = [service] if isinstance(service, str) else service
        options = [f"--port={port}", *(f"--service={name}" for name in modules), *(f"--set={text}" for text in sets)]
        server = Server([*options, *arguments], tmp_path, environ)
        servers.append(server)
        return server

    yield start
    complaints = [complaint for server in servers if (complaint := _end(server))]
    assert not complaints, "\n".join(complaints)


def _end(server: Server) -> str:
    """End a server; return what is wrong about how it ran, or nothing."""
    ended_by_test = server.ended_by_test
    status = server.close()
    if "Traceback" in server.stderr:
        return f"the server logged a traceback:\n{server.stderr}"
    if status != 0 and not ended_by_test:
        return f"the server exited with {status}:\n{server.stderr}"
    return ""
