"""Where a message is: what the facts tell, and what operators are shown."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from crewel.admin import message_resource
from crewel.admin.message_history import MessageHistory, ReceiverOutcome, message_history
from crewel.delivery.records import LogId
from crewel.storage.message_facts import Fact
from tests.admin.desk import STORED, TOKEN, Desk, Receiver
from tests.cli.command import crewel
from tests.functional.wire import until
from tests.server_process import Server

ID = LogId(1_000_001)
PUBLISHED = Fact(5, "published", {"first": 1_000_000, "channels": ["/a", "/b"]})


def ended(session: str, reason: str, *ids: int, code: str = "") -> Fact:
    return Fact(9, "ended", {"ended": [{"session": session, "reason": reason, "ids": list(ids), "code": code}]})


def states(*facts: Fact) -> dict[str, str]:
    return {name: fate.state for name, fate in message_history(ID, facts).outcomes.items()}


def test_publish_tells_channel_and_time() -> None:
    told = message_history(ID, [PUBLISHED])
    assert (told.channel, told.published_ms, told.outcomes) == ("/b", 5, {})


@pytest.mark.parametrize(
    ("reason", "state"),
    [("settled", "acknowledged"), ("dead", "dead letter"), ("filtered", "filtered"), ("expired", "expired")],
)
def test_end_tells_the_state(reason: str, state: str) -> None:
    told = message_history(
        ID, [PUBLISHED, ended("client/joe/1", reason, 3, ID, code="user.update"), ended("client/ann/1", reason, 3)]
    )
    assert {name: (fate.state, fate.at_ms, fate.code) for name, fate in told.outcomes.items()} == {
        "client/joe/1": (state, 9, "user.update")
    }


def test_addressed_message_waits_in_its_queue_until_it_is_leased() -> None:
    addressed = Fact(
        5, "addressed", {"id": ID, "channel": "/b", "sessions": ["client/joe/1"], "queues": ["client/ann"]}
    )
    leased = Fact(6, "leased", {"queue": "client/ann", "leases": [{"session": "client/ann/1", "ids": [ID]}]})
    returned = Fact(7, "returned", {"queue": "client/ann", "ids": [ID]})
    other = Fact(5, "addressed", {"id": 7, "channel": f"/{ID}", "sessions": ["client/eve/1"], "queues": []})
    assert states(addressed, other) == {"client/joe/1": "waiting", "client/ann": "waiting"}
    assert states(addressed, leased) == {"client/joe/1": "waiting", "client/ann/1": "waiting"}
    back = states(addressed, leased, ended("client/ann/1", "returned", ID), returned)
    assert back == {"client/joe/1": "waiting", "client/ann": "waiting", "client/ann/1": "returned"}


def test_redrive_links_old_and_new() -> None:
    fields = {
        "letter": "5-0",
        "message": str(ID),
        "id": 2_000_000,
        "session": "client/joe/1",
        "code": "x",
        "returns": 0,
    }
    old = message_history(ID, [PUBLISHED, ended("client/joe/1", "dead", ID), Fact(9, "redriven", fields)])
    assert (old.redriven_as, old.outcomes["client/joe/1"].more) == (["2000000"], {"redrivenAs": "2000000"})
    new = message_history(LogId(2_000_000), [Fact(9, "redriven", fields)])
    assert (new.redrive_of, new.outcomes["client/joe/1"].state) == ("5-0", "waiting")


def test_discard_tells_who_did_it_for_which_receiver() -> None:
    fields = {
        "letters": ["7-0", "9-0", "9-1"],
        "messages": ["5", str(ID), str(ID)],
        "receivers": ["client/joe/1", "client/joe/1", "client/ann/1"],
        "who": "mary",
        "job": "3-1",
    }
    told = message_history(ID, [PUBLISHED, ended("client/joe/1", "dead", ID), Fact(11, "discarded", fields)])
    assert told.outcomes["client/joe/1"].more == {"discarded": {"letter": "9-0", "at": 11, "who": "mary", "job": "3-1"}}
    assert told.outcomes["client/ann/1"].more["discarded"]["letter"] == "9-1"
    of_before = Fact(11, "discarded", {"letters": ["9-0"], "who": "mary"})
    assert (
        message_history(ID, [PUBLISHED, ended("client/joe/1", "dead", ID), of_before]).outcomes["client/joe/1"].more
        == {}
    )


def published(server: Server, channel: str, data: Any, **publish: Any) -> str:
    """Publish a stored message; its id."""
    speaker = Receiver(server).be("speaker/1")
    answer = speaker.publish(channel, data, ext={"publish": {**STORED["publish"], **publish}})
    message_id = answer[-1]["ext"]["publish"]["id"]
    speaker.disconnect()
    assert isinstance(message_id, str)
    return message_id


def test_each_receiver_of_a_message_has_its_state(
    server: Server, desk: Desk, subject: str, channel: str, tmp_path: Any
) -> None:
    taker, rejecter, waiter, later = (Receiver(server).be(f"{subject}/{number}") for number in (1, 2, 3, 4))
    for each in (taker, rejecter, waiter):
        each.subscribe(channel)
    desk.post(f"/sessions/{subject}/3/hold")
    message_id = published(server, channel, "soup")
    later.subscribe(channel)
    taker.accept(taker.take())
    rejecter.reject(rejecter.take(), "user.update.error", "too salty")

    def told() -> dict[str, Any]:
        answer = desk.get(f"/messages/{message_id}")
        return {each["receiver"].rpartition("/")[2]: each for each in answer["receivers"]} | {"all": answer}

    def is_known() -> Any:
        now = told()
        return (
            now
            if {"acknowledged", "dead letter"} <= {each.get("state") for each in now.values()}
            and now["2"].get("letter")
            else None
        )

    found = until(is_known)
    assert (found["1"]["state"], found["3"]["state"], found["3"]["why"]) == (
        "acknowledged",
        "waiting",
        "on hold by admin",
    )
    assert (found["2"]["code"], found["2"]["reason"], found["2"]["attempts"]) == ("user.update.error", "too salty", 1)
    assert found["all"]["notFor"] == [{"receiver": f"client/{subject}/4", "why": "subscribed later"}]
    assert (found["all"]["channel"], found["all"]["recorded"], found["all"]["partial"]) == (channel, True, False)
    assert desk.get(f"/messages/{found['2']['letter']}")["message"] == message_id
    assert found["all"]["states"] == {"acknowledged": 1, "dead letter": 1, "waiting": 1}
    (only,) = desk.get(f"/messages/{message_id}?receiver={subject}/3")["receivers"]
    assert only["state"] == "waiting"
    desk.post("/dead-letters/redrive", {"ids": [found["2"]["letter"]]})
    redriven = until(lambda: told()["all"]["redrivenAs"])
    assert desk.get(f"/messages/{redriven[0]}")["redriveOf"] == found["2"]["letter"]
    printed = crewel("message", message_id, "--no-json", "--url", server.url, "--token", TOKEN, directory=tmp_path)
    assert printed.status == 0, printed
    assert f"message {message_id}, channel {channel}, published 2" in printed.out
    for words in (
        "acknowledged",
        "dead letter",
        "on hold by admin",
        "not for it: subscribed later",
        f"redriven as {redriven[0]}",
    ):
        assert words in printed.out


def test_what_its_publisher_said_is_shown_as_long_as_the_store_has_it(
    server: Server, desk: Desk, receiver: Receiver, subject: str, channel: str
) -> None:
    desk.post(f"/sessions/{subject}/1/hold")
    choosy = Receiver(server).be(f"{subject}/2")
    wanted = {"subscribe": {"filter": "data.order > `17`"}}
    choosy.send(choosy.message("/meta/subscribe", subscription=channel, ext=wanted))
    data = {"order": 17, "for": subject}
    message_id = published(server, channel, data, clientProperties={"table": 4})

    def told() -> Any:
        found = desk.get(f"/messages/{message_id}")
        return found if {each["state"] for each in found["receivers"]} >= {"waiting", "filtered"} else None

    found = until(told)
    assert (found["data"], found["sender"], found["firstPublishedAt"]) == (data, "client/speaker/1", None)
    assert found["qos"]["clientProperties"] == {"table": 4}
    filtered = next(each for each in found["receivers"] if each["receiver"].endswith("/2"))
    assert (filtered["state"], filtered["filters"]) == ("filtered", ["data.order > `17`"])
    for text in (f'"{subject}"', "TABLE"):
        rows = desk.get(f"/messages?contains={quote(text)}&count=1000")["messages"]
        assert [row["data"] for row in rows if row["message"] == message_id] == [data], text
    assert desk.get(f"/messages?contains=not{subject}")["messages"] == []
    for field, is_there in (("order=17", True), ("order=1", False), (f"for={subject}", True)):
        rows = desk.get(f"/messages?contains={subject}&field={quote(field)}")["messages"]
        assert (message_id in [row["message"] for row in rows]) is is_there, field
    assert desk.ask("GET", "/messages?field=order").status == 400
    assert desk.ask("GET", "/messages?after=x").status == 400
    desk.post(f"/sessions/{subject}/1/clear")
    assert receiver.id


def test_pages_of_a_search_continue_where_the_one_before_ended(server: Server, desk: Desk, subject: str) -> None:
    Receiver(server).be(f"{subject}/1").subscribe(f"/pages/{subject}")
    ids = [published(server, f"/pages/{subject}", f"{subject} {number}") for number in range(3)]
    first = desk.get(f"/messages?contains={subject}&count=2")
    second = desk.get(f"/messages?contains={subject}&count=2&after={first['next']}")
    assert [row["message"] for page in (first, second) for row in page["messages"]] == ids[::-1]
    assert second["next"] == ""


def test_message_is_found_by_its_idempotency_key(
    server: Server, desk: Desk, subject: str, channel: str, tmp_path: Any
) -> None:
    key = f"{subject} order/17"
    message_id = published(server, channel, {"order": 17}, key=key)
    assert published(server, channel, "again", key=key) == message_id
    to_one = {"destination": [{"to": f"client/{subject}", "forceQueuing": True}], "subscribable": False}
    addressed = published(server, channel, "to one", key=key, **to_one)
    assert desk.get(f"/messages/{message_id}")["key"] == key
    assert desk.get(f"/messages/{addressed}")["key"] == key

    rows = desk.get(f"/messages?key={quote(key)}")["messages"]
    assert [(row["message"], row["channel"]) for row in rows] == [(addressed, channel), (message_id, channel)]
    assert desk.get(f"/messages?key={quote(subject)}")["messages"] == []
    for more in (f"contains={subject}", "field=order=17"):
        assert desk.ask("GET", f"/messages?key=x&{more}").status == 400
    assert desk.ask("GET", "/messages?after=1-2").status == 400
    asked = ("message", "--key", key, "--url", server.url, "--token", TOKEN)
    printed = crewel(*asked, directory=tmp_path)
    assert [json.loads(line)["message"] for line in printed.out.splitlines()] == [addressed, message_id]
    assert crewel(*asked, "5", directory=tmp_path).status == 2
    one = f"{subject} order/18"
    message_id = published(server, channel, {"order": 18}, key=one)
    printed = crewel("message", "--key", one, *asked[3:], directory=tmp_path)
    assert (json.loads(printed.out)["message"], json.loads(printed.out)["receivers"]) == (message_id, [])
    unknown = crewel("message", "--key", "never", *asked[3:], directory=tmp_path)
    assert (unknown.status, unknown.out) == (1, "")
    assert "there is no record of a message with the key never" in unknown.err


def test_search_finds_what_waits_for_a_subject_or_a_group(
    server: Server, desk: Desk, subject: str, channel: str
) -> None:
    worker = Receiver(server).be(f"{subject}/1")
    worker.send(worker.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"group": "cooks"}}))
    desk.post(f"/sessions/{subject}/1/hold")
    shared = published(server, channel, f"{subject} for a cook")
    to_one = {"destination": [{"to": f"client/{subject}0", "forceQueuing": True}], "subscribable": False}
    addressed = published(server, channel, f"{subject} for one", **to_one)

    found = until(lambda: len((told := desk.get(f"/messages?contains={subject}%20FOR"))["queued"]) == 2 and told)
    assert [row["message"] for row in found["queued"]] == [addressed, shared]
    assert (found["queued"][0]["data"], found["queuedPartial"]) == (f"{subject} for one", False)
    assert desk.get(f"/messages?contains={subject}%20for&after={addressed}")["queued"] == []
    assert desk.get(f"/messages?contains={subject}&field=order=17")["queued"] == []


def test_a_dead_letter_that_has_gone_tells_who_took_it_away(
    server: Server, desk: Desk, receiver: Receiver, subject: str, channel: str
) -> None:
    message_id = published(server, channel, {"order": 17})
    receiver.reject(until(receiver.take), "user.update.error", "too salty")
    (letter,) = until(lambda: desk.letters(f"receiver=client/{subject}/1"))
    assert desk.get(f"/dead-letters/{letter['id']}/end")["end"] == "kept"
    desk.post("/dead-letters/redrive", {"ids": [letter["id"]]})
    end = desk.get(f"/dead-letters/{letter['id']}/end")
    assert (end["end"], end["message"], end["job"]) == ("redriven", message_id, "")
    receiver.reject(until(receiver.take), "user.update.error", "too salty")
    (again,) = until(lambda: desk.letters(f"receiver=client/{subject}/1"))
    assert again["message"] == end["redrivenAs"]
    told = desk.get(f"/messages/{again['id']}")
    assert (told["firstPublishedAt"], told["data"]) == (int(message_id) // 1000, {"order": 17})
    desk.post("/dead-letters/discard", {"ids": [again["id"]], "reason": "it is cold by now"})

    def discarded() -> Any:
        """The reason comes with the entry of the audit, which nothing waits for."""
        found = desk.get(f"/dead-letters/{again['id']}/end")
        return found if found["reason"] else None

    gone = until(discarded)
    assert (gone["end"], gone["who"], gone["reason"]) == ("discarded", "admin", "it is cold by now")
    assert (gone["message"], gone["job"]) == (end["redrivenAs"], "")
    (fate,) = desk.get(f"/messages/{gone['message']}")["receivers"]
    assert fate["state"] == "dead letter"
    assert fate["discarded"] == {name: gone[name] for name in ("letter", "at", "who", "reason", "job")}
    assert desk.ask("GET", "/dead-letters/x/end").status == desk.ask("GET", "/dead-letters/1-0/end").status == 404


def test_what_a_job_discarded_has_the_reason_of_the_job(desk: Desk, dead: list[str], subject: str) -> None:
    body = {"what": "discard", "all": True, "receiver": subject, "reason": "the kitchen is closed"}
    job = desk.post("/jobs", body)
    until(lambda: desk.get(f"/jobs/{job['id']}")["ended"])
    end = desk.get(f"/dead-letters/{dead[0]}/end")
    assert (end["reason"], end["job"]) == ("the kitchen is closed", job["id"])


def test_dead_letter_of_a_message_that_was_not_stored_tells_its_fate(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    Receiver(server).be().publish(channel, "soup")
    receiver.reject(until(receiver.take), "user.update.error", "too salty")
    (letter,) = until(lambda: desk.letters(f"receiver=client/{subject}/1"))
    told = desk.get(f"/messages/{letter['id']}")
    assert (told["message"], told["channel"], told["recorded"]) == (letter["message"], channel, False)
    (fate,) = told["receivers"]
    assert (fate["receiver"], fate["state"], fate["code"]) == (
        f"client/{subject}/1",
        "dead letter",
        "user.update.error",
    )
    assert (fate["letter"], fate["reason"], fate["attempts"]) == (letter["id"], "too salty", 1)


@pytest.mark.parametrize("wrong", ["1", "99999999999999999999", "x", "1795179106957-0", "%C3%A9"])
def test_unknown_message_is_not_there(desk: Desk, wrong: str) -> None:
    assert desk.ask("GET", f"/messages/{wrong}").status == 404


async def test_of_very_many_receivers_those_that_lack_the_message_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_resource, "_MOST_SHOWN", 3)
    states = {"a": "acknowledged", "b": "filtered", "c": "waiting", "d": "acknowledged", "e": "dead letter"}
    told = MessageHistory(outcomes={name: ReceiverOutcome(name, state) for name, state in states.items()})
    counts, shown = await message_resource._shown(told, "")
    assert [each.receiver for each in shown] == ["b", "c", "e"]
    assert counts == {"acknowledged": 2, "filtered": 1, "waiting": 1, "dead letter": 1}
    assert [each.receiver for each in (await message_resource._shown(told, "d"))[1]] == ["d"]
