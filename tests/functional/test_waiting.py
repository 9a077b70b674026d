"""How stored messages wait for a receiver that is away, on sockets and over restarts: by priority and age, and no longer than
they live."""

from __future__ import annotations

from time import time
from typing import Any

import pytest

from tests.functional.bayeux import Client, data
from tests.functional.conftest import Serve, one_lane
from tests.functional.people import Person
from tests.functional.wire import figures, until
from tests.server_process import Server

SETTINGS = ("bayeux.timeout_ms=300", "bayeux.sweep_ms=50", "delivery.commit_ms=20")
EXPIRED, DEAD = 'crewel_ended_total{reason="expired"}', 'crewel_ended_total{reason="dead"}'

pytestmark = one_lane


class Named(Person):
    """A client that is told where its messages come from."""

    def start(self, name: str) -> Named:
        self.handshake(ext={"ack": True, "session": {"name": name, "update": True}})
        self.take()
        return self


def publish(server: Server, *messages: tuple[Any, dict[str, Any]]) -> None:
    publisher = Client(server).start()
    for value, asked in messages:
        reply = publisher.publish("/a", value, ext={"publish": {"persistent": True, **asked}})[-1]
        assert reply["successful"], reply


def update(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["ext"]["update"] for each in messages]


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_waiting_messages_come_by_priority_and_age_after_a_restart(serve: Serve, end: str) -> None:
    server = serve(*SETTINGS)
    joe = Named(server).start("client/joe/1")
    joe.subscribe("/a")
    publish(server, ("a", {}), ("b", {"priority": "LOW"}), ("c", {"priority": 9}), ("d", {"lifeTime": 3_600_000}))
    getattr(server, end)()
    joe.server = serve(*SETTINGS, *server.store_sets, port=server.port)
    joe.forget_connections()
    publish(joe.server, ("e", {"priority": "MAX"}), ("f", {"priority": "HIGH"}))
    messages = joe.take_all()
    assert data(messages) == ["c", "e", "f", "a", "d", "b"]
    assert [each.get("priority") for each in update(messages)] == [9, 9, 7, None, None, 3]
    told = update(messages)[4]
    left = int(told["rcvTimestamp"]) / 1e6 + told["lifeTime"] - time() * 1000
    assert left - 1000 < told["remainingLife"] <= told["lifeTime"]


@pytest.mark.parametrize("end", ["terminate", "kill", None])
def test_waiting_messages_go_when_their_life_has_ended_though_no_client_comes(serve: Serve, end: str | None) -> None:
    server = serve(*SETTINGS)
    joe = Named(server).start("client/joe/1")
    joe.subscribe("/a")
    mortal = {"lifeTime": 500, "forceDestroy": True}
    publish(server, ("mortal", mortal), ("old", {"lifeTime": 500}), ("any", {}))
    if end is not None:
        getattr(server, end)()
        server = joe.server = serve(*SETTINGS, *server.store_sets, port=server.port)
        joe.forget_connections()
    until(lambda: figures(server).get(EXPIRED) == 1)
    messages = joe.take_all()
    assert data(messages) == ["old", "any"]
    assert update(messages)[0]["remainingLife"] == 0
    assert figures(server).get(DEAD, 0) == 0
