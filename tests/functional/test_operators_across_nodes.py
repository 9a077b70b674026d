"""Operators see the sessions of all nodes at any node, and what they do reaches the one that has the session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from crewel.storage.keys import Keys
from tests.admin.company import neutral
from tests.admin.desk import Desk, Receiver
from tests.cli.command import Running, crewel
from tests.conftest import StartServer
from tests.functional.cluster import LONG, NODE, OPERATED, TOKEN
from tests.functional.people import Person
from tests.functional.post import Keeper, comes
from tests.functional.test_names_across_nodes import Forgetful
from tests.functional.test_nodes import publish, values, wait_for
from tests.functional.wire import close_connections, until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server
from tests.store_process import shared_store

APART_MS = 200
"""So much later something is later by the clocks of both nodes."""
_numbers = count(1)


@pytest.fixture
def desks(pair: list[Server]) -> list[Desk]:
    return [Desk(server, TOKEN) for server in pair]


def people(pair: list[Server]) -> tuple[str, list[Person]]:
    """Three sessions of a subject that no other test has, at both nodes; the subject."""
    subject = f"oper{next(_numbers)}"
    kinds = ((Person, 0), (Person, 1), (Forgetful, 1))
    return subject, [kind(pair[at]).be(f"client/{subject}/{number}") for number, (kind, at) in enumerate(kinds, 1)]


def test_lists_have_the_sessions_of_all_nodes(pair: list[Server], desks: list[Desk], tmp_path: Path) -> None:
    subject, _ = people(pair)
    names = [f"client/{subject}/{number}" for number in (1, 2, 3)]
    for desk in desks:
        listed = desk.get(f"/sessions?subject={subject}")
        assert [(each["name"], each["node"]) for each in listed["sessions"]] == list(zip(names, "abb", strict=True))
        assert (listed["next"], listed["unreached"]) == ("", 0)
        found, after = [], ""
        while not found or after:
            page = desk.get(f"/sessions?subject={subject}&count=1&sort=waiting&after={after or '9999999:a'}")
            found += [each["name"] for each in page["sessions"]]
            after = page["next"]
        assert found == names
        (one,) = (each for each in desk.get("/subjects?count=1000")["subjects"] if each["subject"] == subject)
        assert one["sessions"] == names
        assert desk.get(f"/subjects/{subject}")["sessions"] == names
        options = ("--url", desk.server.base, "--subject", subject)  # type: ignore[union-attr]
        ended = crewel("sessions", "list", *options, directory=tmp_path, environ={"CREWEL_TOKEN": TOKEN})
        assert ended.status == 0, ended.err
        assert [json.loads(line)["node"] for line in ended.out.splitlines()] == list("abb")


def test_an_operation_reaches_the_node_of_the_session(pair: list[Server], desks: list[Desk]) -> None:
    subject, (here, there, plain) = people(pair)
    channel = f"/{subject}"
    there.subscribe(channel)
    held = desks[0].post(f"/sessions/{subject}/2/hold", {"reason": "to look"})
    assert (held["node"], held["active"], held["holdback"]["reason"]) == ("b", False, "to look")
    publish(pair[0], 7, channel=channel)
    assert there.take() == []
    until_waiting(desks[0], f"/sessions/{subject}/2", 1)
    messages = desks[0].get(f"/sessions/{subject}/2/messages")["messages"]
    assert [each["data"] for each in messages] == [7]
    assert desks[0].cmd(f"__cmd:client/{subject}/2/?dispatcherActive") is False
    assert desks[0].cmd(f"__cmd:client/{subject}/2/?dispatcherActive=true") == "OK"
    assert values(wait_for(there, 1)) == [7]
    assert desks[1].get(f"/sessions/{subject}/1")["node"] == "a"
    assert desks[0].post(f"/sessions/{subject}/3/kill")["name"] == f"client/{subject}/3"
    assert plain.connect()[-1]["error"].startswith("402")
    assert here.take() == []


@pytest.mark.parametrize("by", ["sessions", "subject"])
def test_a_job_drains_the_sessions_of_all_nodes(pair: list[Server], desks: list[Desk], by: str) -> None:
    subject, (here, there, _) = people(pair)
    names = [f"client/{subject}/{number}" for number in (1, 2)]
    for number, each in enumerate((here, there), 1):
        each.subscribe(f"/{subject}")
        desks[0].post(f"/sessions/{subject}/{number}/hold")
    publish(pair[0], 7, channel=f"/{subject}")
    for number in (1, 2):
        until_waiting(desks[0], f"/sessions/{subject}/{number}", 1)
    asked = {"sessions": [*names, f"client/{subject}/9"]} if by == "sessions" else {"subject": subject}
    job = desks[0].post("/jobs", {"what": "drain", **asked})
    ended = until(lambda: told if (told := desks[0].get(f"/jobs/{job['id']}"))["ended"] is not None else None)
    assert (ended["state"], ended["total"], ended["done"]) == ("done", 2, 2)
    assert [each["id"] for each in ended["errors"]] == ([f"client/{subject}/9"] if by == "sessions" else [])
    for number in (1, 2):
        assert desks[0].get(f"/sessions/{subject}/{number}")["waiting"] == 0


def test_a_session_that_is_being_taken_over_is_not_taken_for_one_that_is_not_there(
    pair: list[Server], desks: list[Desk]
) -> None:
    """By what the store says, a node has it that is dead."""
    name = f"client/oper{next(_numbers)}/1"
    key = Keys(pair[0].store_sets[1].partition("=")[2]).session(name)
    asked = {"what": "drain", "sessions": [name]}
    with shared_store().client() as client:
        client.hset(key, "owner", "dead")
        refused: Any = desks[0].ask("POST", "/jobs", asked)
        assert refused.status == 503
        client.delete(key)
    job = desks[0].post("/jobs", asked)
    ended = until(lambda: told if (told := desks[0].get(f"/jobs/{job['id']}"))["ended"] is not None else None)
    assert (ended["state"], ended["undone"]) == ("done", 1)


@pytest.mark.parametrize("at", ["a", "b"])
def test_what_is_done_to_a_subject_says_that_a_node_takes_over_some_of_its_sessions(
    pair: list[Server], desks: list[Desk], at: str
) -> None:
    subject, persons = people(pair)
    k, left = Keys(pair[0].store_sets[1].partition("=")[2]), f"client/{subject}/9"
    desk = desks["ab".index(at)]
    with shared_store().client() as client:
        client.hset(k.session(left), "owner", "dead")
        client.sadd(k.subject(subject), left)
        refused: Any = desk.ask("POST", "/jobs", {"what": "drain", "subject": subject})
        assert (refused.status, subject in refused.json()["message"]) == (503, True)
        assert len(desk.get(f"/subjects/{subject}")["sessions"]) == len(persons)
        for path, body in (
            (f"/subjects/{subject}/block", {}),
            (f"/subjects/{subject}/kill", {}),
            ("/commands", {"command": f"__cmd:client/{subject}/?killClient"}),
        ):
            refused = desk.ask("POST", path, body)
            assert (refused.status, subject in refused.json()["message"]) == (503, True), path
        client.delete(k.session(left))
        client.srem(k.subject(subject), left)
    told = desk.get(f"/subjects/{subject}")
    assert (told["sessions"], told["blocked"]) == ([], True), "what can be done is done"
    assert not Person(pair[0]).shake(name=f"client/{subject}/1")["successful"]


def until_waiting(desk: Desk, path: str, wanted: int) -> None:
    until(lambda: desk.get(path)["waiting"] == wanted)


def test_what_is_wrong_is_refused_as_at_the_node_itself(pair: list[Server], desks: list[Desk]) -> None:
    subject, _ = people(pair)
    for desk in desks:
        missing = desk.ask("GET", f"/sessions/{subject}/9")
        assert (missing.status, missing.json()["errorCode"]) == (404, "user.illegalArgument")
        assert desk.ask("GET", f"/subjects/no{subject}").status == 404
        assert desk.ask("GET", f"/sessions/{subject}/2/messages?count=x").status == 400
        refused: Any = desk.ask("POST", f"/sessions/{subject}/2/activate", {"unknown": 1})
        assert (refused.status, "unknown" in refused.json()["message"]) == (400, True)


def test_all_sessions_of_a_subject_end_at_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject, persons = people(pair)
    assert desks[0].post(f"/subjects/{subject}/kill")["killed"] == 3
    for each in persons:
        assert each.connect(advice={"timeout": 0})[-1]["error"].startswith("402")


def test_a_dead_letter_is_shown_at_all_nodes_and_redriven_at_any(pair: list[Server], desks: list[Desk]) -> None:
    """The session is at the second node, and the work is done at the first."""
    watchers = [Person(server).be(token=TOKEN) for server in pair]
    for watcher in watchers:
        watcher.subscribe("/__sys__deadMessage")
    name = f"client/oper{next(_numbers)}/1"
    reader = Keeper(pair[1]).be(name)
    reader.subscribe("/letters")
    publish(pair[0], "of this test", channel="/letters")
    reader.reject(comes(reader), "user.update.deadMessage")
    for watcher in watchers:  # notices of the tests before may still be on their way
        while "of this test" not in (noticed := values(comes(watcher))):
            assert noticed
        assert noticed.count("of this test") == 1
    (letter,) = desks[0].letters(f"receiver={name}")
    desks[0].post("/dead-letters/redrive", {"ids": [letter["id"]]})
    assert values(comes(reader)) == ["of this test"]


def test_the_sessions_of_a_dead_node_are_listed_where_they_live_on(start_server: StartServer) -> None:
    first = start_server(NODE, LONG, OPERATED, "node.name=a")
    second = start_server(*first.store_sets, NODE, LONG, OPERATED, "node.name=b")
    Person(second).be("client/away/1")
    desk = Desk(first, TOKEN)
    assert [each["node"] for each in desk.get("/sessions")["sessions"]] == ["b"]
    second.kill()
    until(lambda: [each["node"] for each in desk.get("/sessions")["sessions"]] == ["a"])
    assert desk.get("/sessions")["unreached"] == 0


def test_commands_count_what_all_nodes_have(pair: list[Server], desks: list[Desk]) -> None:
    subject, (here, there, _) = people(pair)
    names = [f"client/{subject}/{number}" for number in (1, 2, 3)]
    for person in (here, there):
        person.subscribe(f"/{subject}")
    for desk in desks:
        assert [each for each in desk.cmd("__cmd:?sessionList") if subject in each] == names
        assert subject in desk.cmd("__cmd:?clients").split(",")
        assert desk.cmd("__cmd:?numClients") == len(desk.cmd("__cmd:?clientList"))
        assert desk.cmd("__cmd:?nodeList") == ["a", "b"]
        assert (desk.cmd("__cmd:/node/a/?nodeList"), desk.cmd("__cmd:/node/b/?nodeList")) == (["a"], ["b"])
        assert "'c'" in desk.refused("__cmd:/node/c/?nodeList")
        assert desk.cmd(f"__cmd:client/{subject}/?numSessions") == 3
        assert desk.cmd(f"__cmd:client/{subject}/?sessions") == "1,2,3"
        assert desk.cmd(f"__cmd:/node/b/client/{subject}/1/?dispatcherActive") is True  # the node informs
        assert desk.cmd(f"__cmd:topic/{subject}/?subscribers") == names[:2]
        assert desk.cmd(f"__cmd:topic/{subject}/?numSubscribers") == 2
        assert "not here" in desk.refused(f"__cmd:client/{subject}/9/?dispatcherActive")
        assert "no session" in desk.refused(f"__cmd:client/no{subject}/?numSessions")
    assert desks[0].cmd(f"__cmd:topic/{subject}/?unSubscribeAll") == 2
    assert desks[1].cmd(f"__cmd:client/{subject}/?killClient") == 3
    assert [each for each in desks[0].cmd("__cmd:?sessionList") if subject in each] == []


def test_nodes_that_have_the_same_name_are_all_reached(nodes: list[Server], start_server: StartServer) -> None:
    servers = [*nodes, start_server(*nodes[0].store_sets, NODE, LONG, OPERATED, "node.name=b")]
    subject = f"oper{next(_numbers)}"
    for number, server in enumerate(servers, 1):
        Person(server).be(f"client/{subject}/{number}")
    for server in servers:
        desk = Desk(server, TOKEN)
        until(lambda desk=desk: desk.cmd(f"__cmd:client/{subject}/?numSessions") == 3)
        for number in (1, 2, 3):
            assert desk.cmd(f"__cmd:client/{subject}/{number}/?dispatcherActive") is True


def test_lists_have_the_topics_and_groups_of_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject, (here, there, _) = people(pair)
    channel = f"/{subject}/topic"
    for person in (here, there):
        asked = {"ext": {"subscribe": {"group": "g"}}}
        person.send(person.message("/meta/subscribe", subscription=f"/{subject}/*", **asked))
        person.subscribe(f"/{subject}/**")
    publish(pair[0], 1, channel=channel)
    for desk in desks:
        until(lambda desk=desk: rows(desk, subject)[0]["queued"] == 3)
        (row,) = rows(desk, subject)
        assert (row["channel"], row["state"], row["subscribers"], row["exactSubscribers"]) == (channel, "ALIVE", 2, 0)
        assert (len(row["groups"]), sorted(row["groups"][0]["members"])) == (
            1,
            [f"client/{subject}/{at}" for at in (1, 2)],
        )
        assert desk.get(f"/topics?pattern=/{subject}/*&state=UNCONFIGURED")["topics"] == []
        (group,) = desk.get(f"/receivers?kind=group&contains={subject}")["receivers"]
        assert (group["members"], group["state"]) == (2, "ALIVE")


def test_a_message_has_the_receivers_of_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject, (here, there, _) = people(pair)
    channel = f"/{subject}/message"
    for person in (here, there):
        person.subscribe(channel)
    for desk in desks:
        desk.post(f"/sessions/{subject}/1/hold")
        desk.post(f"/sessions/{subject}/2/hold")
    answer = here.publish(channel, {"order": 17}, ext={"publish": {"persistent": True}})
    message_id = answer[-1]["ext"]["publish"]["id"]
    wanted = {f"client/{subject}/{number}": "on hold by admin" for number in (1, 2)}

    def told(desk: Desk) -> Any:
        found = desk.get(f"/messages/{message_id}")
        return found if {each["receiver"]: each.get("why") for each in found["receivers"]} == wanted else None

    for desk in desks:
        found = until(lambda desk=desk: told(desk))
        assert (found["data"], found["unreached"], found["notFor"]) == ({"order": 17}, 0, [])
    assert desks[0].ask("GET", "/messages/1").status == 404


def rows(desk: Desk, subject: str) -> Any:
    """What the list has of the topics of this subject's tests."""
    return desk.get(f"/topics?pattern=/{subject}/*")["topics"]


