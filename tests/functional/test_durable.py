"""What was answered survives: persistent messages, reliable sessions and their subscriptions, over a restart of the server
and over one that was killed. Each test has a store of its own, beside its server's data directory.

A lane answers requests. What the store keeps, and another process reads, it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import Client, data
from tests.functional.conftest import Serve, one_lane
from tests.functional.people import Person
from tests.functional.wire import until
from tests.server_process import Server

PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}
HOLD = "bayeux.timeout_ms=300"

Restart = Callable[[Server], Server]


@pytest.fixture(params=["terminate", "kill"])
def again(request: pytest.FixtureRequest, serve: Serve) -> Restart:
    """End the server in one of two ways, and start another on the same port and the same store."""

    def restart(server: Server) -> Server:
        getattr(server, request.param)()
        return serve(HOLD, *server.store_sets, port=server.port)

    return restart


class Reliable(Person):
    """A client with the acknowledge extension and nothing else, as the official client has it."""

    def start(self, **fields: Any) -> Reliable:
        self.handshake(ext={"ack": True}, **fields)
        self.take()
        return self


def test_a_persistent_publish_is_answered_with_its_id_and_delivered_with_it(serve: Serve) -> None:
    server = serve(HOLD)
    plain, reliable = Client(server).start(), Reliable(server).start()
    plain.subscribe("/a")
    reliable.subscribe("/a")
    answer = Client(server).start().publish("/a", 1, **PERSISTENT)[-1]
    assert answer["ext"]["publish"]["state"] == "OK"
    assert [(each["data"], each["id"]) for each in reliable.take_all()] == [(1, answer["ext"]["publish"]["id"])]
    assert [(each["data"], each["id"]) for each in plain.connect() if "data" in each] == [
        (1, answer["ext"]["publish"]["id"])
    ]


def test_a_reliable_session_goes_on_after_a_restart(serve: Serve, again: Restart) -> None:
    """Same clientId, same cookie, same subscription; what was not acknowledged comes again, with its id."""
    server = serve(HOLD)
    client, other = Reliable(server).start(), Client(server).start()
    client.subscribe("/a")
    ids = [other.publish("/a", number, **PERSISTENT)[-1]["ext"]["publish"]["id"] for number in range(3)]
    assert data(client.take()) == [0, 1, 2]
    client.server = again(server)
    client.forget_connections()
    assert [(each["data"], each["id"]) for each in client.take_all()] == list(zip([0, 1, 2], ids, strict=True))
    Client(client.server).start().publish("/a", 3, **PERSISTENT)
    assert data(client.take_all()) == [3]


@one_lane
def test_what_was_acknowledged_does_not_come_again(serve: Serve) -> None:
    server = serve(HOLD)
    client, other = Reliable(server).start(), Client(server).start()
    client.subscribe("/a")
    other.publish("/a", "settled", **PERSISTENT)
    assert data(client.take_all()) == ["settled"]
    other.publish("/a", "open", **PERSISTENT)
    server.terminate()
    client.server = serve(HOLD, *server.store_sets, port=server.port)
    client.forget_connections()
    assert data(client.take_all()) == ["open"]


@one_lane
def test_wildcards_and_unsubscribes_survive(serve: Serve, again: Restart) -> None:
    server = serve(HOLD)
    client = Reliable(server).start()
    client.subscribe("/a/*", "/b")
    client.subscribe("/c")
    assert client.send(client.message("/meta/unsubscribe", subscription="/c"))[-1]["successful"]
    client.server = again(server)
    client.forget_connections()
    other = Client(client.server).start()
    for channel in ("/a/1", "/b", "/c", "/a/1/2"):
        other.publish(channel, channel, **PERSISTENT)
    assert data(client.take_all()) == ["/a/1", "/b"]


@one_lane
def test_messages_keep_their_order_over_a_restart(serve: Serve, again: Restart) -> None:
    server = serve(HOLD)
    client, other = Reliable(server).start(), Client(server).start()
    client.subscribe("/a")
    for number in range(250):
        other.publish("/a", number, **PERSISTENT)
    client.server = again(server)
    client.forget_connections()
    other = Client(client.server).start()
    other.publish("/a", 250, **PERSISTENT)
    assert data(client.take_all()) == list(range(251))


@one_lane
def test_a_session_whose_client_is_gone_ends_after_a_restart_too(serve: Serve) -> None:
    soon = (HOLD, "bayeux.max_interval_ms=400", "bayeux.sweep_ms=50", "delivery.restart_grace_ms=300")
    server = serve(HOLD)
    client = Reliable(server).start()
    client.subscribe("/a")
    Client(server).start().publish("/a", 1, **PERSISTENT)
    server.kill()
    server = serve(*soon, *server.store_sets)
    until(lambda: 'crewel_ended_total{reason="lapsed"} 1.0' in read(server, "/metrics"))


@one_lane
def test_a_key_makes_a_publish_idempotent(serve: Serve) -> None:
    server = serve(HOLD)
    client, other = Reliable(server).start(), Client(server).start()
    client.subscribe("/a")
    keyed = {"ext": {"publish": {"persistent": True, "key": "k1"}}}
    ids = {other.publish("/a", number, **keyed)[-1]["ext"]["publish"]["id"] for number in range(3)}
    assert len(ids) == 1
    assert data(client.take_all()) == [0]


@one_lane
def test_without_a_store_persistent_messages_are_refused_and_the_rest_works(serve: Serve) -> None:
    server = serve(HOLD, "storage.enabled=false")
    client = Reliable(server).start()
    client.subscribe("/a")
    other = Client(server).start()
    refused = other.send(other.message("/a", data=1, **PERSISTENT))[-1]
    assert refused["successful"] is False
    assert refused["error"] == "503::resource.unavailable"
    assert refused["ext"]["publish"]["errorCode"] == "resource.unavailable"
    other.publish("/a", 2)
    assert data(client.take_all()) == [2]


@one_lane
def test_the_server_is_ready_while_its_store_is(serve: Serve) -> None:
    assert json.loads(read(serve(HOLD), "/health/ready")) == {"status": "ready"}


def read(server: Server, path: str) -> str:
    with urlopen(server.base + path, timeout=30) as response:
        text: str = response.read().decode()
        return text


def test_the_embedded_store_lies_in_the_data_directory(start_server: StartServer, tmp_path: Path) -> None:
    mine = (HOLD, "storage.url=", f"storage.data_dir={tmp_path / 'mine'}")
    server = start_server(*mine)
    client, other = Reliable(server).start(), Client(server).start()
    client.subscribe("/a")
    other.publish("/a", 1, **PERSISTENT)
    server.kill()
    client.server = start_server(HOLD, *server.store_sets, port=server.port)
    client.forget_connections()
    assert data(client.take_all()) == [1]
