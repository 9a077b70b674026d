"""Scheduled messages as operators see them: the list, one of them, a message by its id, and how they cancel some."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from crewel.admin.message_history import message_history
from crewel.delivery.records import LogId
from crewel.storage.message_facts import Fact
from tests.admin.desk import TOKEN, Desk, Receiver
from tests.admin.test_audit import entries
from tests.cli.command import Ended, crewel
from tests.functional.wire import until
from tests.server_process import Server

ID = LogId(1_000_001)
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


def schedule(server: Server, channel: str, data: Any = 1, **qos: Any) -> str:
    """The id of a message that is published in an hour, or when `qos` says."""
    asked = {"persistent": True, "deliverAfter": HOUR_MS} | qos
    publisher = Receiver(server).be()
    (reply,) = publisher.send(publisher.message(channel, data=data, ext={"publish": asked}))
    assert reply["successful"], reply
    return str(reply["ext"]["publish"]["id"])


@pytest.fixture
def kept(server: Server, channel: str) -> list[str]:
    """Three messages, the last of which is due first."""
    return [
        schedule(server, f"{channel}/{name}", {"n": name}, deliverAfter=HOUR_MS - 1000 * number)
        for number, name in enumerate("abc")
    ]


def test_the_list_has_those_that_are_due_first_first(desk: Desk, kept: list[str], channel: str) -> None:
    told = desk.get(f"/scheduled-messages?channel={channel}/*")
    assert [each["id"] for each in told["messages"]] == kept[::-1]
    assert told["next"] == ""
    assert told["total"] >= 3
    first = desk.get(f"/scheduled-messages?channel={channel}/*&count=2")
    second = desk.get(f"/scheduled-messages?channel={channel}/*&count=2&after={first['next']}")
    assert [each["id"] for each in first["messages"] + second["messages"]] == kept[::-1]
    assert [each["id"] for each in desk.get(f"/scheduled-messages?channel={channel}/a")["messages"]] == kept[:1]


def test_one_is_shown_with_what_its_publisher_said(desk: Desk, kept: list[str], channel: str) -> None:
    told = desk.get(f"/scheduled-messages/{kept[0]}")
    assert (told["channel"], told["data"], told["may"]) == (f"{channel}/a", {"n": "a"}, "destroy")
    assert told["qos"] == {"persistent": True}
    assert told["deliverAt"] == told["nextAttempt"]
    assert now_ms() < told["deliverAt"] <= now_ms() + HOUR_MS
    assert told["refusal"] == ""
    assert told["bytes"] > len('{"n":"a"}')
    assert desk.ask("GET", "/scheduled-messages/17").status == 404


def test_some_are_cancelled_and_the_audit_says_by_whom(desk: Desk, kept: list[str], channel: str) -> None:
    asked = {"ids": [*kept[:2], "17"], "reason": "a mistake"}
    assert desk.post("/scheduled-messages/cancel", asked) == {"cancelled": 2}
    assert desk.post("/scheduled-messages/cancel", asked) == {"cancelled": 0}
    assert [each["id"] for each in desk.get(f"/scheduled-messages?channel={channel}/*")["messages"]] == kept[2:]
    entry = entries(desk, f"what=cancel&contains={kept[0]}", 2)[-1]
    assert (entry["count"], entry["reason"], entry["who"]) == (2, "a mistake", "admin")
    told = desk.get(f"/messages/{kept[0]}")
    assert told["channel"] == f"{channel}/a"
    assert told["schedule"]["cancelled"]["who"] == "admin"


@pytest.mark.parametrize("ids", [["x"], "17", [17], ["1" * 17]])
def test_ids_that_are_none_are_refused(desk: Desk, ids: Any) -> None:
    response = desk.ask("POST", "/scheduled-messages/cancel", {"ids": ids})
    assert (response.status, response.json()["errorCode"]) == (400, "user.illegalArgument")


def test_a_place_that_is_none_is_refused(desk: Desk) -> None:
    assert "next" in desk.ask("GET", "/scheduled-messages?after=x").json()["message"]


def test_a_message_is_found_by_either_of_its_ids(desk: Desk, server: Server, receiver: Receiver, channel: str) -> None:
    message_id = schedule(server, channel, deliverAfter=1, key="k")
    told = until(lambda: found if (found := desk.get(f"/messages/{message_id}"))["schedule"]["publishedAs"] else None)
    assert (told["channel"], told["key"], told["publishedAt"]) == (channel, "k", None)
    published = desk.get(f"/messages/{told['schedule']['publishedAs']}")
    assert (published["scheduledAs"], published["schedule"]) == (message_id, None)
    assert published["receivers"]
    assert desk.ask("GET", f"/scheduled-messages/{message_id}").status == 404


def test_a_message_that_waits_is_found_with_its_data(desk: Desk, kept: list[str], channel: str) -> None:
    told = desk.get(f"/messages/{kept[0]}")
    assert (told["channel"], told["data"]["n"], told["receivers"]) == (f"{channel}/a", "a", [])
    assert told["schedule"]["publishedAs"] == ""
    assert told["schedule"]["cancelled"] is None


def test_the_history_of_a_scheduled_message() -> None:
    scheduled = Fact(3, "scheduled", {"id": ID, "channel": "/a", "at": 9, "key": "k"})
    published = Fact(5, "published", {"first": 2_000_000, "channels": ["/b", "/a"], "scheduled": {"2000001": ID}})
    cancelled = Fact(5, "cancelled", {"ids": [3, ID], "channels": ["/b", "/a"], "who": "ann"})
    other = Fact(4, "scheduled", {"id": 7, "channel": "/c", "at": 9})
    told = message_history(ID, [scheduled, other])
    assert (told.channel, told.key, told.published_ms) == ("/a", "k", None)
    assert told.schedule == {"deliverAt": 9, "publishedAs": "", "cancelled": None}
    assert message_history(ID, [scheduled, published]).schedule == {
        "deliverAt": 9,
        "publishedAs": "2000001",
        "cancelled": None,
    }
    told = message_history(ID, [cancelled, Fact(6, "cancelled", {"ids": [3], "channels": ["/b"]})])
    assert told.schedule == {"deliverAt": None, "publishedAs": "", "cancelled": {"at": 5, "who": "ann"}}
    assert told.channel == "/a"
    assert message_history(LogId(2_000_001), [published]).scheduled_as == str(ID)
    assert message_history(LogId(2_000_000), [published]).scheduled_as == ""


# As it is typed


class Shell:
    """Where an operator types commands."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.directory, self.environ = directory, {"CREWEL_URL": server.url, "CREWEL_TOKEN": TOKEN}

    def __call__(self, *arguments: str) -> Ended:
        return crewel(*arguments, directory=self.directory, environ=self.environ)


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Shell:
    return Shell(server, tmp_path)