def test_a_blocked_subject_is_blocked_at_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject, _ = people(pair)
    assert desks[1].post(f"/subjects/{subject}/block")["killed"] == 3
    for server in pair:
        assert Person(server).shake(name=f"client/{subject}/7")["successful"] is False
    assert [desk.cmd(f"__cmd:client/{subject}/?blockClientLogin") for desk in desks] == [True, True]
    assert desks[0].cmd(f"__cmd:client/{subject}/?blockClientLogin=false") == "OK"
    Person(pair[1]).be(f"client/{subject}/7")


def test_a_subject_without_sessions_is_blocked_at_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject = f"oper{next(_numbers)}"
    assert desks[1].post(f"/subjects/{subject}/block") == {"name": f"client/{subject}", "killed": 0}
    for server, desk in zip(pair, desks, strict=True):
        assert Person(server).shake(name=f"client/{subject}/7")["successful"] is False
        assert desk.get(f"/subjects/{subject}")["blocked"] is True
    assert desks[0].post(f"/subjects/{subject}/unblock") == {"name": f"client/{subject}"}
    Person(pair[1]).be(f"client/{subject}/7")


def test_a_change_of_settings_tells_that_the_other_node_does_not_change(
    pair: list[Server], desks: list[Desk], tmp_path: Path
) -> None:
    told = desks[0].ask("PATCH", "/settings", {"bayeux.max_lazy_ms": 4000}).json()
    assert (told["node"], told["unchanged"], told["settings"][0]["value"]) == ("a", 1, 4000)
    environ = {"CREWEL_URL": pair[1].url, "CREWEL_TOKEN": TOKEN}
    ended = crewel("settings", "set", "bayeux.max_lazy_ms=4500", "--json", directory=tmp_path, environ=environ)
    assert json.loads(ended.out)["value"] == 4500
    assert ended.err == ("crewel: only the node or worker that answered has changed, b; another one keeps its values\n")
    values = [
        next(row["value"] for row in desk.get("/settings")["settings"] if row["name"] == "bayeux.max_lazy_ms")
        for desk in desks
    ]
    assert values == [4000, 4500]


