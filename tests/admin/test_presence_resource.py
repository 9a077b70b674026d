"""Operators list the channels that have members, and the members of one."""

from __future__ import annotations

from tests.admin.desk import SETS, TOKEN, Desk
from tests.conftest import StartServer
from tests.functional.people import Person
from tests.functional.test_presence import call
from tests.server_process import Server


def test_channels_and_members_are_listed(server: Server, desk: Desk, subject: str, channel: str) -> None:
    tabs = [Person(server).be(f"{subject}/{number}", token=TOKEN) for number in (1, 2)]
    for tab in tabs:
        call(tab, channel, "enter", {"name": "Joe"})
    (row,) = [each for each in desk.get("/presence")["channels"] if each["channel"] == channel]
    assert row == {"channel": channel, "members": 1, "sessions": 2}
    assert desk.get(f"/presence{channel}") == {
        "channel": channel,
        "sessions": 2,
        "members": [{"id": subject, "sessions": 2, "data": {"name": "Joe"}}],
    }
    for tab in tabs:
        call(tab, channel, "leave")
    assert desk.get(f"/presence{channel}")["members"] == []
    refused = desk.ask("GET", "/presence/service/x")
    assert (refused.status, refused.json()["message"]) == (404, "sessions cannot be present on /service/x")


def test_a_list_has_pages(server: Server, desk: Desk, subject: str, channel: str) -> None:
    person = Person(server).be(f"{subject}/1", token=TOKEN)
    names = [f"{channel}/{number}" for number in range(3)]
    for name in names:
        call(person, name, "enter")
    page = desk.get("/presence?count=1&after=" + channel)
    assert [each["channel"] for each in page["channels"]] == names[:1]
    assert desk.get(f"/presence?count=2&after={page['next']}")["channels"][0]["channel"] == names[1]


def test_what_is_masked_is_masked(start_server: StartServer) -> None:
    server = start_server(*SETS, "admin.mask=email")
    call(Person(server).be("joe/1", token=TOKEN), "/room", "enter", {"email": "joe@example.org", "name": "Joe"})
    (member,) = Desk(server).get("/presence/room")["members"]
    assert member["data"] == {"email": "***", "name": "Joe"}
