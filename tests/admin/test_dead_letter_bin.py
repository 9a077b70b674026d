"""Dead letters that are discarded and restored, edited, found by a field or a reason; attempts; and test messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.desk import STORED, Desk, Receiver, publish
from tests.admin.test_audit import entries
from tests.functional.bayeux import Message
from tests.functional.wire import until
from tests.server_process import Server


def letters_of(desk: Desk, subject: str, count: int, query: str = "") -> list[dict[str, Any]]:
    """So many dead letters of the subject, as soon as they are there."""
    return until(lambda: found if len(found := desk.letters(f"receiver={subject}{query}")) == count else None)


def refusal(desk: Desk, path: str, body: Any) -> str:
    response = desk.ask("POST", path, body)
    assert response.status in (400, 403, 404), response
    return str(response.json()["message"])


def binned(desk: Desk, subject: str, query: str = "") -> list[dict[str, Any]]:
    found = desk.get(f"/dead-letters/bin?receiver={subject}{query}")["letters"]
    assert isinstance(found, list)
    return found


def test_a_discard_can_be_undone(desk: Desk, dead: list[str], subject: str) -> None:
    before = desk.get(f"/dead-letters/{dead[0]}")
    assert desk.post("/dead-letters/discard", {"ids": dead[:2], "reason": "by mistake"})["discarded"] == 2
    assert desk.get(f"/dead-letters/count?receiver={subject}")["count"] == 3
    assert desk.ask("GET", f"/dead-letters/{dead[0]}").status == 404
    second, first = binned(desk, subject)
    assert (first["id"], second["id"]) == (dead[0], dead[1])
    assert (first["discarded"]["who"], first["discarded"]["job"]) == ("admin", "")
    assert first["discarded"]["until"] - first["discarded"]["at"] == 86_400_000
    shown = desk.get(f"/dead-letters/bin/{dead[0]}")
    assert {name: shown[name] for name in ("data", "reason", "may")} == {"data": 0, "reason": "no", "may": "destroy"}
    entries(desk, f"what=discard&contains={dead[0]}")
    gone = desk.get(f"/dead-letters/{dead[0]}/end")
    assert (gone["end"], gone["reason"], gone["binned"]) == ("discarded", "by mistake", True)

    told = desk.post("/dead-letters/restore", {"ids": [dead[0], "1-1"], "reason": "still needed"})
    assert (told["restored"], told["next"]) == (1, "")
    new = told["ids"][dead[0]]
    restored = desk.get(f"/dead-letters/{new}")
    assert restored == {**before, "id": new, "restoredFrom": dead[0]}
    gone = desk.get(f"/dead-letters/{dead[0]}/end")
    assert (gone["end"], gone["restoredAs"], gone["who"]) == ("restored", new, "admin")
    assert [each["id"] for each in binned(desk, subject)] == [dead[1]]
    (entry,) = entries(desk, f"what=restore&contains={dead[0]}")
    assert (entry["count"], entry["reason"], entry["details"]["ids"]) == (1, "still needed", ["1-1", dead[0]])
    assert entry["details"]["restoredAs"] == [new]
    again = desk.post("/dead-letters/restore", {"all": True, "receiver": subject})["ids"]
    (entry,) = entries(desk, f"what=restore&contains={dead[1]}")
    assert (entry["details"]["ids"], entry["details"]["restoredAs"]) == ([dead[1]], [again[dead[1]]])
    assert desk.post("/dead-letters/redrive", {"ids": [new]})["redriven"] == 1


def test_what_a_job_discarded_is_restored_at_once(desk: Desk, dead: list[str], subject: str) -> None:
    job = desk.post("/jobs", {"what": "discard", "all": True, "receiver": subject})
    until(lambda: desk.get(f"/jobs/{job['id']}")["state"] == "done")
    assert desk.get(f"/dead-letters/bin?job={job['id']}&count=2")["next"]
    assert len(binned(desk, subject, f"&job={job['id']}")) == 5
    assert desk.post("/dead-letters/restore", {"job": job["id"]})["restored"] == 5
    assert len(desk.letters(f"receiver={subject}")) == 5
    assert binned(desk, subject) == []
    assert desk.post("/dead-letters/restore", {"all": True, "receiver": subject})["restored"] == 0


def test_what_is_restored_keeps_its_order(desk: Desk, dead: list[str], subject: str) -> None:
    def data() -> list[int]:
        return [each["data"] for each in desk.letters(f"receiver={subject}")]

    desk.post("/dead-letters/discard", {"ids": dead[::-1]})
    assert [each["data"] for each in binned(desk, subject)] == [4, 3, 2, 1, 0]
    desk.post("/dead-letters/restore", {"ids": [dead[4], dead[0], dead[2]]})
    assert data() == [0, 2, 4]
    desk.post("/dead-letters/restore", {"all": True, "receiver": subject})
    assert data() == [0, 2, 4, 1, 3]
    job = desk.post(
        "/jobs", {"what": "discard", "ids": [each["id"] for each in desk.letters(f"receiver={subject}")][::-1]}
    )
    until(lambda: desk.get(f"/jobs/{job['id']}")["state"] == "done")
    assert desk.post("/dead-letters/restore", {"job": job["id"]})["restored"] == 5
    assert data() == [0, 2, 4, 1, 3]


def test_what_is_discarded_for_good_cannot_be_restored(desk: Desk, dead: list[str], subject: str) -> None:
    desk.post("/dead-letters/discard", {"ids": dead[:1]})
    assert desk.post("/dead-letters/discard", {"ids": dead[:2], "forGood": True})["discarded"] == 2
    assert binned(desk, subject) == []
    assert desk.get(f"/dead-letters/{dead[1]}/end")["binned"] is False
    job = desk.post("/jobs", {"what": "discard", "all": True, "receiver": subject, "forGood": True})
    until(lambda: desk.get(f"/jobs/{job['id']}")["state"] == "done")
    assert binned(desk, subject) == []
    assert "is only for discards" in refusal(desk, "/jobs", {"what": "redrive", "ids": ["1-1"], "forGood": True})


def test_a_restore_needs_one_choice(desk: Desk) -> None:
    assert "only one of them" in refusal(desk, "/dead-letters/restore", {})
    assert "only one of them" in refusal(desk, "/dead-letters/restore", {"ids": ["1-1"], "all": True})
    assert "excludes `ids`" in refusal(desk, "/dead-letters/restore", {"ids": ["1-1"], "code": "user"})
    assert desk.ask("GET", "/dead-letters/bin/1-1").status == 404


def test_an_edited_message_goes_to_its_receiver_and_names_its_original(
    desk: Desk, dead: list[str], subject: str, receiver: Receiver
) -> None:
    told = desk.post(f"/dead-letters/{dead[1]}/edit", {"data": {"fixed": True}, "reason": "a field was missing"})
    assert told["original"] == dead[1]
    (message,) = until(receiver.take)
    assert (message["data"], message["ext"]["update"]["id"]) == ({"fixed": True}, told["redrivenAs"])
    (original,) = binned(desk, subject)
    assert (original["id"], original["data"], original["discarded"]["editedAs"]) == (dead[1], 1, told["redrivenAs"])
    gone = desk.get(f"/dead-letters/{dead[1]}/end")
    assert (gone["end"], gone["redrivenAs"], gone["edited"]) == ("redriven", told["redrivenAs"], True)

    receiver.reject([message], text="still wrong")
    new = next(each for each in letters_of(desk, subject, 5) if each["message"] == told["redrivenAs"])
    assert (new["redriveOf"], new["edited"], new["returns"]) == (dead[1], True, 1)
    assert [each.get("reason") or each["redrivenAs"] for each in new["history"]] == [
        "no",
        told["redrivenAs"],
        "still wrong",
    ]
    (entry,) = entries(desk, f"what=edit&about={dead[1]}")
    assert (entry["reason"], entry["details"]["redrivenAs"]) == ("a field was missing", told["redrivenAs"])


def test_the_original_of_an_edited_message_is_restored_by_its_id_only(
    desk: Desk, dead: list[str], subject: str, receiver: Receiver
) -> None:
    """Else a redrive of all would have the message processed a second time, under another id."""
    told = desk.post(f"/dead-letters/{dead[1]}/edit", {"data": {"fixed": True}})
    job = desk.post("/jobs", {"what": "discard", "ids": dead[:1]})
    until(lambda: desk.get(f"/jobs/{job['id']}")["state"] == "done")
    everything = {"all": True, "receiver": subject}
    done = desk.post("/dead-letters/restore", everything)
    assert (list(done["ids"]), done["edited"]) == ([dead[0]], {dead[1]: told["redrivenAs"]})
    done = desk.post("/dead-letters/restore", everything)
    assert (done["restored"], done["edited"]) == (0, {dead[1]: told["redrivenAs"]})
    assert desk.post("/dead-letters/redrive", everything)["redriven"] == 4
    taken: list[Message] = []
    until(lambda: taken.extend(receiver.take()) or len(taken) == 5)
    assert [each["data"] for each in taken] == [{"fixed": True}, 2, 3, 4, 0]

    (new,) = desk.post("/dead-letters/restore", {"ids": [dead[1]]})["ids"].values()
    assert desk.get(f"/dead-letters/{new}")["editedAs"] == told["redrivenAs"]
    desk.post("/dead-letters/discard", {"ids": [new]})
    (original,) = binned(desk, subject)
    assert (original["id"], original["discarded"]["editedAs"]) == (new, told["redrivenAs"])
    done = desk.post("/dead-letters/restore", everything)
    assert (done["restored"], done["edited"]) == (0, {new: told["redrivenAs"]})
    (again,) = desk.post("/dead-letters/restore", {"ids": [new]})["ids"].values()
    assert desk.get(f"/dead-letters/{again}")["editedAs"] == told["redrivenAs"]


def test_an_edit_that_cannot_be_is_refused_with_its_reason(
    desk: Desk, dead: list[str], receiver: Receiver, subject: str
) -> None:
    assert "is required" in refusal(desk, f"/dead-letters/{dead[0]}/edit", {})
    assert "there is no dead letter" in refusal(desk, "/dead-letters/1-1/edit", {"data": 1})
    receiver.disconnect()
    until(lambda: desk.ask("GET", f"/sessions/{subject}/1").status == 404)
    until(lambda: "there is no session" in refusal(desk, f"/dead-letters/{dead[0]}/edit", {"data": 1}))
    assert desk.get(f"/dead-letters/{dead[0]}")["data"] == 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("order=100", [0]),
        ("order=1000", [1]),
        ("order=1", []),
        ("order=100.0", [0]),
        ("lines.sku=A7", [2]),
        ("lines.sku=A", []),
        ("paid=true", [3]),
        ("note=null", [3]),
        ("a.b=c", [4]),
        ("name=100", [5]),
    ],
)
def test_dead_letters_are_found_by_the_exact_value_of_a_field(
    desk: Desk, orders: str, asked: str, found: list[int]
) -> None:
    letters = desk.letters(f"receiver={orders}&field={asked}")
    assert [ORDERS.index(each["data"]) for each in letters] == found
    assert desk.get(f"/dead-letters/count?receiver={orders}&field={asked}")["count"] == len(found)


ORDERS = [
    {"order": 100},
    {"order": 1000},
    {"lines": [{"sku": "B1"}, {"sku": "A7"}]},
    {"paid": True, "note": None},
    {"a.b": "c"},
    {"name": "100"},
]


@pytest.fixture
def orders(server: Server, desk: Desk, receiver: Receiver, channel: str, subject: str) -> str:
    """The subject of a receiver that has rejected one message of each kind."""
    speaker = Receiver(server).be()
    for data in ORDERS:
        speaker.publish(channel, data, ext=STORED)
    for number, message in enumerate(receiver.take()):
        receiver.reject([message], text=f"order {number} of 7 is cold" if number else "no paper")
    letters_of(desk, subject, len(ORDERS))
    return subject


def test_a_field_that_is_none_is_refused(desk: Desk) -> None:
    for wrong in ("order", "=100", "a..b=1"):
        response = desk.ask("GET", f"/dead-letters?field={wrong}")
        assert response.status == 400
        assert "order=100 or lines.sku=A7" in response.json()["message"]


def test_dead_letters_are_grouped_by_reason_whatever_its_numbers_are(desk: Desk, orders: str) -> None:
    found = desk.get(f"/dead-letters/groups?by=reason&receiver={orders}")
    assert found["groups"] == [{"value": "order # of # is cold", "count": 5}, {"value": "no paper", "count": 1}]
    query = f"/dead-letters/count?receiver={orders}&deadReason="
    assert desk.get(query + "order%20%23%20of%20%23%20is%20cold")["count"] == 5
    assert desk.get(query + "no%20paper")["count"] == 1
    assert any(each["value"] == "no paper" for each in desk.get("/dead-letters/groups?by=reason")["groups"])


def test_dead_letters_are_grouped_by_how_often_they_came_back(
    server: Server, desk: Desk, subject: str, channel: str
) -> None:
    person = Receiver(server).be(f"{subject}/1")
    person.subscribe(channel)
    publish(server, channel, 3)
    person.reject(person.take())
    (first, *_) = letters_of(desk, subject, 3)
    desk.post("/dead-letters/redrive", {"ids": [first["id"]]})
    person.reject(until(person.take))
    until(lambda: [each for each in letters_of(desk, subject, 3) if each["id"] != first["id"] and each.get("returns")])
    of_it = f"receiver=client/{subject}/1"
    found = desk.get(f"/dead-letters/groups?by=returns&{of_it}")["groups"]
    assert found == [{"value": "0", "count": 2}, {"value": "1", "count": 1}]
    assert {"value": "1", "count": 1} in [
        {**each, "count": min(each["count"], 1)} for each in desk.get("/dead-letters/groups?by=returns")["groups"]
    ]
    for returns, count in (("0", 2), ("1", 1), ("2", 0)):
        assert desk.get(f"/dead-letters/count?{of_it}&returns={returns}")["count"] == count
    for wrong in ("-1", "x", "1.5"):
        assert desk.ask("GET", f"/dead-letters?returns={wrong}").status == 400
    job = desk.post("/jobs", {"what": "discard", "all": True, "receiver": f"client/{subject}/1", "returns": 0})
    until(lambda: desk.get(f"/jobs/{job['id']}")["state"] == "done")
    (left,) = letters_of(desk, subject, 1)
    assert left["returns"] == 1


def test_each_attempt_is_kept_with_its_time_and_error(server: Server, desk: Desk, subject: str, channel: str) -> None:
    person = Receiver(server).be(f"{subject}/1", dispatcher={"retries": -1, "delay": 1})
    person.subscribe(channel)
    publish(server, channel, 1)
    for text in ("no paper", "no ink"):
        person.reject(until(person.take), "communication.noConnection", text)
    person.reject(until(person.take), "user.update.error", "no table")
    (letter,) = letters_of(desk, subject, 1)
    assert letter["attempts"] == 3
    history = letter["history"]
    assert [(each["errorCode"], each["reason"]) for each in history] == [
        ("communication.noConnection", "no paper"),
        ("communication.noConnection", "no ink"),
        ("user.update.error", "no table"),
    ]
    assert sorted(each["at"] for each in history) == [each["at"] for each in history]


def test_an_operator_publishes_a_test_message(desk: Desk, server: Server, receiver: Receiver, channel: str) -> None:
    told = desk.post(f"/publish{channel}", {"data": {"test": 1}, "persistent": True, "reason": "is it there?"})
    (message,) = until(receiver.take)
    assert (message["data"], message["ext"]["update"]["id"]) == ({"test": 1}, told["id"])
    assert desk.post(f"/publish{channel}", {"data": 2})["id"] is None
    assert [each["data"] for each in until(receiver.take)] == [2]
    written = entries(desk, f"what=publish&about={channel}", 2)
    assert [each["details"].get("message") for each in written] == [None, told["id"]]
    assert "is required" in refusal(desk, f"/publish{channel}", {})
    assert "cannot" not in refusal(desk, "/publish/__sys__deadMessage", {"data": 1})
    assert "without a wildcard" in refusal(desk, f"/publish{channel}/*", {"data": 1})
    assert "without a wildcard" in refusal(desk, "/publish/service/x", {"data": 1})