def test_every_node_tells_what_a_session_did_that_has_ended(pair: list[Server], desks: list[Desk]) -> None:
    subject, _ = people(pair)
    desks[0].post(f"/sessions/{subject}/2/hold", {"reason": "to look"})
    desks[0].post(f"/sessions/{subject}/2/kill")
    for desk in desks:
        told = desk.get(f"/sessions/{subject}/2/timeline")
        assert {"held", "killed"} <= {each["what"] for each in told["events"]}
        assert (told["since"], told["dropped"], told["unreached"]) == (None, 0, 0)
        assert len(desk.get(f"/sessions/{subject}/2/timeline?count=1")["events"]) == 1
        assert desk.ask("GET", f"/sessions/{subject}/77/timeline").status == 404


def test_alerts_are_of_the_sessions_of_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject, _ = people(pair)
    names = [f"client/{subject}/{number}" for number in (1, 2)]
    raised = {name: json.dumps({"since": 5, "raised": 9, "who": "admin"}) for name in names}
    with shared_store().client() as client:
        client.hset(Keys(pair[0].store_sets[1].partition("=")[2]).alerts, mapping=raised)
    for name in names:
        desks[0].post(f"/sessions/{name.removeprefix('client/')}/hold")
    for desk in desks:
        told = desk.get("/alerts")
        assert ([each["session"] for each in told["alerts"]], told["unreached"]) == (names, 0)


