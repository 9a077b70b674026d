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
    sets = ("cluster.workers=2", LONG, f"admin.token={TOKEN}", "storage.url=", "node.name=heron")
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


def joins(person: Receiver, pattern: str) -> None:
    reply = person.send(person.message("/meta/subscribe", subscription=pattern, ext={"subscribe": {"group": "g"}}))[-1]
    assert reply["successful"] is True, reply


def test_a_group_stands_the_same_at_each_node(servers: list[Server]) -> None:
    subject = f"group{next(_numbers)}"
    person = Receiver(servers[1]).be(f"{subject}/1")
    joins(person, f"/{subject}/*")
    desks = [Desk(server, TOKEN) for server in servers]
    for desk in desks * 3:
        (group,) = desk.get(f"/receivers?contains={subject}&kind=group&sort=trouble")["receivers"]
        assert (group["conditions"], group["members"], group["causes"]) == (["connected"], 1, [])
        assert desk.get(f"/receivers?contains={subject}&kind=group&condition=without%20a%20member")["receivers"] == []
    desks[0].post(f"/sessions/{subject}/1/hold")
    publish(servers[0], 1, 2, channel=f"/{subject}/a")
    for desk in desks * 3:
        (group,) = until(
            lambda desk=desk: [
                each
                for each in desk.get(f"/receivers?contains={subject}&kind=group&condition=away")["receivers"]
                if each["waiting"] == 2
            ]
        )
        assert (group["cause"], group["causes"][0]["level"]) == ("all its members are away or on hold", "bad")
        names = [each["name"] for each in desk.get(f"/receivers?contains={subject}&sort=trouble")["receivers"]]
        assert names == [f"/{subject}/* g", f"client/{subject}/1"]


def test_prefixes_have_the_topics_of_all_nodes(servers: list[Server]) -> None:
    subject = f"tree{next(_numbers)}"
    people = [Receiver(server).be(f"{subject}/{number}") for number, server in enumerate(servers * 2)]
    for number, person in enumerate(people):
        for channel in ("same", f"own{number}", f"own{number}/deeper"):
            person.subscribe(f"/{subject}/{channel}")
    wanted = [(f"/{subject}/own{number}", 2, 1) for number in range(4)] + [(f"/{subject}/same", 1, 0)]
    for desk in [Desk(server, TOKEN) for server in servers] * 2:
        told = desk.get(f"/prefixes?below=/{subject}")
        assert [(each["prefix"], each["topics"], each["deeper"]) for each in told["prefixes"]] == wanted
        found, after = [], ""
        while not found or after:
            page = desk.get(f"/prefixes?below=/{subject}&count=2&after={after or '!'}")
            found += [each["prefix"] for each in page["prefixes"]]
            after = page["next"]
        assert found == [prefix for prefix, *_ in wanted]
        (top,) = [each for each in desk.get("/prefixes?count=1000")["prefixes"] if each["prefix"] == f"/{subject}"]
        assert (top["topics"], top["deeper"]) == (9, 9)


def test_one_finding_has_the_receivers_of_all_nodes(servers: list[Server]) -> None:
    subject = f"card{next(_numbers)}"
    desks = [Desk(server, TOKEN) for server in servers]
    for number, server in enumerate(servers * 2, 1):
        full(server, subject, number)
        desks[0].post(f"/sessions/{subject}/{number}/hold", {"reason": "lunch"})
    for desk in desks * 2:
        told = until(lambda desk=desk: overview(desk, held_of(desk)))
        (held,) = (each for each in told["findings"] if each["key"] == "held")
        assert held["count"] == told["sessions"]["conditions"]["on hold"] >= 4
        assert held["since"] > 1_700_000_000_000
        assert len(held["nodes"]) in (1, 2)
        assert "figures" not in told
        # Tiles, legends and lists have the same figures.
        conditions, sessions = told["sessions"]["conditions"], told["sessions"]
        assert conditions["connected"] + conditions.get("away", 0) == sum(sessions["states"].values())
        assert sum(sessions["states"].values()) == sessions["count"] - sessions["pages"]


def held_of(desk: Desk) -> int:
    return len(desk.get("/receivers?condition=on%20hold&count=1000")["receivers"])


def overview(desk: Desk, held: int) -> Any:
    """The overview, if it counts so many receivers on hold: a node keeps its count for some seconds."""
    told = desk.get("/overview")
    return told if told["sessions"]["held"] == held else None


def test_the_timeline_has_the_starts_of_all_servers(servers: list[Server]) -> None:
    for server in servers:
        told = Desk(server, TOKEN).get("/timeline")
        assert (told["whole"], told["unreached"]) == (True, 0)
        starts = [each for each in told["events"] if each["what"] == "started"]
        assert {name for each in starts for name in each["nodes"]} == (
            {"a", "b"} if servers[0] is not servers[1] else {f"heron-{number}" for number in (1, 2)}
        )
