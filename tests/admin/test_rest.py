"""The REST resources: sessions, dead letters, and what is refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.admin.rest import ROUTES
from crewel.admin.route import API
from tests.admin.desk import SETS, TOKEN, Desk, Receiver, audit, publish
from tests.admin.test_audit import entries
from tests.conftest import StartServer
from tests.functional.bayeux import held, in_time
from tests.functional.wire import Connection, Response, resident, until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server
from tests.store_process import StoreProcess

NOBODY = "/sessions/nobody/1"
CLOSED = [route for route in ROUTES if not route.is_public]


def filled(path: str) -> str:
    """The path with its variables filled in."""
    return path.replace("{subject}", "nobody").replace("{number}", "1").replace("{id}", "1795179106957-0")


def error(response: Response, status: int, code: str = "user.illegalArgument") -> str:
    """The message of a refusal."""
    assert response.status == status, (response.status, response.body)
    told = response.json()
    assert set(told) == {"errorCode", "message"}
    assert told["errorCode"] == code
    message = told["message"]
    assert isinstance(message, str)
    assert message
    return message


# Who may ask


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xff"]
)
def test_a_request_without_a_token_is_refused(server: Server, route: Any, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = Desk(server, None).ask(route.method, filled(route.path), None, **headers)
    error(response, 401, "user.security.authentication.accessDenied")
    assert (response.header("WWW-Authenticate") or "").startswith("Bearer")
    assert response.header("Cache-Control") == "no-store"


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: f"{route.method} {route.path}")
def test_a_request_from_another_origin_is_refused(desk: Desk, route: Any) -> None:
    response = desk.ask(route.method, filled(route.path), None, Origin="https://example.org")
    error(response, 403, "user.security.authorization.notAuthorized")


def test_a_request_from_the_own_origin_is_served(desk: Desk, server: Server) -> None:
    assert desk.ask("GET", "/sessions", None, Origin=server.base).status == 200


def test_a_json_web_token_has_to_make_an_operator(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    assert Desk(server, signed(operator=True)).ask("GET", "/sessions").status == 200
    for claim in (None, False, "true", 1):
        response = Desk(server, signed(operator=claim)).ask("GET", "/sessions")
        error(response, 403, "user.security.authorization.notAuthorized")
    error(
        Desk(server, signed(operator=True, exp=5)).ask("GET", "/sessions"), 401, "user.security.authentication.expired"
    )
    operator = Receiver(server).be(token=signed(operator=True, publish=None))
    reply = operator.publish("/service/__cmd", {"command": "__cmd:?version"})
    assert reply[-1]["successful"] is True
    held_by = Desk(server, signed(operator=True))
    Receiver(server).be("joe/1", token=signed())
    assert held_by.post("/sessions/joe/1/hold")["holdback"]["who"] == "joe"


# What does not fit


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("GET", "/sessions?count=0", None, "count: must be a whole number, from 1 to 1000"),
        ("GET", "/sessions?count=1001", None, "count: must be"),
        ("GET", "/sessions?count=ten", None, "count: must be"),
        ("GET", "/sessions?count=", None, "count: must be"),
        ("GET", "/sessions?count=5&count=6", None, "must not repeat a field"),
        ("GET", "/sessions?state=alive", None, "state: must be one of ALIVE, POLLING, DEAD"),
        ("GET", "/sessions?active=yes", None, "active: must be true or false"),
        ("GET", "/sessions?subjet=joe", None, "subjet: there is no such field; did you mean subject?"),
        ("POST", NOBODY + "/hold", {"raeson": "x"}, "raeson: there is no such field; did you mean reason?"),
        ("POST", NOBODY + "/hold", {"reason": 5}, "reason: must be a string"),
        ("POST", NOBODY + "/hold", {"reason": "x" * 2000}, "reason: must be a string of 1 to 1024"),
        ("POST", NOBODY + "/hold", [], "body: must be a JSON object"),
        ("POST", NOBODY + "/hold", b"{", "body: must be a JSON object in UTF-8"),
        ("POST", NOBODY + "/hold", b"\xff", "body: must be a JSON object in UTF-8"),
        ("POST", "/commands", {}, "command: must be a text"),
        ("POST", "/commands", None, "command: must be a text"),
        ("POST", "/commands", {"cmd": "__cmd:?version"}, "cmd: there is no such field"),
        ("GET", "/dead-letters?code=a%20b", None, "code: must be an error code"),
        ("GET", "/dead-letters?receiver=a%2Fb%2Fc", None, "receiver: must be the name of a session or a subject"),
        ("GET", "/dead-letters?channel=chat", None, "channel: must be a channel or a pattern"),
        ("GET", "/dead-letters?since=yesterday", None, "since: must be a date such as"),
        ("GET", "/dead-letters?after=5", None, "after: must be the id of a dead letter"),
        ("GET", "/dead-letters?newestFirst=1", None, "newestFirst: must be true or false"),
        ("GET", "/dead-letters/export?count=5", None, "count: there is no such field"),
        ("GET", "/audit?outcome=well", None, "outcome: must be one of done, refused, failed"),
        ("GET", "/audit?after=5", None, "after: must be the `next` of the previous page"),
        ("POST", "/dead-letters/redrive", None, "ids: is required, or"),
        ("POST", "/dead-letters/redrive", {}, "ids: is required, or"),
        ("POST", "/dead-letters/redrive", {"all": False}, "all: must be true"),
        ("POST", "/dead-letters/redrive", {"all": True, "ids": []}, "ids: is required, or"),
        ("POST", "/dead-letters/redrive", {"ids": ["x"]}, "ids.0: must be the id of a dead letter"),
        ("POST", "/dead-letters/redrive", {"ids": "1-0"}, "ids: must be a list of at most 1000"),
        ("POST", "/dead-letters/redrive", {"ids": ["1-0"] * 1001}, "ids: must be a list of at most 1000"),
        ("POST", "/dead-letters/redrive", {"ids": ["1-0"], "code": "user"}, 'code: needs "all": true'),
        ("POST", "/dead-letters/redrive", {"all": True, "rate": 0}, "rate: must be a number from 0.001"),
        ("POST", "/dead-letters/redrive", {"all": True, "rate": True}, "rate: must be a number"),
        ("POST", "/dead-letters/redrive", {"all": True, "count": 10_001}, "count: must be a whole number, from 1"),
        ("POST", "/dead-letters/redrive", {"all": True, "toChannel": "no"}, "toChannel: must be true or false"),
        ("POST", "/dead-letters/redrive", {"all": True, "since": -1}, "since: must be a date"),
        ("POST", "/dead-letters/discard", {"all": True, "toChannel": True}, "toChannel: there is no such field"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_by_name(desk: Desk, method: str, path: str, body: Any, words: str) -> None:
    assert words in error(desk.ask(method, path, body), 400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", NOBODY),
        ("GET", "/sessions/nobody/0"),
        ("GET", "/sessions/nobody/x"),
        ("GET", "/sessions/no%20body/1"),
        ("GET", "/sessions/x%2Fjoe/1"),
        *(("POST", f"{NOBODY}/{what}") for what in ("activate", "hold", "skip", "drain", "ping", "kill")),
        ("GET", "/dead-letters/1795179106957-0"),
        ("GET", "/dead-letters/x"),
        ("GET", "/dead-letters/" + "9" * 200),
        ("GET", "/nothing"),
        ("GET", "/sessions/nobody"),
        ("POST", "/sessions/nobody/1/dance"),
    ],
)
def test_an_unknown_resource_is_404(desk: Desk, method: str, path: str) -> None:
    error(desk.ask(method, path), 404)


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/sessions"), ("GET", "/sign-out"), ("PUT", NOBODY)])
def test_another_method_is_405_with_the_allowed_ones(desk: Desk, method: str, path: str) -> None:
    response = desk.ask(method, path)
    error(response, 405)
    assert response.header("Allow") in ("GET", "POST")


def test_a_body_that_is_too_large_is_refused(start_server: StartServer) -> None:
    desk = Desk(start_server(*SETS, "bayeux.max_message_bytes=500"))
    error(desk.ask("POST", "/commands", {"command": "x" * 1000}), 413)


def test_dead_letters_are_unavailable_without_a_store(start_server: StartServer) -> None:
    desk = Desk(start_server(*SETS, "storage.enabled=false"))
    for path in (
        "/audit",
        "/audit/export",
        "/dead-letters",
        "/dead-letters/count",
        "/dead-letters/export",
        "/dead-letters/1-0",
    ):
        response = desk.ask("GET", path)
        assert "has no store" in error(response, 503, "resource.unavailable")
        assert response.header("Retry-After")
    error(desk.ask("POST", "/dead-letters/redrive", {"all": True}), 503, "resource.unavailable")
    assert desk.get("/sessions")["sessions"] == []
    assert desk.cmd("__cmd:?numDeadLetters") == 0


# Sessions


def test_sessions_are_paged_in_the_order_of_their_names(desk: Desk, server: Server, subject: str) -> None:
    for number in range(1, 6):
        Receiver(server).be(f"{subject}/{number}")
    names, after = [], ""
    while True:
        page = desk.get(f"/sessions?subject={subject}&count=2{after}")
        assert len(page["sessions"]) <= 2
        names += [session["name"] for session in page["sessions"]]
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    assert names == [f"client/{subject}/{number}" for number in range(1, 6)]


def test_sessions_are_filtered_by_state_and_by_holdback(desk: Desk, server: Server, subject: str) -> None:
    Receiver(server).be(f"{subject}/1")
    Receiver(server).shake(name=f"{subject}/2")
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "lunch", "code": "user.lunch"})

    def found(query: str) -> list[str]:
        return [session["name"] for session in desk.get(f"/sessions?subject={subject}&{query}")["sessions"]]

    assert found("state=ALIVE") == [f"client/{subject}/1"]
    assert found("state=POLLING") == [f"client/{subject}/2"]
    assert found("state=DEAD") == []
    assert found("active=false") == [f"client/{subject}/1"]
    assert found("active=true") == [f"client/{subject}/2"]


def test_a_session_is_shown_with_all_its_fields(desk: Desk, server: Server, subject: str, channel: str) -> None:
    receiver = Receiver(server).be(f"{subject}/1", queue={"maxEntries": 9, "onOverflow": "dropOldest"})
    receiver.subscribe(channel)
    publish(server, channel, 2)
    session = desk.get(f"/sessions/{subject}/1")
    expected = {
        "name": f"client/{subject}/1", "id": f"/node/heron/client/{subject}/1", "subject": subject, "state": "ALIVE",
        "active": True, "holdback": None, "waiting": 2, "maxEntries": 9, "maxBytes": 10_485_760,
        "onOverflow": "dropOldest", "subscriptions": [channel], "reliable": True, "durable": True, "operator": False,
        "transport": None, "pingMs": None,
    }  # fmt: skip
    assert session.items() >= expected.items()
    assert session["waitingBytes"] > 0
    assert session["loggedIn"] < session["expires"]
    assert receiver.id not in json.dumps(session)


def test_a_session_is_held_skipped_drained_and_activated(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    path = f"/sessions/{subject}/1"
    holdback = desk.post(f"{path}/hold", {"reason": "lunch"})["holdback"]
    assert (holdback["who"], holdback["reason"]) == ("admin", "lunch")
    assert desk.post(f"{path}/hold", {"reason": "again"})["holdback"] == holdback
    publish(server, channel, 4)
    assert desk.post(f"{path}/skip")["letters"] == 1
    drained = desk.post(f"{path}/drain")
    assert (drained["letters"], drained["active"], drained["waiting"]) == (3, False, 0)
    assert desk.post(f"{path}/skip")["letters"] == 0
    assert desk.post(f"{path}/drain")["letters"] == 0
    publish(server, channel, 1, first=9)
    assert receiver.take() == []
    assert desk.post(f"{path}/activate")["active"] is True
    assert [message["data"] for message in receiver.take()] == [9]
    letters = until(lambda: found if len(found := desk.letters(f"receiver={subject}")) == 4 else None)
    skipped, drained = (f"resource.maintenance.{what}" for what in ("skipped", "drained"))
    assert [(letter["data"], letter["errorCode"]) for letter in letters] == [
        (0, skipped), (1, drained), (2, drained), (3, drained),
    ]  # fmt: skip


def test_a_skip_takes_no_other_message_than_the_one_it_names(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    path = f"/sessions/{subject}/1"
    desk.post(f"{path}/hold")
    publish(server, channel, 3)
    first, *others = [each["ext"]["update"]["id"] for each in desk.get(f"{path}/messages")["messages"]]
    assert [desk.post(f"{path}/skip", {"message": first})["letters"] for _ in range(2)] == [1, 0]
    assert [each["ext"]["update"]["id"] for each in desk.get(f"{path}/messages")["messages"]] == others
    assert desk.post(f"{path}/skip", {"message": others[1]})["letters"] == 1
    assert desk.post(f"{path}/activate")["active"] is True
    assert [message["data"] for message in receiver.take()] == [1]


def test_a_session_is_pinged_and_killed(desk: Desk, receiver: Receiver, subject: str) -> None:
    receiver.say()

    def is_answered() -> None:
        began = time.monotonic()
        before = held(receiver.server)
        connection = receiver.ask_connect(ext={"ack": receiver.batch})
        until(lambda: held(receiver.server) > before)
        pinging = desk.send("POST", f"/sessions/{subject}/1/ping")
        connection.response()
        receiver.take()
        answer = pinging.response()
        assert answer.status == 200, answer
        assert 0 < answer.json()["pingMs"] <= 1000 * (time.monotonic() - began) + 1

    in_time(is_answered)
    error(desk.ask("POST", f"/sessions/{subject}/1/ping"), 504, "communication.noConnection")
    assert desk.post(f"/sessions/{subject}/1/kill") == {"name": f"client/{subject}/1", "killed": True}
    error(desk.ask("GET", f"/sessions/{subject}/1"), 404)


# Dead letters


def test_dead_letters_are_listed_with_all_their_fields(desk: Desk, dead: list[str], subject: str, channel: str) -> None:
    letters = desk.letters(f"receiver={subject}")
    assert [letter["id"] for letter in letters] == dead
    assert [letter["data"] for letter in letters] == [0, 1, 2, 3, 4]
    first = letters[0]
    expected = {
        "channel": channel, "receiver": f"/node/heron/client/{subject}/1", "errorCode": "user.update.error",
        "reason": "no", "attempts": 1, "persistent": True,
    }  # fmt: skip
    assert first.items() >= expected.items()
    assert first["rcvTimestamp"] == first["message"] + "000"
    assert desk.get(f"/dead-letters/{dead[0]}") == first | {"may": "destroy"}


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("code=user.update", 5),
        ("code=user.update.error", 5),
        ("code=user.upd", 0),
        ("code=communication", 0),
        ("receiver=client/SUBJECT/1", 5),
        ("receiver=/node/heron/client/SUBJECT/1", 5),
        ("receiver=SUBJECT/2", 0),
        ("channel=CHANNEL", 5),
        ("channel=/admin/*", 5),
        ("channel=/other/**", 0),
        ("since=1h", 5),
        ("since=2999-01-01", 0),
    ],
)
def test_dead_letters_are_filtered(
    desk: Desk, dead: list[str], subject: str, channel: str, query: str, count: int
) -> None:
    query = query.replace("SUBJECT", subject).replace("CHANNEL", channel)
    if not query.startswith("receiver="):
        query += f"&receiver={subject}"
    assert len(desk.letters(query)) == count
    assert desk.get(f"/dead-letters/count?{query}")["count"] == count
    assert len(exported(desk, query)) == count
    assert dead


def test_dead_letters_are_paged_in_both_directions(desk: Desk, dead: list[str], subject: str) -> None:
    for newest, expected in (("false", dead), ("true", dead[::-1])):
        found, after = [], ""
        while True:
            page = desk.get(f"/dead-letters?receiver={subject}&count=2&newestFirst={newest}{after}")
            found += [letter["id"] for letter in page["letters"]]
            if not page["next"]:
                break
            after = f"&after={page['next']}"
        assert found == expected
    assert [letter["id"] for letter in desk.letters(f"receiver={subject}&until={dead[2]}")] == dead[:3]


def exported(desk: Desk, query: str) -> list[Any]:
    response = desk.ask("GET", f"/dead-letters/export?{query}")
    assert (response.status, response.header("Content-Type")) == (200, "application/x-ndjson")
    return [json.loads(line) for line in response.body.splitlines()]


def test_the_export_holds_what_the_list_does(desk: Desk, dead: list[str], subject: str) -> None:
    assert exported(desk, f"receiver={subject}") == desk.letters(f"receiver={subject}")
    assert [each["id"] for each in exported(desk, f"receiver={subject}&after={dead[1]}")] == dead[2:]


def test_redrive_sends_dead_letters_to_their_receiver(
    desk: Desk, dead: list[str], receiver: Receiver, subject: str
) -> None:
    dry = desk.post("/dead-letters/redrive", {"all": True, "receiver": f"{subject}/1", "dryRun": True})
    assert dry["count"] == 5
    assert len(desk.letters(f"receiver={subject}")) == 5
    report = desk.post("/dead-letters/redrive", {"ids": [dead[3], dead[1]]})
    assert (report["redriven"], report["undone"], report["next"]) == (2, [], "")
    report = desk.post("/dead-letters/redrive", {"all": True, "receiver": subject})
    assert (report["redriven"], report["undone"], report["next"]) == (3, [], "")
    again = receiver.take_all()
    assert [message["data"] for message in again] == [1, 3, 0, 2, 4]  # those of one request: the oldest first
    properties = again[0]["ext"]["update"]["clientProperties"]
    assert properties["__redriveOf"] == dead[1]
    assert desk.letters(f"receiver={subject}") == []


def test_a_redrive_by_ids_that_ends_early_passes_none_over(
    desk: Desk, dead: list[str], receiver: Receiver, subject: str
) -> None:
    left = [dead[3], dead[0], dead[1]]
    report = desk.post("/dead-letters/redrive", {"ids": left, "count": 1})
    assert (report["redriven"], report["next"]) == (1, dead[0])
    # A client that continues behind `next` in its own order sends dead[1], and hears of the other.
    assert [(each["id"], each["errorCode"]) for each in report["undone"]] == [(dead[3], "resource.unavailable")]
    assert report["undoneCount"] == 1
    (entry,) = entries(desk, f"what=redrive&contains={dead[3]}")
    assert (entry["count"], entry["details"]["undone"]) == (1, 1)
    in_order = desk.post("/dead-letters/redrive", {"ids": dead[1:3], "count": 1})
    assert (in_order["redriven"], in_order["next"], in_order["undone"]) == (1, dead[1], [])
    assert [message["data"] for message in receiver.take_all()] == [0, 1]


def test_redrive_sends_a_returning_dead_letter_once(
    desk: Desk, dead: list[str], receiver: Receiver, subject: str
) -> None:
    desk.post("/dead-letters/redrive", {"ids": dead[:1]})
    (message,) = receiver.take()
    receiver.reject([message])
    letters = until(lambda: found if len(found := desk.letters(f"receiver={subject}")) == 5 else None)
    assert (letters[-1]["redriveOf"], letters[-1]["returns"]) == (dead[0], 1)
    report = desk.post("/dead-letters/redrive", {"all": True, "receiver": subject, "until": dead[-1]})
    assert report["redriven"] == 4


def test_redrive_keeps_and_reports_what_cannot_be_sent(desk: Desk, dead: list[str], subject: str) -> None:
    desk.post(f"/sessions/{subject}/1/kill")

    def report() -> Any:
        return desk.post("/dead-letters/redrive", {"all": True, "receiver": subject})

    answered = report()
    assert (answered["redriven"], answered["undoneCount"], answered["next"]) == (0, 5, "")
    assert {each["errorCode"] for each in answered["undone"]} == {"user.ptp.unknownDestinationSession"}
    assert [each["id"] for each in answered["undone"]] == dead
    gone = desk.post("/dead-letters/redrive", {"ids": ["1-0"]})
    assert [(each["id"], each["errorCode"]) for each in gone["undone"]] == [("1-0", "user.illegalArgument")]


def test_redrive_stops_at_a_full_receiver(desk: Desk, server: Server, subject: str, channel: str) -> None:
    receiver = Receiver(server).be(f"{subject}/1", queue={"maxEntries": 3})
    receiver.subscribe(channel)
    publish(server, channel, 3)
    receiver.reject(receiver.take())
    ids = [each["id"] for each in until(lambda: desk.letters(f"receiver={subject}&count=3"))]
    publish(server, channel, 2, first=10)
    report = desk.post("/dead-letters/redrive", {"ids": ids})
    assert report["redriven"] == 1
    assert [each["errorCode"] for each in report["undone"]] == ["resource.overflow.queue.entries"] * 2


def test_redrive_to_the_channel_reaches_its_subscribers(
    desk: Desk, dead: list[str], server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    other = Receiver(server).be()
    other.subscribe(channel)
    report = desk.post("/dead-letters/redrive", {"all": True, "receiver": subject, "toChannel": True})
    assert report["redriven"] == len(dead)
    for each in (other, receiver):
        taken: list[Any] = []
        while len(taken) < len(dead):  # they may come in several turns
            taken += [message["data"] for message in until(each.take)]
        assert taken == [0, 1, 2, 3, 4]


def test_redrive_keeps_its_rate_and_ends_in_time(desk: Desk, dead: list[str], subject: str) -> None:
    body = {"all": True, "receiver": subject, "rate": 0.01}
    first = desk.post("/dead-letters/redrive", body)
    assert (first["redriven"], first["next"]) == (1, dead[0])
    assert 90_000 < first["waitMs"] <= 100_000
    second = desk.post("/dead-letters/redrive", body | {"after": first["next"], "until": first["until"], "rate": 1000})
    assert (second["redriven"], second["next"], second["waitMs"]) == (4, "", 0)


def test_the_accounts_that_hold_dead_letters_are_shown(desk: Desk, dead: list[str], subject: str) -> None:
    told = desk.get("/dead-letters/accounts?count=1000")
    (held,) = (each for each in told["accounts"] if each["account"] == f"client/{subject}")
    assert held["count"] == len(dead)
    assert 0 < held["bytes"] <= told["bytes"] <= told["maxBytes"]
    assert told["max"] >= len(dead)
    store = desk.get("/overview")["store"]
    assert store["lettersHeld"][0]["letters"] >= 1
    assert (store["lettersBytes"], store["lettersMaxBytes"]) == (told["bytes"], told["maxBytes"])


def test_redrive_works_on_count_dead_letters_at_most(desk: Desk, dead: list[str], subject: str) -> None:
    first = desk.post("/dead-letters/discard", {"all": True, "receiver": subject, "count": 2})
    assert (first["discarded"], first["next"]) == (2, dead[1])
    second = desk.post(
        "/dead-letters/discard", {"all": True, "receiver": subject, "after": dead[2], "until": first["until"]}
    )
    assert (second["discarded"], second["next"]) == (2, "")
    assert [letter["id"] for letter in desk.letters(f"receiver={subject}")] == [dead[2]]


def test_discard_removes_dead_letters(desk: Desk, dead: list[str], receiver: Receiver, subject: str) -> None:
    assert desk.post("/dead-letters/discard", {"ids": dead, "dryRun": True})["count"] == 5
    report = desk.post("/dead-letters/discard", {"ids": [*dead, "1-0"]})
    assert (report["discarded"], report["undoneCount"]) == (5, 1)
    assert desk.letters(f"receiver={subject}") == []
    assert receiver.take() == []


def test_the_audit_names_the_dead_letters(desk: Desk, dead: list[str], server: Server, subject: str) -> None:
    desk.post("/dead-letters/discard", {"ids": dead[:1]})
    desk.post("/dead-letters/redrive", {"all": True, "receiver": subject})
    until(lambda: f'"receiver":"client/{subject}"' in server.stderr)
    entries = [json.loads(line) for line in audit(server)]
    discarded = next(each for each in entries if each.get("ids") == dead[:1])
    assert (discarded["who"], discarded["message"]) == ("admin", "operator: discard dead letters")
    assert TOKEN not in server.stderr


def test_the_audit_keeps_to_its_line(desk: Desk, server: Server, receiver: Receiver, subject: str) -> None:
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "a\nforged: line\x1b[2J"})
    (entry,) = until(lambda: [line for line in audit(server) if "forged" in line])
    assert json.loads(entry)["reason"] == r"'a\nforged: line\x1b[2J'"
    assert receiver.id not in entry


def test_a_refusal_is_logged_without_the_token(server: Server) -> None:
    words = "refused a request to /admin/api"
    before = server.stderr.count(words)
    Desk(server, "not-the-token").ask("GET", "/sessions?subject=somebody")
    until(lambda: server.stderr.count(words) > before)
    assert "not-the-token" not in server.stderr


def test_an_unread_export_costs_no_memory(start_server: StartServer) -> None:
    server = start_server(*SETS, "delivery.queue_max_entries=20000", "delivery.queue_max_bytes=500000000")
    desk, receiver = Desk(server), Receiver(server).be("joe/1")
    receiver.subscribe("/big")
    speaker = Receiver(server).be()
    text = "x" * 50_000
    for _ in range(600):
        speaker.publish("/big", text, ext={"publish": {"persistent": True}})
    assert desk.post("/sessions/joe/1/drain")["letters"] == 600
    until(lambda: desk.get("/dead-letters/count")["count"] == 600)
    desk.letters("count=10")
    before = resident(server)
    connection = desk.send("GET", "/dead-letters/export")
    until(connection.has_input)
    held_back = [desk.cmd("__cmd:?usedMem") for _ in range(5)]
    assert max(held_back) - before < 20_000_000  # 600 letters are 30 MB
    connection.reset()
    assert len(exported(desk, "")) == 600


# Trouble


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    (tmp_path / "store").mkdir()
    store = StoreProcess(tmp_path / "store")
    yield store
    store.close()


def test_requests_are_503_while_the_store_is_away(start_server: StartServer, store: StoreProcess) -> None:
    desk = Desk(start_server(*SETS, f"storage.url={store.url}"))
    store.kill()
    for path in (
        "/audit",
        "/audit/export",
        "/dead-letters",
        "/dead-letters/count",
        "/dead-letters/export",
        "/dead-letters/1-0",
    ):
        error(desk.ask("GET", path), 503, "resource.unavailable")
    for path in ("/dead-letters/redrive", "/dead-letters/discard"):
        error(desk.ask("POST", path, {"all": True}), 503, "resource.unavailable")
    assert desk.get("/sessions")["sessions"] == []
    store.start()
    until(lambda: desk.ask("GET", "/dead-letters").status == 200)
    until(lambda: desk.cmd("__cmd:?lastError") == "")  # readers find the store before the one who writes does


def test_a_store_killed_during_redrive_has_each_dead_letter_once(
    start_server: StartServer, store: StoreProcess
) -> None:
    server = start_server(*SETS, f"storage.url={store.url}")
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    joe.subscribe("/a/b")
    publish(server, "/a/b", 300)
    desk.post("/sessions/joe/1/drain")
    until(lambda: desk.get("/dead-letters/count")["count"] == 300)
    working = desk.send("POST", "/dead-letters/redrive", {"all": True, "rate": 400})
    until(lambda: desk.get("/dead-letters/count")["count"] < 200)
    store.kill()
    store.start()
    assert working.response().status in (200, 503)
    until(lambda: desk.ask("GET", "/dead-letters").status == 200)

    def is_empty() -> bool:
        done = desk.ask("POST", "/dead-letters/redrive", {"all": True})
        return done.status == 200 and desk.letters() == []

    until(is_empty)
    taken: dict[str, int] = {}
    until(lambda: taken.update({each["id"]: each["data"] for each in joe.take()}) or len(taken) >= 300)
    taken |= {each["id"]: each["data"] for each in joe.take_all()}
    assert sorted(taken.values()) == list(range(300))


def test_a_redrive_ends_with_the_server_and_answers_where_to_continue(start_server: StartServer) -> None:
    server = start_server(*SETS)
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    joe.subscribe("/a/b")
    publish(server, "/a/b", 100)
    desk.post("/sessions/joe/1/drain")
    until(lambda: desk.get("/dead-letters/count")["count"] == 100)
    working = desk.send("POST", "/dead-letters/redrive", {"all": True, "rate": 20})
    until(lambda: desk.get("/dead-letters/count")["count"] < 95)
    assert server.terminate() == 0
    report = working.response().json()
    assert 0 < report["redriven"] < 100
    assert report["next"]
    again = Desk(start_server(*server.store_sets, *SETS))
    left = again.post("/dead-letters/redrive", {"all": True})
    assert left["redriven"] == 100 - report["redriven"]


def test_a_half_closed_client_gets_the_whole_export(desk: Desk, dead: list[str], subject: str) -> None:
    connection = desk.send("GET", f"/dead-letters/export?receiver={subject}")
    connection.half_close()
    assert len(connection.response().body.splitlines()) == len(dead)


# The description


def paths_of(api: Any) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, operations in api["paths"].items() for method in operations}


def test_every_route_is_described_and_nothing_else(desk: Desk, server: Server) -> None:
    api = Desk(server, None).get("/openapi.json")
    assert api["openapi"] == "3.1.0"
    assert paths_of(api) == {(route.method, API + route.path) for route in ROUTES}
    operations = [operation for each in api["paths"].values() for operation in each.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for method, path in paths_of(api):  # and what is described is served
        assert desk.ask(method, filled(path).removeprefix(API)).status != 405, (method, path)


async def test_the_description_is_made_once() -> None:
    """Strangers may ask for it, and it keeps all clients waiting while it is made."""
    (route,) = [each for each in ROUTES if each.path == "/openapi.json"]
    ask: Any = None
    first, second = await route.handler(ask), await route.handler(ask)
    assert first is not second
    assert first.body is second.body
    assert first.headers["Cache-Control"] == "no-store"


def test_the_description_names_every_field_and_variable(server: Server) -> None:
    api = Desk(server, None).get("/openapi.json")
    for route in ROUTES:
        operation = api["paths"][API + route.path][route.method.lower()]
        parameters = {(each["in"], each["name"]) for each in operation.get("parameters", [])}
        variables = {("path", name) for name in re.findall(r"{(\w+)}", route.path)}
        in_query = {("query", name) for _, name in variables & {("path", "channel"), ("path", "subject")}}
        assert parameters == variables | in_query | {("query", each.name) for each in route.query}
        if route.body:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert set(schema["properties"]) == {each.name for each in route.body}
        assert operation["security"] == ([] if route.is_public else [{"token": [route.needs.word]}])
        assert ("401" in operation["responses"]) is (not route.is_public or route.path == "/sign-in")
        assert (operation.get("security") == []) is route.is_public


def test_the_page_needs_nothing_from_elsewhere(server: Server) -> None:
    with Connection(server) as connection:
        page = connection.get(f"{API}/")
        assert page.status == 200
        policy = page.header("Content-Security-Policy") or ""
        assert "default-src 'self'" in policy
        assert not re.findall(r"https?://", page.body.decode())
        assert "<script>" not in page.body.decode()
        for name in re.findall(r'(?:href|src)="(/[^"]+)"', page.body.decode()):
            assert connection.get(name).status == 200, name
        assert connection.get(API).status == 301


def test_groups_by_likeness_are_up_to_date_after_a_redrive_and_a_discard(desk: Desk, dead: list[str]) -> None:
    def counted() -> int:
        return sum(group["count"] for group in desk.get("/dead-letters/groups?by=likeness")["groups"])

    desk.post("/dead-letters/discard", {"ids": dead[:1]})
    before = counted()  # with all these letters: what was counted for an earlier test does not hold after a discard
    desk.post("/dead-letters/discard", {"ids": dead[1:2]})
    assert counted() == before - 1
    desk.post("/dead-letters/redrive", {"ids": dead[2:3]})
    assert counted() == before - 2
    job = desk.post("/jobs", {"what": "discard", "ids": dead[3:]})
    until(lambda: desk.get(f"/jobs/{job['id']}")["state"] == "done")
    assert until(lambda: counted() == before - 4)
