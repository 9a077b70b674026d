"""The fixtures `crewel` and `crewel_client`, for a `conftest.py` that says `pytest_plugins = ["crewel.testing.plugin"]`.

It imports nothing of Crewel until a test asks for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from crewel.testing.facades import Server
    from crewel.testing.instance import Instance
    from crewel.testing.test_client import TestClient

_MARK: Final = "crewel(settings=None, services=(), store=False): the server of the fixture `crewel`"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", _MARK)


def mark_options(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """The keywords of the marks of this name; those nearer to the test win."""
    found: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(name))):
        found |= mark.kwargs
    return found


@pytest.fixture
def crewel(request: pytest.FixtureRequest) -> Iterator[Server[Instance]]:
    """A Crewel server for this test: `crewel.url`, `publish`, `state`, `wait_for`, `advance`, `kill`, `restart`.

    `@pytest.mark.crewel(settings={"bayeux.timeout_ms": 1000}, services=[service], store=True)` says what it is like."""
    from crewel.testing.facades import serving_in_thread

    with serving_in_thread(**mark_options(request, "crewel")) as server:
        yield server


@pytest.fixture
def crewel_client(crewel: Server[Instance]) -> Iterator[Callable[..., TestClient]]:
    """Connect a client to the server of the test: `crewel_client(name="client/joe/1") -> TestClient`. All end with the test."""
    from crewel.testing.loop_thread import LoopThread
    from crewel.testing.test_client import TestClient

    with ExitStack() as stack:
        thread = LoopThread(name="crewel client")
        stack.callback(thread.close)

        def connect(**options: Any) -> TestClient:
            return stack.enter_context(TestClient(thread, crewel.url, **options))

        yield connect