def test_requests_are_those_of_all_nodes(start_server: StartServer) -> None:
    sets, service = (NODE, LONG, OPERATED), "tests.admin.slow_service"
    first = start_server(*sets, "node.name=a", service=service)
    servers = [first, start_server(*first.store_sets, *sets, "node.name=b", service=service)]
    callers = [Receiver(server).be(f"joe/{number}") for number, server in enumerate(servers, 1)]
    desks = [Desk(server, TOKEN) for server in servers]
    callers[0].publish("/service/print", 1)
    since = desks[0].get("/requests")["requests"][0]["since"]
    until(lambda: time.time() * 1000 > since + APART_MS)
    callers[1].publish("/service/print", 1)
    for desk in desks:
        told = desk.get("/requests")
        assert (told["count"], told["unreached"]) == (2, 0)
        assert [each["caller"] for each in told["requests"]] == ["client/joe/1", "client/joe/2"]
        oldest = desk.get("/requests?count=1")
        assert ([each["caller"] for each in oldest["requests"]], oldest["count"]) == (["client/joe/1"], 2)
    for caller in callers:
        caller.publish("/service/paper", 0)


def test_overview_has_figures_and_problems_of_all_nodes(pair: list[Server], desks: list[Desk]) -> None:
    subject, (here, there, _) = people(pair)
    there.subscribe(f"/{subject}")
    desks[1].post(f"/sessions/{subject}/2/hold", {"reason": "to look"})
    publish(pair[0], 7, channel=f"/{subject}")
    for desk in desks:
        held = desk.get("/receivers?held=true&count=1000")["receivers"]
        assert f"client/{subject}/2" in {each["name"] for each in held}
        told = until(lambda d=desk, all_held=held: overview_of(d, len(all_held)))
        assert (sorted(told["nodes"]), told["unreached"]) == (["a", "b"], 0)
        assert "b" in {node for each in told["findings"] if each["key"] == "held" for node in each["nodes"]}
    desks[0].post(f"/sessions/{subject}/2/activate")
    assert here.connect(advice={"timeout": 0})[-1]["successful"]


