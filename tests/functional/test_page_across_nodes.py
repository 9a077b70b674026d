"""What the operator's page says of receivers, at one of two nodes and at one of two workers, whichever has the session."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.admin.desk import Desk, Receiver
from tests.functional.cluster import TOKEN, pair
from tests.functional.test_nodes import publish
from tests.functional.wire import Address, close_connections, until
from tests.server_process import Server

__all__ = ["pair"]
_numbers = count(1)
LONG = "cluster.lease_ms=600000"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers of one server, with a store of its own."""
    sets = ("cluster.workers=2", LONG, f"admin.token={TOKEN}", "storage.url=")
    started = Server(["--port=0", *(f"--set={each}" for each in sets)], tmp_path_factory.mktemp("workers"))
    yield started
    close_connections()
    started.end_well()


@pytest.fixture(params=["nodes", "workers"])
def servers(request: pytest.FixtureRequest) -> list[Server]:
    """Where clients go, and where operators ask. The connections of one process reach both workers."""
    if request.param == "workers":
        return [request.getfixturevalue("workers")] * 2
    found: list[Server] = request.getfixturevalue("pair")
    return found


def causes(desk: Desk, name: str) -> dict[str, Any]:
    """The causes of this receiver, in the list, by kind."""
    (view,) = (each for each in desk.get(f"/receivers?contains={name}&count=1000")["receivers"] if each["name"] == name)
    return {each["kind"]: each for each in view["causes"]}


def full(server: Address, subject: str, number: int) -> Receiver:
    person = Receiver(server).be(f"{subject}/{number}", queue={"maxEntries": 2})
    person.subscribe(f"/{subject}/{number}")
    return person


def test_each_receiver_has_its_cause_wherever_it_is(servers: list[Server]) -> None:
    subject = f"cause{next(_numbers)}"
    name = f"client/{subject}"
    for number, server in enumerate(servers * 2, 1):
        full(server, subject, number)
    desks = [Desk(server, TOKEN) for server in servers]
    for number in (1, 2):
        publish(servers[0], 1, 2, 3, 4, channel=f"/{subject}/{number}")
    publish(servers[0], 1, channel=f"/{subject}/3")
    stranger = Receiver(servers[0])
    away = Receiver(servers[1])
    assert away.shake(name=f"{subject}/5", update=True)["successful"]
    assert stranger.shake(name=f"{subject}/5", token="nonsense")["successful"] is False
    desks[0].post(f"/sessions/{subject}/4/hold")
    for desk in desks * 2:
        for number in (1, 2):
            until(lambda desk=desk, n=number: causes(desk, f"{name}/{n}").get("full", {}).get("count") == 2)
        until(lambda desk=desk: "refused" in causes(desk, f"{name}/5"))
        assert desk.get(f"/sessions/{subject}/1")["conditions"] == ["full", "connected"]
        found = desk.get(f"/receivers?contains={subject}/&sort=trouble")["receivers"]
        assert [each["name"][-1] for each in found] == ["4", "1", "2", "5", "3"]
        first, after = [], ""
        while not first or after:
            page = desk.get(f"/receivers?contains={subject}/&sort=trouble&count=2&after={after or '99999999999:a'}")
            first += [each["name"][-1] for each in page["receivers"]]
            after = page["next"]
        assert first == ["4", "1", "2", "5", "3"]
        held = desk.get(f"/receivers?contains={subject}/&condition=on%20hold")["receivers"]
        assert [each["name"] for each in held] == [f"{name}/4"]
