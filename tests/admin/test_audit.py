"""The audit in the store: each action of an operator has one entry, with who, what, on what, how many, why and how it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.admin.desk import SETS, TOKEN, Desk, Receiver, publish
from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

pytestmark = pytest.mark.server


def entries(desk: Desk, query: str, count: int = 1) -> list[dict[str, Any]]:
    """The entries, the newest first, once there are so many: they are written when the action has ended."""

    def found() -> list[dict[str, Any]] | None:
        listed = desk.get(f"/audit?{query}")["entries"]
        return listed if len(listed) >= count else None

    listed = until(found)
    assert len(listed) == count
    return listed


def test_an_operation_has_one_entry(desk: Desk, receiver: Receiver, server: Server, channel: str, subject: str) -> None:
    publish(server, channel, 3)
    assert desk.post(f"/sessions/{subject}/1/drain", {"reason": "a test"})["letters"] == 3
    [entry] = entries(desk, f"about=client/{subject}/1")
    assert entry["at"] > 1_700_000_000_000
    assert {name: entry[name] for name in entry if name not in ("id", "at", "details")} == {
        "node": "heron", "who": "admin", "role": "destroy", "what": "drain session", "about": f"client/{subject}/1",
        "count": 3, "reason": "a test", "outcome": "done", "errorCode": "",
    }  # fmt: skip
    assert receiver.id not in json.dumps(entry)


def test_an_operation_that_fails_has_the_code_of_its_failure(desk: Desk, server: Server, subject: str) -> None:
    Receiver(server).shake(name=f"{subject}/1")
    assert desk.ask("POST", f"/sessions/{subject}/1/ping", {"reason": "there?"}).status == 504
    [entry] = entries(desk, f"about=client/{subject}")
    assert (entry["what"], entry["outcome"], entry["reason"]) == ("ping session", "failed", "there?")
    assert entry["errorCode"].startswith("communication.noConnection")


def test_commands_settings_and_work_on_dead_letters_are_entered(
    desk: Desk, dead: list[str], receiver: Receiver, subject: str
) -> None:
    assert receiver.id
    name = f"client/{subject}/1"
    desk.cmd(f"__cmd:{name}/?dispatcherActive=true")
    desk.cmd(f"__cmd:{name}/?dispatcherActive")  # only reads
    [command] = entries(desk, f"about={name}")
    assert (command["what"], command["details"]["command"]) == (
        "command",
        f"__cmd:/node/heron/{name}/?dispatcherActive=true",
    )
    desk.post("/dead-letters/redrive", {"all": True, "receiver": name, "dryRun": True})  # only counts
    desk.post("/dead-letters/redrive", {"all": True, "receiver": name, "count": 2, "reason": f"paper of {subject}"})
    desk.post("/dead-letters/discard", {"ids": [*dead[2:4], "1-0"], "reason": f"paper of {subject}"})
    discarded, redriven = entries(desk, f"contains=paper%20of%20{subject}", 2)
    assert (redriven["what"], redriven["count"], redriven["details"]["receiver"]) == ("redrive dead letters", 2, name)
    assert (discarded["what"], discarded["count"]) == ("discard dead letters", 2)
    assert (discarded["details"]["ids"], discarded["details"]["undone"]) == (["1-0", *dead[2:4]], 1)  # the oldest first
    assert desk.ask("PATCH", "/settings", {"limits.subscribes_burst": 90001}).status == 200
    [changed] = entries(desk, "about=limits.subscribes_burst")
    assert (changed["what"], changed["details"]["after"]) == ("change setting", 90001)


@pytest.mark.parametrize(
    ("name", "value", "verb"),
    [("field", "order=1", "discard"), ("deadReason", "the oven is cold", "discard"), ("returns", 0, "redrive")],
)
def test_the_filters_of_work_on_dead_letters_are_entered(desk: Desk, name: str, value: Any, verb: str) -> None:
    reason = f"by {name}"
    body = {"all": True, name: value, "channel": "/nothing/here", "reason": reason, "since": "2026-01-01"}
    desk.post(f"/dead-letters/{verb}", body)
    [entry] = entries(desk, f"what={verb}&contains={quote(reason)}")
    assert (entry["details"][name], entry["details"]["channel"], entry["reason"]) == (value, "/nothing/here", reason)
    assert entry["details"]["since"] > 1_700_000_000_000


def test_the_channels_that_work_on_dead_letters_kept_to_are_entered(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    Desk(server, signed(operator=["destroy:/orders/**"])).post("/dead-letters/discard", {"all": True})
    [entry] = entries(Desk(server), "what=discard")
    assert entry["details"]["within"] == ["/orders/**"]


def test_what_is_refused_about_ids_and_names_of_a_body_is_entered(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    cook = Receiver(server).be("cook/1", token=signed(sub="cook", subscribe=["/**"]))
    cook.subscribe("/menu/today")
    Receiver(server).be("speaker/1", token=TOKEN).publish("/menu/today", 1, ext={"publish": {"persistent": True}})
    cook.reject(cook.take())
    admin = Desk(server)
    ids = [each["id"] for each in until(admin.letters)]
    ann = Desk(server, signed(sub="ann", operator=["destroy:/orders/**", "view:/menu/*"]))
    bob = Desk(server, signed(sub="bob", operator=["destroy:/orders/**"]))
    refused = [
        (ann, "/dead-letters/discard", {"ids": ids}, 403),
        (ann, f"/dead-letters/{ids[0]}/edit", {"data": 1}, 403),
        (ann, "/jobs", {"what": "drain", "sessions": ["client/cook/1"]}, 403),
        (bob, "/jobs", {"what": "drain", "sessions": ["client/cook/1"]}, 404),
    ]
    for desk, path, body, status in refused:
        assert desk.ask("POST", path, body).status == status
    listed = entries(admin, "contains=refused", 4)
    told = [(each["who"], each["what"], each["outcome"], each["count"]) for each in listed]
    assert told[::-1] == [
        ("ann", "POST /dead-letters/discard", "refused", 1),
        ("ann", "edit dead letter", "refused", 1),
        ("ann", "begin job", "refused", 1),
        ("bob", "begin job", "refused", 1),
    ]


def test_the_audit_is_exported_as_lines_the_oldest_first(desk: Desk, receiver: Receiver, subject: str) -> None:
    assert receiver.id
    for verb in ("hold", "activate"):
        desk.post(f"/sessions/{subject}/1/{verb}")
    entries(desk, f"about=client/{subject}", 2)
    response = desk.ask("GET", f"/audit/export?about=client/{subject}")
    assert response.header("Content-Type") == "application/x-ndjson"
    lines = [json.loads(line) for line in response.body.splitlines()]
    assert [line["what"] for line in lines] == ["hold session", "activate session"]
    entries(desk, f"what=export&contains=client/{subject}")


def test_sign_ins_and_what_is_refused_are_entered(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    desk, viewer = Desk(server), Desk(server, signed(operator="view"))
    for _ in range(3):
        assert viewer.ask("POST", "/sessions/nobody/1/kill").status == 403
        assert Desk(server, None).ask("POST", "/sign-in", {"token": "not-the-token"}).status == 401
    assert viewer.ask("POST", "/commands", {"command": "__cmd:?gc"}).status == 403
    refused = {entry["what"]: entry for entry in entries(desk, "outcome=refused", 3)}
    killed, command = refused["kill session"], refused["command"]
    assert (killed["who"], killed["role"], killed["count"]) == ("joe", "view", 1)  # the later ones are counted
    assert killed["details"] == {"subject": "nobody", "number": "1"}
    assert (command["who"], command["details"]["command"]) == ("joe", "__cmd:/node/heron/?gc")
    assert (refused["sign in"]["who"], refused["sign in"]["role"]) == ("", "")
    assert Desk(server, None).ask("POST", "/sign-in", {"token": TOKEN}).status == 200
    [entered] = entries(desk, "what=sign%20in&outcome=done")
    assert (entered["who"], entered["role"]) == ("admin", "destroy")
    assert "not-the-token" not in json.dumps(refused)


def test_the_audit_is_bounded_and_outlives_the_server(start_server: StartServer) -> None:
    sets = (*SETS, "admin.audit_max_entries=3")
    server = start_server(*sets)
    desk = Desk(server)
    Receiver(server).be("joe/1")
    for _ in range(3):
        for verb in ("hold", "activate"):
            desk.post(f"/sessions/joe/1/{verb}")
    until(lambda: len(desk.get("/audit")["entries"]) == 3 or None)
    before = desk.get("/audit")
    assert (before["kept"], before["max"], before["held"]) == (3, 3, [{"who": "admin", "entries": 3}])
    server.end_well()
    assert Desk(start_server(*sets, *server.store_sets)).get("/audit") == before


def test_the_command_prints_the_audit(
    desk: Desk, receiver: Receiver, server: Server, subject: str, tmp_path: Path
) -> None:
    assert receiver.id
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "lunch"})
    entries(desk, f"about=client/{subject}")
    words = ["audit-log", "--about", f"client/{subject}", "--token", TOKEN, "--url", server.url]
    ran = crewel(*words, directory=tmp_path)
    assert ran.status == 0, ran.err
    [line] = ran.out.splitlines()
    assert (json.loads(line)["what"], json.loads(line)["reason"]) == ("hold session", "lunch")
