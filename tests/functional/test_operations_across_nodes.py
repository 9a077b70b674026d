"""Every resource and command that reads, asked at two nodes while every feature is in use at both: no node fails, and where
both speak of the same, they say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from crewel.admin.command import Access
from crewel.admin.commands import COMMANDS
from crewel.admin.group_resource import GROUP
from crewel.admin.operation import Level
from crewel.admin.rest import ROUTES
from tests.admin.desk import Desk, Receiver
from tests.functional.cluster import LONG, NODE, OPERATED, PATIENT, TOKEN
from tests.functional.people import Person
from tests.functional.post import comes
from tests.functional.wire import close_connections, until
from tests.server_process import Server

CHANNEL = "/busy/one"
STORED = {"persistent": True}
RULE = 'topics={"/numbered/*":{"replay":true,"history":{"max_entries":9}}}'


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Desk], dict[str, str]]]:
    """Two nodes with something of everything; what fills the variables of paths."""
    directory = tmp_path_factory.mktemp("busy")
    common = [f"--set={text}" for text in (NODE, LONG, OPERATED, PATIENT, RULE)]
    first = Server(["--port=0", *common, "--set=node.name=a"], directory)
    same = [f"--set={text}" for text in first.store_sets]
    second = Server(["--port=0", *same, *common, "--set=node.name=b"], directory)
    servers = [first, second]
    desks = [Desk(server, TOKEN) for server in servers]
    yield desks, fill(servers, desks)
    close_connections()
    first.end_well()  # which fails for a traceback in the log
    second.end_well()


def fill(servers: list[Server], desks: list[Desk]) -> dict[str, str]:
    filters = {"filter": "data.n > `0`"}
    for number, server in enumerate(servers, 1):
        receiver = Receiver(server).be(f"client/busy/{number}", burst={"maxEntries": 1})
        for pattern, asked in (("/busy/*", {"group": "g"}), ("/busy/**", filters), (CHANNEL, {}), ("/numbered/a", {})):
            (reply,) = receiver.send(
                receiver.message("/meta/subscribe", subscription=pattern, ext={"subscribe": asked})
            )
            assert reply["successful"], reply
        Person(server).be(f"client/held/{number}").subscribe(CHANNEL)
        desks[0].post(f"/sessions/held/{number}/hold", {"reason": "to look", "code": "user.look"})
    speaker = Receiver(servers[0]).be("client/speaker/1", token=TOKEN)
    qos = {**STORED, "history": {"maxEntries": 3}, "clientProperties": {"order": 7}}
    messages = [speaker.publish(CHANNEL, {"n": n}, ext={"publish": qos}) for n in range(1, 6)]
    speaker.publish("/numbered/a", {"event": {}}, ext={"publish": STORED})
    speaker.publish("/busy/once", {"n": 1}, ext={"publish": {"readonly": True, **STORED}})
    for to in ("client/absent", "client/busy", "client/busy/2"):
        destination = {"destination": [{"to": to, "forceQueuing": True}]}
        speaker.publish("/service/post", {"n": 1}, ext={"publish": {**STORED, **destination}})
    dying = Receiver(servers[1]).be("client/dying/1")
    dying.subscribe("/dying")
    speaker.publish("/dying", {"n": 1}, ext={"publish": STORED})
    dying.reject(comes(dying), "user.update.deadMessage")
    (letter,) = until(lambda: desks[0].letters("receiver=client/dying/1"))
    speaker.publish("/dying", {"n": 2}, ext={"publish": STORED})
    dying.reject(comes(dying), "user.update.deadMessage")
    _, binned = until(lambda: found if len(found := desks[0].letters("receiver=client/dying/1")) == 2 else None)
    desks[1].post("/dead-letters/discard", {"ids": [binned["id"]]})
    Person(servers[0]).be("client/blocked/1")
    desks[1].post("/subjects/blocked/block")
    later = speaker.publish("/busy/later", {"n": 1}, ext={"publish": {**STORED, "deliverAfter": 3_600_000}})
    job = desks[0].post("/jobs", {"what": "redrive", "all": True, "channel": "/dying", "contains": "not there"})["id"]
    until(lambda: all(desk.get(f"/topics{CHANNEL}")["queued"] > 0 for desk in desks))
    return {
        "subject": "busy", "number": "2", "channel": CHANNEL[1:], "id": letter["id"], "job": job,
        "message": messages[-1][-1]["ext"]["publish"]["id"], "binned": binned["id"],
        "scheduled": later[-1]["ext"]["publish"]["id"],
    }  # fmt: skip


PLAIN = [route for route in ROUTES if route.method == "GET" and route.media_type == "application/json"]
SAME = {
    "/commands",
    "/receivers",
    "/subjects",
    "/subjects/{subject}",
    "/subjects/{subject}/messages",
    "/sessions/{subject}/{number}/messages",
    "/topics",
    "/topics/{channel}",
    "/history/{channel}",
    "/dead-letters/count",
    "/dead-letters/groups",
    "/jobs",
    "/jobs/{job}",
    "/scheduled-messages",
    "/scheduled-messages/{scheduled}",
    "/presence",
    "/presence/{channel}",
    "/messages/{message}",
    "/messages",
}
"""What says the same at both nodes. The others tell of moments, or of the node that is asked."""
OF_GROUP = {GROUP: {"channel": "busy/*"}}
"""The path of a group has its pattern."""


@pytest.mark.parametrize("route", PLAIN, ids=lambda route: route.path)
def test_every_resource_is_answered_by_all_nodes(busy: tuple[list[Desk], dict[str, str]], route: Any) -> None:
    desks, names = busy
    path = route.path.replace("bin/{id}", "bin/{binned}").format(**(names | OF_GROUP.get(route.path, {})))
    path += {"/messages": "?contains=5", "/dead-letters/groups": "?by=code", GROUP: "?name=g"}.get(route.path, "")
    told = [desk.ask("GET", path) for desk in desks]
    assert [each.status for each in told] == [200, 200], [each.body for each in told]
    for each in told:
        body = each.json()
        assert (body.get("unreached", 0), body.get("failed", 0)) == (0, 0)
    if route.path in SAME:
        first, second = (without_moments(each.json()) for each in told)
        assert first == second


@pytest.mark.parametrize("at", [0, 1])
def test_a_trace_is_shown_at_the_node_of_the_session_only(busy: tuple[list[Desk], dict[str, str]], at: int) -> None:
    desks, _ = busy
    path = f"/sessions/busy/{at + 1}/trace?seconds=1"
    assert desks[at].ask("GET", path).status == 200
    response = desks[1 - at].ask("GET", path)
    assert response.status == 400
    assert f"is at the node {'ab'[at]}: ask that one" in response.json()["message"]


MOMENTS = {"age", "oldestMs", "diesIn", "expires", "loggedIn", "ends", "remainingLife"}


def without_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_moments(each) for name, each in value.items() if name not in MOMENTS}
    return [without_moments(each) for each in value] if isinstance(value, list) else value


PATHS = {
    Level.NODE: "",
    Level.SUBJECT: "client/busy/",
    Level.SESSION: "client/busy/2/",
    Level.TOPIC: f"topic{CHANNEL}/",
}
READ = [command for command in COMMANDS if command.access is not Access.OPERATE]


@pytest.mark.parametrize("command", READ, ids=lambda command: f"{command.level.name} {command.name}")
def test_every_command_that_reads_is_answered_by_all_nodes(
    busy: tuple[list[Desk], dict[str, str]], command: Any
) -> None:
    desks, _ = busy
    for desk in desks:
        desk.cmd(quote(f"__cmd:{PATHS[command.level]}?{command.name}", safe=":/?_"))


@pytest.mark.parametrize("at", [0, 1])
def test_what_waits_for_a_subject_or_a_group_is_seen_at_each_node(
    busy: tuple[list[Desk], dict[str, str]], at: int
) -> None:
    """One node takes it, and the only member of the group is at the other one."""
    desks, _ = busy
    channel, name = f"/alone/{at}", f"client/alone{at}"
    member = Receiver(desks[at].server).be(f"{name}/1", burst={"maxEntries": 1})  # type: ignore[arg-type]
    member.send(member.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"group": "g"}}))
    speaker = Receiver(desks[1 - at].server).be()  # type: ignore[arg-type]
    destination = {"destination": [{"to": f"{name}absent", "forceQueuing": True}], "subscribable": False}
    for qos in (*({} for _ in range(5)), destination):
        speaker.publish(channel, 1, ext={"publish": {**STORED, **qos}})
    for desk in (*desks, *desks):
        until(lambda desk=desk: desk.get(f"/topics{channel}")["queued"] == 6)
    shown = [desk.get(f"/topics{channel}") for desk in desks]
    assert (shown[0]["state"], shown[0]["groups"][0]["members"]) == ("ALIVE", [f"{name}/1"])
    assert [desk.cmd(f"__cmd:topic{channel}/?numOfQueuedEntries") for desk in desks] == [6, 6]