def test_the_command_lists_shows_and_cancels(run: Shell, kept: list[str], channel: str) -> None:
    heading, *rows = run("scheduled", "list", "--channel", f"{channel}/*", "--no-json").out.splitlines()
    assert heading.split()[:3] == ["id", "deliver", "at"]
    assert [row.split()[0] for row in rows] == kept[::-1]
    assert kept[0] in run("scheduled", "show", kept[0], "--no-json").out
    assert "scheduled for 20" in run("message", kept[0], "--no-json").out
    ended = run("scheduled", "cancel", *kept, "17", "--reason", "no", "--no-json")
    assert ended.out.strip() == "3 cancelled; 1 not there: published, or cancelled before"
    assert "cancelled 20" in run("message", kept[0], "--no-json").out
    assert run("scheduled", "show", kept[0]).status == 1


def test_pub_schedules(run: Shell, channel: str) -> None:
    later = ("--persistent", "--deliver-after", "1h", "--json")
    ended = run("pub", channel, "1", *later)
    assert '"deliverAt":' in ended.out, ended
    scheduled = json.loads(ended.out)["ext"]["publish"]["id"]
    assert run("pub", "/service/cancelScheduled", scheduled) == Ended(0, "", "")
    ended = run("pub", "/service/cancelScheduled", scheduled)
    assert (ended.status, f"400:{scheduled}:user.schedule.absent" in ended.err) == (1, True), ended
    ended = run("pub", channel, "1", "--deliver-at", "2999-01-01", "--persistent")
    assert (ended.status, "at most 31622400000 ms ahead" in ended.err) == (1, True)
    ended = run("pub", channel, "1", "--deliver-after", "1h")
    assert "needs `persistent`" in ended.err
