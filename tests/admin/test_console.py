"""The operator's page over HTTP: its files and their headers, and the overview that it shows."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from crewel.admin.metrics_history import COLUMNS
from crewel.storage.dead_letter_groups import GROUPED
from tests.admin.desk import Desk, Receiver, audit, publish
from tests.functional.wire import Connection, Response, until
from tests.house.source import ROOT
from tests.server_process import Server

pytestmark = pytest.mark.server

FILES = sorted(file.name for file in (ROOT / "static" / "console").iterdir() if file.name != "index.html")


def fetched(server: Server, path: str) -> Response:
    with Connection(server) as connection:
        connection.request("GET", path, b"")
        return connection.response()


def test_every_file_of_the_page_has_strict_headers(server: Server) -> None:
    for path in ("/admin/", *(f"/admin/page/{name}" for name in (*FILES, "style.css", "icon.svg"))):
        response = fetched(server, path)
        assert response.status == 200, path
        policy = response.header("Content-Security-Policy") or ""
        assert policy.startswith("default-src 'none'; script-src 'self';"), path
        assert "unsafe" not in policy
        assert response.header("X-Content-Type-Options") == "nosniff"
        assert response.header("Referrer-Policy") == "no-referrer"
    assert fetched(server, "/admin").status == 301
    for path in ("/admin/page/", "/admin/page/index.html", "/admin/other"):
        assert fetched(server, path).status == 404, path
    assert fetched(server, "/admin/page/..%2fapi.js").status == 400


def test_page_has_no_inline_code_and_loads_nothing_from_elsewhere() -> None:
    page = (ROOT / "static" / "console" / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=|https?://", page)
    for name in FILES:
        text = (ROOT / "static" / "console" / name).read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://", text), name


def test_overview_has_the_figures_and_what_is_wrong(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    publish(server, channel, 2)
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "out of paper"})
    told = desk.get("/overview")
    assert tuple(told["samples"]) == COLUMNS
    assert told["node"] == "heron"
    sessions = told["sessions"]
    assert sessions["count"] == sum(sessions["states"].values()) == sum(sessions["transports"].values())
    assert told["store"]["trouble"] is None
    assert told["store"]["usedMemory"] > 0
    assert desk.get(f"/overview?after={told['at'] + 10**9}")["samples"]["at"] == []
    receiver.disconnect()


def test_sessions_are_sorted_and_filtered_a_page_at_a_time(desk: Desk, server: Server, subject: str) -> None:
    for number in (1, 2, 3):
        Receiver(server).be(f"{subject}/{number}").subscribe(f"/{subject}/{number}")
    for number, waiting in ((1, 1), (2, 3), (3, 3)):
        publish(server, f"/{subject}/{number}", waiting)
    names = {number: f"client/{subject}/{number}" for number in (1, 2, 3)}

    def listed(query: str) -> list[str]:
        found, after = [], ""
        while True:
            page = desk.get(f"/sessions?contains={subject.upper()}/&count=1&{query}{after}")
            found += [each["name"] for each in page["sessions"]]
            if not page["next"]:
                return found
            after = f"&after={page['next']}"

    assert listed("sort=waiting") == listed("sort=waitingBytes") == [names[2], names[3], names[1]]
    assert listed("") == listed("sort=name") == [names[1], names[2], names[3]]
    assert listed("active=false") == []
    wrong = desk.ask("GET", "/sessions?sort=waiting&after=client/joe/1")
    assert (wrong.status, "`next` of a page" in wrong.json()["message"]) == (400, True)


def test_queue_is_looked_at_without_a_change(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    publish(server, channel, 3)
    for _ in range(2):
        queue = desk.get(f"/sessions/{subject}/1/messages?count=2")
        assert (queue["waiting"], [each["data"] for each in queue["messages"]]) == (3, [0, 1])
    assert [each["data"] for each in receiver.take()] == [0, 1, 2]
    assert desk.ask("GET", "/sessions/nobody/1/messages").status == 404


def test_dead_letters_are_grouped_and_searched(desk: Desk, subject: str, channel: str, dead: list[str]) -> None:
    by_channel = desk.get("/dead-letters/groups?by=channel")
    assert {"value": channel, "count": 5} in by_channel["groups"]
    assert {"value": f"client/{subject}/1", "count": 5} in desk.get("/dead-letters/groups?by=receiver")["groups"]
    of_channel = f"/dead-letters/groups?by=code&channel={quote(channel)}"
    assert [(each["value"], each["count"]) for each in desk.get(of_channel)["groups"]] == [("user.update.error", 5)]
    assert desk.get(f"{of_channel}&code=user.security")["groups"] == []
    recent = desk.get("/dead-letters/groups?by=channel&since=1h")
    assert {"value": channel, "count": 5} in recent["groups"]
    assert desk.get("/dead-letters/groups?by=channel&since=2199-01-01")["groups"] == []
    counts = [each["count"] for each in desk.get("/dead-letters/groups")["groups"]]
    assert counts == sorted(counts, reverse=True)
    assert by_channel["partial"] is False
    where = f"receiver=client/{subject}/1"
    message = desk.get(f"/dead-letters/{dead[2]}")["message"]
    assert [each["id"] for each in desk.letters(f"{where}&contains={message.upper()}")] == [dead[2]]
    assert len(desk.letters(f"{where}&contains=NO")) == 5  # the reason
    assert desk.letters(f"{where}&contains=nothing-has-this") == []
    assert desk.get(f"/dead-letters/count?{where}&contains={message}")["count"] == 1
    chosen = {"all": True, "receiver": f"client/{subject}/1", "contains": message, "reason": "a test"}
    assert desk.post("/dead-letters/discard", {**chosen, "dryRun": True})["count"] == 1
    assert desk.post("/dead-letters/discard", chosen)["discarded"] == 1
    assert len(desk.letters(where)) == 4


@pytest.mark.usefixtures("dead")
def test_the_total_and_all_groups_of_dead_letters_are_one_answer(desk: Desk, subject: str, channel: str) -> None:
    count = f"/dead-letters/count?by={','.join(GROUPED)}"
    for whole in (desk.get(count), desk.get(f"{count}&receiver=client/{subject}/1")):
        sums = {kind: sum(each["count"] for each in found["groups"]) for kind, found in whole["groups"].items()}
        assert sums == dict.fromkeys(GROUPED, whole["count"])
    assert (whole["count"], whole["partial"]) == (5, False)
    # A choice of one kind leaves the others of this kind to be seen.
    told = desk.get(f"{count}&receiver=client/{subject}/1&code=user.other&facets=true")
    assert told["count"] == 0
    assert told["groups"]["code"]["groups"] == [{"value": "user.update.error", "count": 5}]
    assert told["groups"]["channel"]["groups"] == told["groups"]["receiver"]["groups"] == []
    dry = desk.post("/dead-letters/redrive", {"all": True, "channel": channel, "dryRun": True})
    (group,) = dry["receivers"]["groups"]
    assert (dry["count"], group["value"], group["count"]) == (5, f"client/{subject}/1", 5)
    refused = desk.ask("GET", "/dead-letters/count?by=code,colour")
    assert (refused.status, "some of code, channel" in refused.json()["message"]) == (400, True)


def test_reason_of_an_operation_stands_in_the_audit(
    desk: Desk, server: Server, receiver: Receiver, subject: str
) -> None:
    assert receiver.id
    desk.post(f"/sessions/{subject}/1/kill", {"reason": f"because of {subject}"})
    # The log is read by a thread of its own, so its line may come after the answer.
    until(lambda: any(f'"reason":"because of {subject}"' in line for line in audit(server)))
