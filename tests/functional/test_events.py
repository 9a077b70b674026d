"""The stream of events as a server writes it: what it says of a receiver's day, level by level."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from redis import Redis

from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message
from tests.functional.people import Person
from tests.functional.post import SETS, Office
from tests.functional.wire import figures, until
from tests.server_process import Server
from tests.store_process import shared_store

PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}
ADMIN = "the-admin-token-of-tests"
QUICK = (
    "delivery.commit_ms=20",
    "bayeux.timeout_ms=300",
    "events.flush_ms=50",
    "node.name=heron",
    f"admin.token={ADMIN}",
)


def groups(server: Server) -> list[dict[str, Any]]:
    """What the stream holds."""
    (prefix,) = [text.partition("=")[2] for text in server.store_sets if text.startswith("storage.prefix=")]
    with Redis.from_url(shared_store().url) as store:
        entries: Any = store.xrange(f"{prefix}{{crewel}}:events")
    return [orjson.loads(fields[b"d"]) for _, fields in entries]


def events(server: Server, *types: str) -> list[dict[str, Any]]:
    return [each for group in groups(server) for each in group["events"] if not types or each["type"] in types]


def live_through(server: Server) -> None:
    """A receiver settles one message, refuses one, and is held back by the next; somebody hears the same without promise."""
    plain = Client(server).start()
    plain.subscribe("/a")
    joe = Person(server).be("joe/1", update=True, settle="message")
    joe.subscribe("/a")
    publisher = Client(server).start()
    publisher.publish("/a", "passing")
    for number in range(3):
        publisher.publish("/a", number, **PERSISTENT)
    taken: list[Message] = []
    until(lambda: taken.extend(joe.take()) or len(taken) == 4)
    ids = {each["data"]: each["ext"]["update"]["id"] for each in taken}
    statuses = [
        {"id": ids["passing"], "state": "OK"},
        {"id": ids[0], "state": "OK"},
        {"id": ids[1], "errorCode": "user.update.error", "message": "no"},
        {"id": ids[2], "errorCode": "user.update.holdback", "message": "not now"},
    ]
    joe.publish("/service/update", statuses)
    assert figures(server)["crewel_held_sessions"] == 1
    joe.disconnect()
    assert figures(server)["crewel_held_sessions"] == 0


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("failures", ["failed", "failed", "held"]),
        ("reliable", ["closed", "failed", "failed", "held", "opened", "redelivered", "settled", "shape"]),
        (
            "all",
            [
                *["closed", "failed", "failed", "held", "opened"],
                *["redelivered", "settled", "shape", "traffic", "visitors"],
            ],
        ),
    ],
)
def test_a_receivers_day_is_told(start_server: StartServer, level: str, expected: list[str]) -> None:
    server = start_server(*QUICK, f"events.level={level}")
    live_through(server)
    until(lambda: len({each["type"] for each in events(server)} - {"visitors"}) == len({*expected} - {"visitors"}))
    server.terminate()
    told = events(server)
    seen = sorted(each["type"] for each in told if each["type"] != "visitors")
    assert seen == [each for each in expected if each != "visitors"]
    by_type = {each["type"]: each for each in told}
    refused, held = [each for each in told if each["type"] == "failed"]
    assert (refused["session"], refused["code"], refused["outcome"]) == ("client/joe/1", "user.update.error", "letter")
    assert (held["code"], held["outcome"]) == ("user.update.holdback", "held")
    assert (by_type["held"]["who"], by_type["held"]["id"]) == ("client/joe/1", held["id"])
    if level != "failures":
        assert by_type["opened"]["reliable"] is True
        assert (by_type["closed"]["session"], by_type["closed"]["reason"]) == ("client/joe/1", "disconnected")
        assert (by_type["settled"]["channel"], by_type["settled"]["count"]) == ("/a", 1)
        assert 0 <= by_type["settled"]["sum"] < 60_000
        assert (by_type["shape"]["channel"], by_type["shape"]["shape"]) == ("/a", "number")
        # A sample is looked at once in a second: the acknowledgement may be in the group before.
        assert by_type["shape"]["count"] in (0, 1)
    if level == "all":
        assert (by_type["traffic"]["published"], by_type["traffic"]["delivered"]) == (1, 2)
        assert sum(each["opened"] for each in told if each["type"] == "visitors") == 2


def test_groups_are_numbered_without_a_gap_and_say_who_wrote_them(start_server: StartServer) -> None:
    server = start_server(*QUICK)
    for number in range(3):
        Person(server).be(f"joe/{number + 1}")
        until(lambda: len(groups(server)) == number + 1)  # noqa: B023 - waited for here
    written = groups(server)
    assert [group["n"] for group in written] == [1, 2, 3]
    assert {group["node"] for group in written} == {"heron"}
    assert len({group["token"] for group in written}) == 1
    again = start_server(*server.store_sets, *QUICK, port=0) if server.terminate() == 0 else server
    Person(again).be("ann/1")
    until(lambda: len({group["token"] for group in groups(server)}) == 2)


def test_what_ends_for_good_says_why(start_server: StartServer) -> None:
    server = start_server(*QUICK)
    joe = Person(server).be("joe/1", update=True, settle="message")
    joe.subscribe("/a")
    Client(server).start().publish("/a", 1, **PERSISTENT)
    (message,) = until(joe.take)
    status = {
        "id": message["ext"]["update"]["id"],
        "errorCode": "user.security.authentication",
        "message": "who are you",
    }
    joe.send(joe.message("/service/update", data=[status]))
    (closed,) = until(lambda: events(server, "closed"))
    assert (closed["reason"], closed["code"]) == ("dead", "user.security.authentication")


def test_an_acknowledgement_after_a_long_silence_is_settled_on_its_channel(start_server: StartServer) -> None:
    office = Office(start_server(*SETS, "events.flush_ms=50"))
    joe = Person(office.server).be(office.name(1), persistent=True)
    joe.subscribe("/a")
    Client(office.server).start().publish("/a", 1, **PERSISTENT)
    (message,) = until(joe.take)
    assert message["data"] == 1
    until(lambda: office.state(1) == "POLLING")
    assert joe.take() == []
    (settled,) = until(lambda: events(office.server, "settled"))
    assert (settled["channel"], settled["count"]) == ("/a", 1)
    assert settled["sum"] >= 300


def test_each_failure_of_one_report_has_its_own_code(start_server: StartServer) -> None:
    server = start_server(*QUICK)
    joe = Person(server).be("joe/1", update=True, settle="message", dispatcher={"retries": 5, "delay": 60_000})
    joe.subscribe("/a")
    publisher = Client(server).start()
    for number in range(2):
        publisher.publish("/a", number, **PERSISTENT)
    taken: list[Message] = []
    until(lambda: taken.extend(joe.take()) or len(taken) == 2)
    ids = [each["ext"]["update"]["id"] for each in taken]
    codes = ["communication.noConnection", "user.update.holdback"]
    statuses = [{"id": each, "errorCode": code, "message": "no"} for each, code in zip(ids, codes, strict=True)]
    joe.publish("/service/update", statuses)
    until(lambda: len(events(server, "failed")) == 2)
    assert [(each["id"], each["code"]) for each in events(server, "failed")] == list(zip(ids, codes, strict=True))
