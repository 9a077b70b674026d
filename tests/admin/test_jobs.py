"""Jobs: work on many, which the server does, and the next server if it is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.admin.desk import TOKEN, Desk, Receiver, publish
from tests.cli.command import crewel
from tests.functional.bayeux import Message
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.server


def ended(desk: Desk, job: dict[str, Any]) -> dict[str, Any]:
    """The job when it has ended."""
    shown: dict[str, Any] = until(
        lambda: found if (found := desk.get(f"/jobs/{job['id']}"))["ended"] is not None else None
    )
    return shown


def test_a_redrive_is_a_job_with_all_that_was_asked_for(
    desk: Desk, dead: list[str], receiver: Receiver, subject: str
) -> None:
    asked = {"what": "redrive", "all": True, "receiver": subject, "reason": "paper is in", "rate": 1000}
    begun = desk.post("/jobs", asked)
    assert (begun["state"], begun["total"], begun["who"], begun["node"]) == ("running", 5, "admin", "heron")
    assert (begun["choice"]["receiver"], begun["reason"], begun["rate"]) == (f"client/{subject}", "paper is in", 1000)
    job = ended(desk, begun)
    assert (job["state"], job["done"], job["undone"], job["errors"]) == ("done", 5, 0, [])
    assert [message["data"] for message in receiver.take_all()] == list(range(5))
    assert dead
    assert desk.get("/jobs?count=1000")["jobs"][0]["began"] >= begun["began"]
    of_audit = until(lambda: them if len(them := desk.get(f"/audit?about={job['id']}")["entries"]) == 2 else None)
    assert [(entry["what"], entry["count"]) for entry in of_audit] == [
        ("end of job: redrive", 5),
        ("begin job: redrive", 5),
    ]


def test_a_job_works_on_what_a_dry_run_has_counted(
    desk: Desk, server: Server, dead: list[str], receiver: Receiver, subject: str, channel: str
) -> None:
    asked = {"all": True, "receiver": f"client/{subject}/1"}
    counted = desk.post("/dead-letters/discard", {**asked, "dryRun": True})
    assert (counted["count"], counted["until"]) == (5, dead[-1])
    publish(server, channel, 1, first=5)
    receiver.reject(receiver.take())
    until(lambda: len(desk.letters(f"receiver={subject}")) == 6)
    job = ended(desk, desk.post("/jobs", {"what": "discard", **asked, "until": counted["until"]}))
    assert (job["total"], job["done"]) == (5, 5)
    assert [letter["data"] for letter in desk.letters(f"receiver={subject}")] == [5]


def test_a_job_names_what_became_of_each_dead_letter(
    desk: Desk, server: Server, dead: list[str], receiver: Receiver, subject: str, tmp_path: Path
) -> None:
    redriving = ended(desk, desk.post("/jobs", {"what": "redrive", "ids": dead[:3]}))
    rows, after = [], ""
    while True:
        page = desk.get(f"/jobs/{redriving['id']}/letters?count=1{after}")
        rows += page["letters"]
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    assert sorted(row["letter"] for row in rows) == dead[:3]
    assert {row["to"] for row in rows} == {f"client/{subject}/1"}
    assert {row["state"] for row in rows} == {"waiting"}
    taken = receiver.take_all()
    receiver.reject(taken[:1])
    receiver.accept(taken[1:])
    path = f"/jobs/{redriving['id']}/letters"
    page = until(lambda: found if "waiting" not in (found := desk.get(path))["states"] else None)
    assert (page["states"], page["partial"]) == ({"acknowledged": 2, "dead letter": 1}, False)
    [back] = [row for row in page["letters"] if row["state"] == "dead letter"]
    assert back["redrivenAs"] == taken[0]["ext"]["update"]["id"]
    asked = ("--json", "--url", server.url, "--token", TOKEN)
    shown = json.loads(crewel("jobs", "show", redriving["id"], *asked, directory=tmp_path).out)
    assert shown["became"] == {"acknowledged": 2, "dead letter": 1}
    assert sorted(row["redrivenAs"] for row in rows) == sorted(each["ext"]["update"]["id"] for each in taken)
    discarding = ended(desk, desk.post("/jobs", {"what": "discard", "ids": dead[3:]}))
    rows = desk.get(f"/jobs/{discarding['id']}/letters")["letters"]
    assert [(row["letter"], row["redrivenAs"]) for row in rows] == [(each, "") for each in dead[3:]]
    assert desk.ask("GET", "/jobs/1-1/letters").status == 404
    assert desk.ask("GET", f"/jobs/{discarding['id']}/letters?after=x").status == 400


def test_what_another_operator_took_is_told(desk: Desk, dead: list[str], subject: str) -> None:
    """Both are answered: one has the dead letter, and the other reads that it is gone."""
    desk.post("/dead-letters/discard", {"ids": dead[1:2]})
    job = ended(desk, desk.post("/jobs", {"what": "redrive", "ids": dead}))
    assert (job["state"], job["total"], job["done"], job["undone"]) == ("done", 4, 4, 1)
    [error] = job["errors"]
    assert (error["id"], error["message"]) == (dead[1], "there is no such dead letter, or it has been removed")
    taken = desk.post("/dead-letters/redrive", {"ids": dead[:1]})
    assert (taken["redriven"], taken["undone"][0]["id"]) == (0, dead[0])
    assert desk.letters(f"receiver={subject}") == []


def test_discard_and_drain_are_jobs(desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str) -> None:
    publish(server, channel, 4)
    assert receiver.id
    names = [f"client/{subject}/1", f"client/{subject}/9"]
    drained = ended(desk, desk.post("/jobs", {"what": "drain", "sessions": names}))
    assert (drained["state"], drained["total"], drained["done"], drained["undone"]) == ("done", 4, 4, 1)
    assert drained["errors"][0]["message"] == f"there is no session client/{subject}/9 here"
    until(lambda: len(desk.letters(f"receiver={subject}")) == 4)
    discarded = ended(desk, desk.post("/jobs", {"what": "discard", "all": True, "receiver": subject}))
    assert (discarded["state"], discarded["done"]) == ("done", 4)
    assert desk.letters(f"receiver={subject}") == []
    publish(server, channel, 2)
    assert ended(desk, desk.post("/jobs", {"what": "drain", "subject": subject}))["done"] == 2


def test_a_job_is_paused_resumed_and_stopped(desk: Desk, dead: list[str], receiver: Receiver, subject: str) -> None:
    """It waits for its rate, so that it is steered in the middle."""
    job = desk.post("/jobs", {"what": "redrive", "all": True, "receiver": subject, "rate": 0.5})
    path = f"/jobs/{job['id']}"
    until(lambda: desk.get(path)["done"] == 1)
    assert desk.post(f"{path}/pause", {"reason": "wait"})["state"] == "paused"
    assert desk.post(f"{path}/resume")["state"] == "running"
    until(lambda: desk.get(path)["done"] == 2)
    stopped = desk.post(f"{path}/stop")
    assert (stopped["state"], stopped["changedBy"], stopped["ended"] is not None) == ("stopped", "admin", True)
    left = 5 - len(receiver.take_all())
    assert len(desk.letters(f"receiver={subject}")) == left >= 2
    assert dead
    refused = desk.ask("POST", f"{path}/resume")
    assert (refused.status, refused.json()["message"]) == (400, "job: must be paused or running, but is stopped")


@pytest.fixture
def narrow(server: Server, desk: Desk, channel: str, subject: str) -> Receiver:
    """A receiver whose queue takes two messages, with five dead letters of this channel."""
    person = Receiver(server).be(f"{subject}/2", queue={"maxEntries": 2})
    person.subscribe(channel)
    publish(server, channel, 5)
    until(lambda: len(desk.letters(f"receiver=client/{subject}/2")) == 3)  # that had no room
    person.reject(person.take())
    until(lambda: len(desk.letters(f"receiver=client/{subject}/2")) == 5)
    return person


def waits(desk: Desk, job: dict[str, Any]) -> dict[str, Any]:
    """The job when it waits for room."""
    shown: dict[str, Any] = until(lambda: found if (found := desk.get(f"/jobs/{job['id']}"))["waitsFor"] else None)
    return shown


def test_a_redrive_waits_for_room_and_goes_on_with_other_receivers(
    desk: Desk, server: Server, narrow: Receiver, receiver: Receiver, channel: str, subject: str, tmp_path: Path
) -> None:
    publish(server, channel, 2, first=5)  # the narrow one is given dead letters of these too, unless it has room
    receiver.reject(receiver.take())
    until(lambda: len(desk.letters(f"receiver=client/{subject}/1")) == 2)
    narrow.accept(narrow.take_all())
    began = desk.post("/jobs", {"what": "redrive", "all": True, "channel": channel})
    until(lambda: waits(desk, began)["done"] == 4)
    job = waits(desk, began)
    assert (job["state"], job["waitsFor"]) == ("running", [f"client/{subject}/2"])
    assert job["error"] == f"waiting for room in the queue of client/{subject}/2"
    assert (job["undone"], job["waitForRoomMs"]) == (0, 600_000)
    assert {message["data"] for message in receiver.take_all()} == {5, 6}
    asked = ("--url", server.url, "--token", TOKEN, "--no-json")
    assert "waiting for room" in crewel("jobs", "list", "--state=running", *asked, directory=tmp_path).out
    taken: list[Any] = []
    messages: list[Message] = []
    while len(taken) < 5:
        messages = messages or until(narrow.take)
        taken += [message["data"] for message in messages]
        messages = narrow.say(*({"id": each["ext"]["update"]["id"], "state": "OK"} for each in messages))
    job = ended(desk, job)
    assert (job["state"], job["done"], job["undone"], job["waitsFor"], job["error"]) == ("done", 7, 0, [], "")
    assert sorted(taken) == list(range(5))
    assert desk.letters(f"channel={channel}") == []


def test_a_redrive_that_waits_can_be_stopped(desk: Desk, narrow: Receiver, subject: str) -> None:
    job = desk.post("/jobs", {"what": "redrive", "all": True, "receiver": f"client/{subject}/2"})
    assert waits(desk, job)["done"] == 2
    stopped = desk.post(f"/jobs/{job['id']}/stop")
    assert (stopped["state"], stopped["waitsFor"]) == ("stopped", [])
    assert len(desk.letters(f"receiver=client/{subject}/2")) == 3
    assert len(narrow.take_all()) == 2


@pytest.mark.parametrize("patience", [0, 1200])
def test_what_has_no_room_stays_when_the_patience_ends(
    desk: Desk, narrow: Receiver, subject: str, patience: int
) -> None:
    name = f"client/{subject}/2"
    job = desk.post("/jobs", {"what": "redrive", "all": True, "receiver": name, "waitForRoomMs": patience})
    job = ended(desk, job)
    assert (job["state"], job["done"], job["undone"]) == ("done", 2, 3)
    assert {each["message"] for each in job["errors"]} == {f"the queue of {name} is full"}
    assert len({each["id"] for each in job["errors"]}) == 3
    assert narrow.take_all()


def test_a_receiver_that_ends_is_waited_for_no_longer_than_one_that_is_full(
    desk: Desk, narrow: Receiver, subject: str
) -> None:
    name = f"client/{subject}/2"
    job = waits(desk, desk.post("/jobs", {"what": "redrive", "all": True, "receiver": name, "waitForRoomMs": 1500}))
    narrow.disconnect()
    job = ended(desk, job)
    assert job["done"] == 2
    assert {each["errorCode"] for each in job["errors"]} == {"user.ptp.unknownDestinationSession"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "what: is required: one of redrive, discard, drain"),
        ({"what": "erase"}, "what: must be one of redrive, discard, drain"),
        ({"what": "redrive"}, "ids: is required"),
        ({"what": "redrive", "all": True, "sessions": ["joe/1"]}, "sessions: is only for drains of receivers"),
        ({"what": "discard", "all": True, "rate": 5}, "rate: is only for redrives"),
        ({"what": "discard", "all": True, "waitForRoomMs": 5}, "waitForRoomMs: is only for redrives"),
        ({"what": "redrive", "all": True, "waitForRoomMs": -1}, "waitForRoomMs: must be a whole number"),
        ({"what": "drain"}, "sessions: is required, or `subject`"),
        ({"what": "drain", "sessions": ["joe"]}, "sessions.0: must be the name of a session"),
        ({"what": "drain", "sessions": []}, "sessions: must name an existing session"),
        ({"what": "drain", "subject": "absent"}, "subject: must have sessions, and absent has none"),
        ({"what": "drain", "subject": "joe/1"}, "subject: must be the name of a subject"),
        (
            {"what": "drain", "subject": "joe", "code": "user"},
            "code: is only for redrives and discards of dead letters",
        ),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(desk: Desk, body: Any, words: str) -> None:
    response = desk.ask("POST", "/jobs", body)
    assert response.status == 400
    assert words in response.json()["message"]


def test_jobs_are_listed_by_state_a_page_at_a_time(desk: Desk, dead: list[str]) -> None:
    made = [ended(desk, desk.post("/jobs", {"what": "discard", "ids": [dead_id]}))["id"] for dead_id in dead[:3]]
    first = desk.get("/jobs?state=done&count=2")
    assert len(first["jobs"]) == 2
    second = desk.get(f"/jobs?state=done&count=1000&after={first['next']}")
    found = [job["id"] for job in (*first["jobs"], *second["jobs"])]
    assert set(made) <= set(found)
    assert [job["state"] for job in second["jobs"]] == ["done"] * len(second["jobs"])
    assert desk.ask("GET", "/jobs/1-1").status == desk.ask("GET", "/jobs/x").status == 404
