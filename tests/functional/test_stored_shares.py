"""One account fills the store: its publishes are refused before those of others, also when its client has left and the server
has been restarted, and operators see who has how much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import crewel
from tests.functional.bayeux import Client, Message
from tests.functional.cluster import OPERATED, TOKEN
from tests.functional.test_sign_outs import asked
from tests.functional.wire import Connection, until
from tests.server_process import Server

pytestmark = pytest.mark.server

MEMORY = 48 << 20
FLOOD, OTHER = "203.0.113.7", "198.51.100.1"
REFUSED = "429:limits.max_stored_ratio:resource.exhaust"
SETS = (
    OPERATED,
    "http.trusted_proxies=127.0.0.1",
    "storage.url=",
    "storage.prefix=crewel:",  # also of the server that comes after
    "storage.fsync=everysec",
    f"storage.max_memory_bytes={MEMORY}",
    "bayeux.max_message_bytes=1000000",
    "bayeux.max_interval_ms=600000",
)
_numbers = count()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """The server that runs is the last one."""
    running = [started(tmp_path)]
    yield running
    running[-1].end_well()


def started(directory: Path) -> Server:
    return Server(["--port=0", *(f"--set={each}" for each in SETS)], directory)


def client_at(server: Server, address: str) -> Client:
    client = Client(server, headers={"X-Forwarded-For": address})
    client.handshake()
    return client


def stores(client: Client, kibibytes: int = 100, **publish: Any) -> Message:
    """The reply to a message that is stored: unless something else is asked for, for a subject that is absent."""
    number = next(_numbers)
    to = {"to": f"client/absent{number}", "forceQueuing": True}
    qos = publish or {"persistent": True, "subscribable": False, "destination": [to]}
    message = client.message(f"/flood/{number}", data="x" * (kibibytes << 10), ext={"publish": qos})
    (reply,) = client.send(message)
    return reply


def store_of(server: Server) -> dict[str, Any]:
    response = asked(Connection(server), "GET", "/overview", Authorization=f"Bearer {TOKEN}")
    found: dict[str, Any] = response.json()["store"]
    return found


def fill(flood: Client) -> Message:
    """Store until it is refused; the refusal."""
    for _ in range(600):
        reply = stores(flood)
        if not reply["successful"]:
            return reply
    raise AssertionError("never refused")


def test_who_fills_the_store_is_refused_and_others_are_not(servers: list[Server], tmp_path: Path) -> None:
    (server,) = servers
    flood, other = client_at(server, FLOOD), client_at(server, OTHER)
    refusal = fill(flood)
    assert refusal["error"] == REFUSED
    told = refusal["ext"]["publish"]
    assert told["errorCode"] == "resource.exhaust"
    assert f"address {FLOOD} has" in told["message"]
    assert told["retryAfter"] > 0
    history = {"history": {"maxEntries": 100}}
    for qos in ({}, history, {"persistent": True}):
        assert stores(other, 10, **qos)["successful"], qos
        assert stores(flood, **qos)["error"] == REFUSED, qos

    flood.send(flood.message("/meta/disconnect"))
    assert stores(client_at(server, FLOOD))["error"] == REFUSED
    assert stores(other, 10)["successful"]

    def is_counted() -> bool:
        shown = store_of(server)
        held = {each["account"]: each for each in shown["messagesHeld"]}.get(f"address {FLOOD}")
        if held is None or held["bytes"] + (100 << 10) < shown["accountMaxBytes"]:
            return False
        assert held["messages"] * (100 << 10) < held["bytes"] < MEMORY
        return True

    until(is_counted)

    server.end_well()
    servers.append(started(tmp_path))
    again = servers[-1]
    until(lambda: store_of(again)["messagesHeld"] != [])
    assert fill(client_at(again, FLOOD))["error"] == REFUSED
    assert stores(client_at(again, OTHER), 10)["successful"]
    doctor = crewel("doctor", "--json", f"--set=storage.data_dir={tmp_path / 'data'}", directory=tmp_path)
    assert f"address {FLOOD}" in doctor.out
