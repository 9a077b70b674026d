"""Settings that change while the server runs count from then on: what copies them for its speed takes the new ones."""

from __future__ import annotations

import pytest

from crewel.broker.mailboxes.session_times import SessionTimes
from crewel.settings import Settings
from tests.admin.desk import SETS, Desk
from tests.broker.stored_world import StoredWorld
from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.wire import Connection, until
from tests.server_process import Server

pytestmark = pytest.mark.server


@pytest.mark.unit
def test_a_longer_absence_is_allowed_after_the_next_sweep() -> None:
    settings = Settings()
    times = SessionTimes(settings)
    settings.bayeux.interval_ms, settings.bayeux.max_interval_ms = 20_000, 120_000
    times.renew()
    assert times.usual_rest == 140


def test_a_client_may_be_away_for_longer(start_server: StartServer) -> None:
    server = start_server(*SETS, "bayeux.max_interval_ms=300", "bayeux.sweep_ms=50")
    assert Desk(server).ask("PATCH", "/settings", {"bayeux.max_interval_ms": 60_000}).status == 200
    until(lambda: outlives(server, 0.6))


def outlives(server: Server, seconds: float) -> bool:
    """Whether a session lives on after so long a pause."""
    client = Client(server)
    client.handshake()
    client.connect()
    client.command.has_input(within=seconds)
    return bool(client.connect(advice={"timeout": 0})[-1]["successful"])


def test_a_body_must_come_within_the_new_time(start_server: StartServer) -> None:
    server = start_server(*SETS)
    assert Desk(server).ask("PATCH", "/settings", {"http.body_timeout_ms": 200}).status == 200
    until(lambda: is_cut_off(server, 2))


def is_cut_off(server: Server, seconds: float) -> bool:
    """Whether a request without its body is refused within so many seconds."""
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"", [("Content-Length", "9")])
        return connection.has_input(within=seconds) and connection.response().status == 408


@pytest.mark.store
def test_more_facts_are_kept() -> None:
    world = StoredWorld("storage.facts_max_entries=100")
    try:
        world.broker.settings.storage.facts_max_entries = 100_000
        assert world.access.facts_max == 100_000
    finally:
        world.close()
