"""The list of all receivers, and the timeline of one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.admin.desk import STORED, Desk, Receiver, publish
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.server


def listed(desk: Desk, query: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in desk.get(f"/receivers?count=1000&{query}")["receivers"]}


def test_sessions_subjects_and_groups_are_listed_together(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    assert receiver.id
    publish(server, channel, 2)
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "lunch"})
    speaker = Receiver(server).be()
    speaker.publish(
        f"{channel}/to", 1, ext={"publish": {"destination": [{"to": f"client/not{subject}", "forceQueuing": True}]}}
    )
    worker = Receiver(server).be(f"{subject}/2")
    [reply] = worker.send(
        worker.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"group": f"g{subject}"}})
    )
    assert reply["successful"] is True
    found = listed(desk, f"contains={subject}")
    held = found[f"client/{subject}/1"]
    assert (held["kind"], held["held"], held["cause"], held["waiting"]) == ("session", True, "lunch, by admin", 2)
    assert held["oldest"] > 1_700_000_000_000
    awaited = found[f"client/not{subject}"]
    assert (awaited["kind"], awaited["state"], awaited["waiting"], awaited["members"]) == ("subject", "EMPTY", 1, 0)
    assert awaited["cause"] == "no session takes its messages"
    group = found[f"{channel} g{subject}"]
    assert (group["kind"], group["state"], group["members"], group["cause"]) == ("group", "ALIVE", 1, "")
    desk.post(f"/sessions/{subject}/2/hold")
    group = listed(desk, f"contains=g{subject}&kind=group")[f"{channel} g{subject}"]
    assert (group["state"], group["cause"]) == ("POLLING", "all its members are away or on hold")
    publish(server, channel, 1)
    assert [channel, f"g{subject}", 1, 1] in [each[:4] for each in desk.get("/overview")["groups"]["empty"]]
    desk.post(f"/sessions/{subject}/2/activate")
    assert set(listed(desk, f"contains={subject}&kind=subject")) == {f"client/not{subject}"}
    assert set(listed(desk, f"contains={subject}&held=true")) == {f"client/{subject}/1"}
    assert set(listed(desk, f"contains={subject}&state=EMPTY")) == {f"client/not{subject}"}
    ordered = [each["waiting"] for each in desk.get(f"/receivers?contains={subject}&sort=waiting")["receivers"]]
    assert ordered == sorted(ordered, reverse=True)
    for sort in ("waiting", "oldest"):
        names, after = [], ""
        while True:
            page = desk.get(f"/receivers?contains={subject}&sort={sort}&count=1{after}")
            names += [each["name"] for each in page["receivers"]]
            if not page["next"]:
                break
            after = f"&after={quote(page['next'])}"
        assert sorted(names) == sorted(found)
        assert names[0] == f"client/{subject}/1"


def test_a_receiver_has_its_pace_and_the_age_of_its_queue(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    path = f"/sessions/{subject}/1"
    publish(server, channel, 3)
    taken = receiver.take_all()
    receiver.accept(taken[:1])
    shown = until(lambda: found if (found := desk.get(path))["pace"]["count"] == 1 else None)
    assert (shown["waiting"], shown["inFlight"]) == (2, 2)
    assert shown["oldest"] == int(taken[1]["ext"]["update"]["id"]) // 1000
    assert 0 < shown["pace"]["last"] - shown["oldest"] < 60_000
    assert shown["pace"]["withinMs"] <= 300_000
    receiver.accept(taken[1:])
    shown = until(lambda: found if (found := desk.get(path))["pace"]["count"] == 3 else None)
    assert (shown["oldest"], shown["inFlight"]) == (None, 0)


def test_receivers_are_found_by_where_their_client_is(
    desk: Desk, server: Server, receiver: Receiver, subject: str
) -> None:
    receiver.headers.append(("User-Agent", "a test"))
    here = receiver.hold(ext={"ack": receiver.batch})
    wanted = f"contains={subject}"
    found = until(lambda: listed(desk, f"{wanted}&transport=long-polling").get(f"client/{subject}/1"))
    assert (found["node"], found["address"], found["client"]) == ("heron", "127.0.0.1", "a test")
    assert listed(desk, f"{wanted}&address=127.0.&client=TEST")
    for other in ("transport=websocket", "transport=none", "address=10.", "client=cometd"):
        assert listed(desk, f"{wanted}&{other}") == {}, other
    shown = desk.get(f"/sessions/{subject}/1")
    assert (shown["transport"], shown["address"], shown["client"]) == ("long-polling", "127.0.0.1", "a test")
    here.close()
    away = until(lambda: listed(desk, f"{wanted}&transport=none").get(f"client/{subject}/1"))
    assert (away["address"], away["client"]) == ("127.0.0.1", "")


def cause(view: dict[str, Any], kind: str) -> dict[str, Any]:
    """The cause of this kind that a receiver has."""
    found: dict[str, Any] = next(each for each in view["causes"] if each["kind"] == kind)
    return found


def test_a_full_queue_says_since_when_and_what_it_has_turned_away(
    desk: Desk, server: Server, channel: str, subject: str
) -> None:
    person = Receiver(server).be(f"{subject}/1", queue={"maxEntries": 3})
    person.subscribe(channel)
    path, name = f"/sessions/{subject}/1", f"client/{subject}/1"
    publish(server, channel, 3)
    shown = until(lambda: found if (found := desk.get(path))["waiting"] == 3 else None)
    assert shown["conditions"] == ["full", "connected"]
    assert shown["cause"] == "its queue is full: 3 of 3 messages; further ones become dead letters"
    publish(server, channel, 5)
    until(lambda: cause(desk.get(path), "full").get("count") == 5)
    for view in (desk.get(path), listed(desk, f"contains={subject}")[name]):
        full = cause(view, "full")
        assert full["text"] == "its queue is full: 3 of 3 messages; 5 messages became dead letters"
        assert (full["level"], full["policy"]) == ("bad", "deadMessage")
        assert 1_700_000_000_000 < full["since"] <= full["at"]
    assert set(listed(desk, f"contains={subject}&condition=full")) == {name}
    events = desk.get(f"{path}/timeline")["events"]
    assert [(event["what"], event["count"], event["policy"]) for event in events] == [("overflow", 5, "deadMessage")]
    person.accept(person.take())
    shown = until(lambda: found if (found := desk.get(path))["waiting"] == 0 else None)
    assert (shown["conditions"], cause(shown, "overflow")["count"]) == (["connected"], 5)
    assert listed(desk, f"contains={subject}&condition=full") == {}


def test_an_absent_client_says_which_logins_of_its_name_were_refused(
    desk: Desk, server: Server, channel: str, subject: str
) -> None:
    path, name = f"/sessions/{subject}/1", f"client/{subject}/1"
    person = Receiver(server)
    assert person.shake(name=f"{subject}/1", update=True)["successful"]  # and it never connects
    shown = desk.get(path)
    assert (shown["conditions"], shown["cause"]) == (["away"], "its client is away")
    assert cause(shown, "away")["since"] <= shown["loggedIn"] + 1000
    stranger = Receiver(server)
    for _ in range(2):
        assert stranger.shake(name=f"{subject}/1", token="nonsense")["successful"] is False
    for view in (desk.get(path), listed(desk, f"contains={subject}&condition=away")[name]):
        assert [each["kind"] for each in view["causes"]] == ["refused", "away"]
        refused = cause(view, "refused")
        assert (refused["code"], refused["count"]) == ("user.security.authentication.accessDenied", 2)
        assert (refused["from"], refused["level"]) == ("127.0.0.1", "warn")
        assert "2 logins of its name were refused" in refused["text"]
    assert set(listed(desk, f"contains={subject}&cause=refused")) == {name}
    assert listed(desk, f"contains={subject}&cause=away") == {}  # that is not its most urgent cause
    event = desk.get(f"{path}/timeline")["events"][0]
    assert (event["what"], event["count"], event["from"]) == ("refused", 2, "127.0.0.1")
    assert (event["code"], event["at"]) == (refused["code"], pytest.approx(refused["at"], abs=1000))
    person.be(f"{subject}/1", resume=person.login["resume"])
    shown = desk.get(path)
    assert (shown["conditions"], shown["trouble"]) == (["no subscriptions", "connected"], 0)
    assert shown["cause"] == "it has no subscriptions: it takes only what is addressed to it"


def test_a_client_that_failed_or_works_says_so(desk: Desk, server: Server, channel: str, subject: str) -> None:
    path = f"/sessions/{subject}/1"
    person = Receiver(server).be(f"{subject}/1", maxOpen=1, dispatcher={"retries": 5, "delay": 60_000})
    person.subscribe(channel)
    publish(server, channel, 2)
    taken = until(person.take)
    shown = until(lambda: found if (found := desk.get(path))["waiting"] == 2 else None)
    assert (shown["conditions"], shown["trouble"]) == (["connected"], 2)  # it is no trouble
    busy = cause(shown, "busy")
    assert (busy["level"], busy["count"]) == ("info", 1)
    assert busy["text"] == "its client is busy: 1 message sent and not acknowledged, of at most 1"
    person.reject(taken, "communication.timeout", "no oven")
    shown = desk.get(path)
    assert (shown["conditions"], shown["cause"]) == (
        ["waiting to retry", "connected"],
        "communication.timeout: no oven",
    )
    retry = cause(shown, "retry")
    assert (retry["number"], retry["of"]) == (1, 5)
    assert retry["next"] > busy["since"]


def test_receivers_are_sorted_by_trouble(desk: Desk, server: Server, channel: str, subject: str) -> None:
    for number in (1, 2, 3):
        Receiver(server).be(f"{subject}/{number}", queue={"maxEntries": 2}).subscribe(f"{channel}/{number}")
    publish(server, f"{channel}/1", 1)
    publish(server, f"{channel}/2", 2)
    desk.post(f"/sessions/{subject}/3/hold")
    until(lambda: sum(each["waiting"] for each in listed(desk, f"contains={subject}").values()) == 3)
    names, after = [], ""
    while not names or after:
        page = desk.get(f"/receivers?contains={subject}&sort=trouble&count=1&after={quote(after) or '99999999999:a'}")
        names += [each["name"] for each in page["receivers"]]
        after = page["next"]
    assert names == [f"client/{subject}/{number}" for number in (3, 2, 1)]


def test_a_timeline_tells_what_happened(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    path = f"/sessions/{subject}/1/timeline"
    assert desk.get(path)["events"] == []
    publish(server, channel, 3)
    receiver.reject(receiver.take())
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "lunch", "code": "user.lunch"})
    desk.post(f"/sessions/{subject}/1/activate")
    publish(server, channel, 1)
    for operation in ("skip", "skip", "drain", "clear"):  # the second has nothing to skip, nor have the others
        desk.post(f"/sessions/{subject}/1/{operation}")
    receiver.publish(channel, 4, ext=STORED)
    desk.post(f"/sessions/{subject}/1/kill")
    told = until(lambda: them if (them := desk.get(path))["events"][0]["what"] == "died" else None)
    events = told["events"]
    assert [event["what"] for event in events] == ["died", "closed", "killed", "skipped", "released", "held", "failed"]
    died, closed, killed, skipped, _, held, failed = events
    assert (failed["code"], failed["outcome"], failed["count"]) == ("user.update.error", "letter", 3)
    assert (held["who"], held["reason"]) == ("admin", "lunch")
    assert (skipped["who"], skipped["messages"], skipped["count"]) == ("admin", 1, 1)
    assert (died["waiting"], closed["reason"]) == (1, "disconnected")
    assert (killed["who"], died["reason"]) == ("admin", "the server ended it")
    assert (told["since"], told["dropped"]) == (None, 0)
    assert desk.ask("GET", "/sessions/nobody/1/timeline").status == 404