def overview_of(desk: Desk, held: int) -> Any:
    """The overview, if it counts so many receivers on hold: a node keeps its count for some seconds."""
    told = desk.get("/overview")
    return told if told["sessions"]["held"] == held else None


def test_a_redrive_whose_node_dies_says_where_it_goes_on(nodes: list[Server], tmp_path: Path) -> None:
    """The command line asks one node; the job is in the store, and another node continues it."""
    first, second = nodes
    joe, many = Person(second).be("joe/1"), 60
    joe.subscribe("/many")
    publish(first, *range(many), channel="/many")
    desk = Desk(second, TOKEN)
    until(lambda: desk.get("/sessions/joe/1")["waiting"] == many)
    assert desk.post("/sessions/joe/1/drain")["letters"] == many
    until(lambda: desk.get("/dead-letters/count")["count"] == many)
    options = ("--all", "--rate", "20", f"--url={first.url}", f"--token={TOKEN}")
    redrive = Running("dead-letters", "redrive", *options, directory=tmp_path)
    until(lambda: desk.get("/dead-letters/count")["count"] < many - 2)
    first.kill()
    status, said = redrive.end()
    (job,) = desk.get("/jobs")["jobs"]
    assert status == 1
    assert f"continues with the job: crewel jobs follow {job['id']}, with --url at another node" in said
    followed = crewel("jobs", "follow", job["id"], f"--url={second.url}", f"--token={TOKEN}", directory=tmp_path)
    (done,) = map(json.loads, followed.out.splitlines())
    assert (done["state"], done["done"], done["undone"]) == ("done", many, 0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two nodes that ask for tokens."""
    directory = tmp_path_factory.mktemp("guarded")
    sets = (NODE, LONG, OPERATED, "security.policy=jwt", f"security.jwt_keys={secret_file(directory)}")
    common = [f"--set={text}" for text in sets]
    first = Server(["--port=0", *common, "--set=node.name=a"], directory)
    same = [f"--set={text}" for text in first.store_sets]
    second = Server(["--port=0", *same, *common, "--set=node.name=b"], directory)
    yield [first, second]
    close_connections()
    first.end_well()
    second.end_well()


def trusted(server: Server, name: str, *channels: str, group: str = "") -> Person:
    """A session of a subject that may subscribe to everything."""
    person = Person(server).be(name, token=signed(sub=name.partition("/")[0], subscribe=["/**"], group=["/**"]))
    options = {"ext": {"subscribe": {"group": group}}} if group else {}
    for channel in channels:
        assert person.send(person.message("/meta/subscribe", subscription=channel, **options))[-1]["successful"]
    return person


def test_no_node_acts_on_a_subject_that_a_role_covers_at_one_node_only(guarded: list[Server]) -> None:
    """Each node looks at its own sessions, and what one does for a subject holds at all."""
    for number, (server, channel) in enumerate(zip(guarded, ("/orders/new", "/menu/today"), strict=True), 1):
        trusted(server, f"both/{number}", channel)
    requests = [("POST", "block"), ("POST", "unblock"), ("POST", "kill"), ("DELETE", "messages")]
    commands = ["blockClientLogin=true", "blockClientAndResetConnections", "killClient", "clearSubjectQueue"]
    for server in guarded:
        operator = Desk(server, signed(sub="ann", operator=["destroy:/orders/**", "view:/menu/*"]))
        told = [operator.ask(method, f"/subjects/both/{name}") for method, name in requests]
        told += [operator.ask("POST", "/commands", {"command": f"__cmd:client/both/?{name}"}) for name in commands]
        assert [response.status for response in told] == [403] * 8
    subject = Desk(guarded[0], TOKEN).get("/subjects/both")
    assert (subject["sessions"], subject["blocked"]) == (["client/both/1", "client/both/2"], False)


LISTS = [
    "/sessions?count=1", "/sessions?sort=waiting&count=2", "/topics?count=1", "/topics?pattern=/hidden/*", "/receivers?count=1",
    "/receivers?kind=group&count=1", "/subjects?count=1", "/subjects/hid", "/prefixes?count=1", "/prefixes?below=/hidden",
    "/groups/hidden/x?name=g", "/groups/seen/x?name=g", "/sessions/hid/1", "/sessions/hid/1/messages",
]  # fmt: skip


def test_joined_lists_tell_nothing_of_what_a_role_does_not_cover(guarded: list[Server]) -> None:
    """What an operator of some channels gets is the same before and after there is something else, at either node."""
    speakers = [Person(server).be(f"speaker/{number}", token=TOKEN) for number, server in enumerate(guarded, 1)]
    for number, (server, speaker) in enumerate(zip(guarded, speakers, strict=True), 1):
        trusted(server, f"seen/{number}", "/seen/x")
        trusted(server, f"works/{number}", "/seen/x", group="g")
        speaker.publish(f"/seen/{number}", number)
    desks = [Desk(server, signed(sub="ann", operator=["view:/seen/*"])) for server in guarded]
    before = until(lambda: found if (found := all_pages(desks)) == all_pages(desks) else None)
    assert all(f"client/seen/{number}" in str(before) and f"client/works/{number}" in str(before) for number in (1, 2))
    for number, (server, speaker) in enumerate(zip(guarded, speakers, strict=True), 1):
        trusted(server, f"hid/{number}", "/hidden/x")
        trusted(server, f"all/{number}", "/hidden/x", "/**", group="g")
        for channel in ("/hidden/x", f"/hidden/{number}"):
            speaker.publish(channel, number)
    until_waiting(Desk(guarded[0], TOKEN), "/sessions/hid/1", 2)
    assert all_pages(desks) == before


def all_pages(desks: list[Desk]) -> list[tuple[str, int, str]]:
    """All pages of all lists at all nodes."""
    found = []
    for desk, path in product(desks, LISTS):
        after: str | None = ""
        while after is not None:
            response: Any = desk.ask(
                "GET", f"{path}{'&' if '?' in path else '?'}after={quote(after)}" if after else path
            )
            found.append((path, response.status, neutral(response.body.decode(), {})))
            after = response.json().get("next") or None
    return found
