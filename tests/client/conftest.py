"""Servers and transports for the client's tests."""

from collections.abc import Iterator

import pytest

from tests.admin.desk import TOKEN
from tests.client import over_sync
from tests.client.support import SERVICE
from tests.server_process import Server, serving

TRANSPORTS = ("websocket", "long-polling")
THREADS = {
    "tests.client.test_live": "websocket",
    "tests.client.test_consume": "websocket",
    "tests.client.test_settle_live": "long-polling",
    "tests.client.test_requests_live": "long-polling",
    "tests.client.test_unclaimed_live": "long-polling",
}
"""The modules whose tests run with the synchronous client too, and the transport that it has there: it is the same client in a
thread, so that it need not meet each test over each transport."""
ONE_STYLE = {
    # These reach into the asynchronous client.
    "test_a_worker_that_is_cancelled_twice_closes_its_connections",
    "test_a_client_forgets_the_workers_that_were_closed",
    "test_a_client_forgets_the_workers_that_could_not_log_in",
    "test_a_session_of_a_worker_has_what_its_client_has_but_its_identity",
    "test_a_copy_that_comes_while_the_worker_has_the_message_ends_with_it",
    "test_what_leaves_the_block_of_a_message_leaves_run",
    "test_a_batch_that_is_cancelled_loses_nothing",
    # The message has to be acknowledged before the client is connected to the second server, or it comes once more.
    "test_a_worker_survives_its_server",
    # Threads that call at the same time have no order among each other.
    "test_publishes_that_wait_together_keep_the_order_of_their_calls",
    # The subscribe has to be in the turn of the loop in which the client is entered.
    "test_a_client_that_was_away_learns_that_its_subscription_has_ended",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a module that leave it as it was; its connects are held for half a second."""
    sets = ("bayeux.timeout_ms=500", "bayeux.sweep_ms=100", f"admin.token={TOKEN}")
    with serving(tmp_path_factory.mktemp("server"), *sets, service=SERVICE) as server:
        yield server


@pytest.fixture(autouse=True)
def client_style(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the modules that `pytest_generate_tests` names, the tests run with the synchronous client too."""
    if getattr(request, "param", "coroutines") == "threads":
        monkeypatch.setattr(request.module, "Client", over_sync.Client)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each transport in turn where a test asks for one, and both clients where it knows no more of a client than its
    interface."""
    module = metafunc.module.__name__
    has_threads = module in THREADS and metafunc.function.__name__ not in ONE_STYLE
    if "transport" in metafunc.fixturenames:
        cases = [(each, "coroutines") for each in TRANSPORTS]
        cases += [(THREADS[module], "threads")] if has_threads else []
        metafunc.parametrize(("transport", "client_style"), cases, indirect=["client_style"])
    elif has_threads:
        metafunc.parametrize("client_style", ["coroutines", "threads"], indirect=True)
