"""The page's resource of one consumer group, and the rates of receivers, groups and topics."""

from __future__ import annotations

from time import time
from typing import Any
from urllib.parse import quote

from tests.admin.desk import Desk, Receiver, publish
from tests.functional.wire import until
from tests.server_process import Server


def join(server: Server, name: str, channel: str, group: str, **session: Any) -> Receiver:
    member = Receiver(server).be(name, **session)
    (reply,) = member.send(member.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"group": group}}))
    assert reply["successful"], reply
    return member


def test_a_group_shows_its_lag_its_position_and_which_member_has_what(
    server: Server, desk: Desk, subject: str, channel: str
) -> None:
    first = join(server, f"{subject}/1", channel, "workers", maxOpen=2)
    publish(server, channel, 5)
    told = until(lambda: found if (found := desk.get(f"/groups{channel}?name=workers"))["waiting"] == 3 else None)
    (member,) = told["members"]
    assert (member["name"], member["node"], member["open"]) == (f"client/{subject}/1", "heron", 2)
    assert (told["pattern"], told["name"], told["kept"]) == (channel, "workers", False)
    # The position is the first message that no member has.
    assert int(told["next"]) > max(map(int, member["messages"]))
    assert told["oldest"] == int(told["next"]) // 1000
    assert abs(told["oldest"] - time() * 1000) < 60_000

    while (told := desk.get(f"/groups{channel}?name=workers"))["waiting"] or told["members"][0]["open"]:
        first.accept(first.take())
    assert (told["next"], told["oldest"], told["members"][0]["messages"]) == (None, None, [])


def test_a_group_without_a_member_that_takes_messages_says_since_when_and_why(
    server: Server, desk: Desk, subject: str, channel: str
) -> None:
    join(server, f"{subject}/1", channel, "workers", maxOpen=1)
    publish(server, channel, 2)
    until(lambda: desk.get(f"/groups{channel}?name=workers")["waiting"] == 1)
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "paused"})
    (member,) = desk.get(f"/groups{channel}?name=workers")["members"]
    assert abs(member["since"] - time() * 1000) < 60_000

    def finding() -> list[dict[str, Any]]:
        found = desk.get("/overview")["findings"]
        return [each for each in found if each["key"] == "group-empty" and channel in each["title"]]

    (found,) = until(finding)
    assert found["since"] == member["since"]
    assert f"client/{subject}/1: {member['cause']}" in found["cause"]
    (row,) = desk.get(f"/receivers?cause=members&contains={quote(channel)}&sort=trouble")["receivers"]
    assert (row["since"], row["causes"][0]["level"]) == (member["since"], "bad")
    desk.post(f"/sessions/{subject}/1/activate")


def test_a_group_that_is_none_is_not_there(desk: Desk, channel: str) -> None:
    response = desk.ask("GET", f"/groups{channel}?name=nobody")
    assert (response.status, "neither members nor messages" in response.json()["message"]) == (404, True)
    assert desk.ask("GET", f"/groups{channel}").status == 400


def test_rates_tell_what_receivers_groups_and_topics_had_lately(
    server: Server, desk: Desk, receiver: Receiver, subject: str, channel: str
) -> None:
    join(server, f"{subject}/2", channel, "workers")
    publish(server, channel, 6)
    receiver.accept(until(lambda: found if len(found := receiver.take()) == 6 else None))

    def rates(by: str, name: str) -> list[float]:
        """Those of this name, as soon as they are there; the server keeps an answer for some seconds."""
        found: list[float] = until(lambda: desk.get(f"/rates?by={by}")["rates"].get(name))
        return found

    for by, name in (("receiver", f"client/{subject}/1"), ("topic", channel), ("group", f"{channel} workers")):
        found = rates(by, name)
        assert len(found) == 20
        assert round(sum(found) * 30) == 6, (by, found)
    told = desk.get("/rates?by=topic")
    assert len(told["at"]) == 20
    assert told["at"][-1] - told["at"][0] == 19 * 30_000
