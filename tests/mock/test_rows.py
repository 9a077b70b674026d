"""Each row of docs/reference/salesforce-wire.md: the request is sent, and the bytes of the response are those of the page."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from crewel.mock import Salesforce
from crewel.mock.org import CONCURRENT, DAILY
from tests.house.source import ROOT
from tests.mock.wire import ORDERS, Wire, same

pytestmark = pytest.mark.server

PAGE = (ROOT / "docs/reference/salesforce-wire.md").read_text("utf-8")
SECTION = re.compile(r"^### `([a-z-]+)`\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```\w+\n(.*?)\n```", re.DOTALL | re.MULTILINE)
SAMPLES = {name: [block.replace("\n", "") for block in BLOCK.findall(text)] for name, text in SECTION.findall(PAGE)}
Row = Callable[[Salesforce, Wire, list[str]], None]
ROWS: dict[str, Row] = {}


def row(function: Row) -> Row:
    """One row: it gets an org, a wire that has done a handshake, and the samples of the page."""
    ROWS[function.__name__.replace("_", "-")] = function
    return function


@pytest.mark.parametrize("name", SAMPLES)
def test_row(name: str, salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    wire.handshake()
    ROWS[name](salesforce, wire, SAMPLES[name])


def test_the_page_and_the_tests_have_the_same_rows() -> None:
    assert list(SAMPLES) == list(ROWS)


def all_same(got: list[bytes], samples: list[str]) -> None:
    assert len(got) == len(samples)
    for each, sample in zip(got, samples, strict=True):
        same(each, sample)


# Logins and REST

TOKEN = "/services/oauth2/token"
REST = "/services/data/v60.0"
JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@row
def oauth_token(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    refresh = json.loads(wire.form(TOKEN, grant_type="password", username="a", password="p"))["refresh_token"]
    same(wire.form(TOKEN, grant_type="client_credentials", client_id="c", client_secret="s"), samples[0])
    same(wire.form(TOKEN, grant_type=JWT, assertion="a.b.c"), samples[0])
    body = wire.form(TOKEN, grant_type="refresh_token", refresh_token=refresh)
    same(body, samples[0])
    assert json.loads(body)["instance_url"] == org.url
    wire.headers["Authorization"] = f"Bearer {json.loads(body)['access_token']}"
    assert b'"successful":true' in wire.handshake()


@row
def oauth_password(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    same(wire.form(TOKEN, grant_type="password", username="ann@example.com", password="p"), samples[0])
    same(wire.form(TOKEN, grant_type="authorization_code", code="c"), samples[0])
    assert (
        org.user_id("ann@example.com")
        in wire.form(TOKEN, grant_type=JWT, assertion="a", username="ann@example.com").decode()
    )


@row
def oauth_error(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    wrong = {"grant_type": "password", "username": "a", "password": "wrong"}
    expired = {"grant_type": "refresh_token", "refresh_token": "none"}
    got = [wire.form(TOKEN, **fields) for fields in (wrong, expired, {"grant_type": JWT})]
    all_same(got, samples)
    assert wire.status == 400


@row
def oauth_revoke(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    for method in ("GET", "POST"):
        wire.headers["Authorization"] = f"Bearer {org.new_token()}"
        token = wire.headers["Authorization"].removeprefix("Bearer ")
        wire.handshake()
        path = "/services/oauth2/revoke"
        query = urlencode({"token": token})
        if method == "GET":
            assert wire.send(b"", f"{path}?{query}", "GET") == b""
        else:
            assert wire.form(path, token=token) == b""
        assert wire.status == 200
        assert b"401::Authentication invalid" in wire.connect()


@row
def soap_login(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    body = b"<env:Envelope><n1:login><n1:username>a</n1:username><n1:password>p</n1:password></n1:login></env:Envelope>"
    answer = wire.send(body, "/services/Soap/u/60.0", **{"Content-Type": "text/xml"})
    same(answer, samples[0])
    session = re.search(r"<sessionId>(.*?)</sessionId>", answer.decode())
    assert session
    assert f"<serverUrl>{org.url}/services/Soap/u/60.0/" in answer.decode()
    wire.headers["Authorization"] = f"OAuth {session[1]}"
    assert b'"successful":true' in wire.handshake()


@row
def rest_unauthorized(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    wire.headers["Authorization"] = "Bearer none"
    same(wire.send(b"{}", f"{REST}/sobjects/Order__e"), samples[0])
    assert wire.status == 401


@row
def rest_event(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    wire.subscribe(ORDERS)
    wire.connect()
    same(wire.send(b'{"No__c":1}', f"{REST}/sobjects/Order__e"), samples[0])
    assert wire.status == 201
    assert b'"No__c":1' in wire.connect()


@row
def rest_push(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    created = json.loads(wire.send(b'{"Name":"/u/news"}', f"{REST}/sobjects/StreamingChannel"))
    path = f"{REST}/sobjects/StreamingChannel/{created['id']}/push"
    wire.subscribe("/u/news")
    wire.connect()
    other = Wire(org)
    other.headers["Authorization"] = (
        f"Bearer {json.loads(wire.form(TOKEN, grant_type='password', username='b'))['access_token']}"
    )
    users = ["005000000000001AAA", "005000000000002AAA"]
    to_all = wire.send(b'{"pushEvents":[{"payload":"to all","userIds":[]}]}', path)
    to_some = wire.send(json.dumps({"pushEvents": [{"payload": "to some", "userIds": users}]}).encode(), path)
    all_same([to_all, to_some, wire.send(b"", path, "GET")], samples)
    got = wire.connect()
    assert b'"payload":"to all"' in got
    assert b'"payload":"to some"' in got
    other.handshake()
    other.subscribe("/u/news", replay={"/u/news": -2})
    other.connect()
    assert [each["data"]["payload"] for each in json.loads(other.connect())[:-1]] == ["to all"]
    org.assert_nothing_missed()


@row
def rest_push_topic(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    created = wire.send(b'{"Name":"Leads","Query":"SELECT Id FROM Lead"}', f"{REST}/sobjects/PushTopic")
    query = urlencode({"q": "SELECT Id, Name FROM PushTopic WHERE Name = 'Leads'"})
    all_same([created, wire.send(b"", f"{REST}/query?{query}", "GET")], samples)


# Sessions


@row
def paths(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    for path in ("", "/", "/handshake", "/connect", "/subscribe", "/unsubscribe", "/disconnect"):
        for version in ("37.0", "68.0"):
            wire.path = f"/cometd/{version}{path}"
            assert b'"successful":true' in wire.handshake()


@row
def handshake(org: Salesforce, _: Wire, samples: list[str]) -> None:
    wire = Wire(org)
    same(wire.handshake(), samples[0])
    assert [each.partition("=")[0] for each in wire.set_cookies] == ["BAYEUX_BROWSER", "sfdc-stream", "t"]


@row
def first_connect(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    org.publish(ORDERS, {"No__c": 1})
    wire.subscribe(ORDERS, replay={ORDERS: -2})
    same(wire.connect("1"), samples[0])
    assert b'"replayId":81' in wire.connect()


@row
def later_connect(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    wire.connect("1")
    got: list[bytes] = []
    held = threading.Thread(target=lambda: got.append(wire.connect("2")))
    wire.subscribe(ORDERS)
    held.start()
    org.wait_for_subscriber(ORDERS)
    org.advance("100s")
    assert got == []
    org.advance("10s", keep_up=False)
    held.join(20)
    all_same(got, samples)
    org.advance("20s")
    assert b'"successful":true' in wire.subscribe("/u/a")


@row
def subscribe(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    all_same([wire.subscribe(ORDERS), wire.ask("unsubscribe", id="8", subscription=ORDERS)], samples)


@row
def disconnect(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    same(wire.ask("disconnect", id="9"), samples[0])
    same(wire.connect("304"), SAMPLES["session-forgotten"][0])


@row
def session_forgotten(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    org.forget_sessions()
    same(wire.connect("304"), samples[0])
    assert any(each.startswith("sfdc-stream=") for each in wire.set_cookies)
    for away in ("45s", "3h"):
        wire.handshake()
        wire.connect()
        org.advance(away)
        same(wire.connect("304"), samples[0])


@row
def session_ended(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    org.script("next connect: unknown client, disconnect")
    same(wire.connect("304"), samples[0])


# Authentication and cookies


@row
def token_revoked(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    wire.subscribe(ORDERS)
    wire.connect()
    got: list[bytes] = []
    held = threading.Thread(target=lambda: got.append(wire.connect("304")))
    held.start()
    org.wait_for_subscriber(ORDERS)
    org.revoke()
    held.join(20)
    all_same(got, samples)


@row
def token_dead(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    org.revoke()
    same(wire.handshake(), samples[0])


@row
def header_missing(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    del wire.headers["Authorization"]
    all_same([wire.connect("304"), wire.handshake()], samples)


@row
def scheme(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    for kind in ("OAuth", "Bearer"):
        wire.headers["Authorization"] = f"{kind} {org.token}"
        assert b'"successful":true' in wire.handshake()
    with Salesforce(accepts_bearer=False) as strict:
        other = Wire(strict)
        same(other.handshake(), SAMPLES["token-dead"][0])
        other.headers["Authorization"] = f"OAuth {strict.token}"
        assert b'"successful":true' in other.handshake()


@row
def cookie_missing(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    cookies = dict(wire.cookies)
    got = []
    for name in ("sfdc-stream", "BAYEUX_BROWSER"):
        wire.cookies = {key: value for key, value in cookies.items() if key != name}
        got.append(wire.connect("304"))
    all_same(got, samples)


@row
def cookie_changed(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    cookies = dict(wire.cookies)
    for character in "+/=":
        assert character in cookies["sfdc-stream"]
        encoded = cookies["sfdc-stream"].replace(character, f"%{ord(character):X}")
        wire.cookies = {**cookies, "sfdc-stream": encoded}
        same(wire.connect("304"), samples[0])
    wire.cookies = {**cookies, "sfdc-stream": f'"{cookies["sfdc-stream"]}"'}
    assert b'"successful":true' in wire.connect()


# Refusals


@row
def version_missing(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    for path in ("/cometd", "/cometd/", "/cometd/handshake"):
        wire.path = path
        same(wire.handshake(), samples[0])


@row
def version_old(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    wire.path = "/cometd/36.0"
    same(wire.handshake(), samples[0])


@row
def connection_type(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    same(wire.ask("connect", id="304", connectionType="websocket"), samples[0])
    wire.client_id = ""
    assert b'"error":"400::Invalid connection type {websocket}"' in wire.ask(
        "handshake", supportedConnectionTypes=["websocket"]
    )


@row
def channel_unknown(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    same(wire.subscribe("/event/Order"), samples[0])
    for name in ("/foo", "/u/", "/topic/a/b", "/u/news?a='b'", "/event/Order__e?a='b'"):
        assert f"does not exist {{{name}}}".encode() in wire.subscribe(name)
    with Salesforce(channels=["/topic/Leads"]) as strict:
        other = Wire(strict)
        other.handshake()
        assert b"does not exist {/topic/Others}" in other.subscribe("/topic/Others")
        assert b'"successful":true' in other.subscribe("/topic/Leads?City='Rome'")


@row
def channel_slash(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    same(wire.subscribe("topic/Leads"), samples[0])


@row
def channel_unnamed(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    all_same([wire.subscribe(""), wire.ask("subscribe", id="7")], samples)


@row
def topic_fields(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert b'"successful":true' in wire.subscribe("/topic/Leads")
    with Salesforce(entities={"Lead": ["Name", "Email"]}) as strict:
        other = Wire(strict)
        other.handshake()
        strict.push_topic("Leads", "SELECT Id, Name, Age__c, Shoe__c FROM Lead WHERE Email != null")
        strict.push_topic("Names", "SELECT Id, Name FROM Lead")
        assert b'"successful":true' in other.subscribe("/topic/Names?Name='Ann'")
        all_same([other.subscribe("/topic/Leads"), other.subscribe("/topic/Names?City='Rome'")], samples)


@row
def replay_expired(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    org.publish(ORDERS, {}, age="80h")
    same(wire.subscribe(ORDERS, replay={ORDERS: 81}), samples[0])
    org.publish(ORDERS, {})
    same(wire.subscribe(ORDERS, replay={ORDERS: "81"}), samples[0])


@row
def replay_missing(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    given: tuple[dict[str, Any], ...] = ({}, {"/u/a": 5}, {ORDERS: None})
    all_same([wire.subscribe(ORDERS, replay=each) for each in given], samples)


@row
def server_busy(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    org.script("next subscribe: server busy")
    same(wire.subscribe(ORDERS), samples[0])


@row
def publish_denied(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    message = {"channel": ORDERS, "id": "5", "data": {}, "clientId": wire.client_id}
    same(wire.send(json.dumps([message]).encode()), samples[0])


# Limits


@row
def daily_limit(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert DAILY == {"unlimited": 1_000_000, "performance": 1_000_000, "enterprise": 200_000, "developer": 50_000}
    org.org.delivered_today = [org.org.now()] * 200_000
    same(wire.connect("304"), samples[0])
    org.advance("25h")
    wire.handshake()
    assert b'"successful":true' in wire.connect()
    org.script("next connect: daily limit")
    same(wire.connect("304"), samples[0])


@row
def concurrent_limit(_: Salesforce, __: Wire, samples: list[str]) -> None:
    assert CONCURRENT == {"unlimited": 2000, "performance": 2000, "enterprise": 1000, "developer": 20}
    with Salesforce(edition="developer") as small:
        wires = [Wire(small) for _ in range(20)]
        assert all(b'"successful":true' in each.handshake() for each in wires)
        same(Wire(small).handshake(), samples[0])
        wires[0].ask("disconnect")
        assert b'"successful":true' in Wire(small).handshake()


@row
def body_too_large(_: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    message = json.dumps([{"channel": "/meta/handshake", "version": "1.0", "ext": {"a": "…"}}], ensure_ascii=True)
    for length, status in ((32_768, 200), (32_769, 413)):
        wire.send(message.encode().ljust(length))
        assert wire.status == status


@row
def retention(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    ids = []
    for channel, hours in (("/topic/Leads", 24), ("/u/news", 24), (ORDERS, 72), ("/data/AccountChangeEvent", 72)):
        ids += [org.publish(channel, {}, age=f"{age}h") for age in (hours + 1, hours - 1, 0)]
        wire.handshake()
        wire.subscribe(channel, replay={channel: -2})
        wire.connect()
        assert [each["data"]["event"]["replayId"] for each in json.loads(wire.connect())[:-1]] == ids[-2:]
    steps = {second - first for first, second in pairwise(ids)}
    assert min(steps) == 1 < max(steps)


# Events


def delivered(org: Salesforce, wire: Wire, subscription: str, publish: Callable[[], object]) -> list[bytes]:
    """The events of the next response, as they are in it."""
    assert b'"successful":true' in wire.subscribe(subscription)
    wire.connect()
    publish()
    body = wire.connect()
    events = json.loads(body)[:-1]
    found = [json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() for each in events]
    assert body.startswith(b"[" + b",".join(found) + b",")  # nothing was lost by parsing it
    return found


@row
def event_push_topic(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    publish = lambda: org.publish("/topic/Leads", {"Id": "00Q", "Name": "Ann"}, type="updated")  # noqa: E731
    all_same(delivered(org, wire, "/topic/Leads", publish), samples)


@row
def event_filtered(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    def publish() -> None:
        org.publish("/topic/Leads", {"City": "Oslo", "Industry": "Oil"})
        org.publish("/topic/Leads", {"City": "Oslo", "Industry": "Energy"})
        org.publish("/topic/Leads", {"Name": "Ann"})

    subscription = "/topic/Leads?City='Rome'&Industry='Energy'"
    all_same(delivered(org, wire, subscription, publish), samples)
    org.assert_nothing_missed()
    wire.handshake()
    same(
        wire.subscribe(subscription, replay={"/topic/Leads": 81}),
        SAMPLES["subscribe"][0].replace(ORDERS, subscription),
    )
    wire.connect()
    assert wire.connect().count(b"replayId") == 1
    wire.ask("unsubscribe", subscription=subscription)
    wire.subscribe("/topic/Leads?Count=5&IsOpen=true&Owner=null")
    org.publish("/topic/Leads", {"Industry": "Energy", "Count": 6, "IsOpen": False})
    typed = [org.publish("/topic/Leads", each) for each in ({"Count": 5}, {"IsOpen": True}, {"Owner": None})]
    assert [each["data"]["event"]["replayId"] for each in json.loads(wire.connect())[:-1]] == typed


@row
def event_generic(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    def publish() -> None:
        org.publish("/u/news/sport", "hello")
        org.publish("/u/news/sport/tennis", "not for /u/news/*")

    all_same(delivered(org, wire, "/u/news/*", publish), samples)


@row
def event_platform(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    all_same(delivered(org, wire, ORDERS, lambda: org.publish(ORDERS, {"No__c": 1})), samples)


ACCOUNTS = "/data/AccountChangeEvent"


@row
def event_change(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    header = {"changeType": "UPDATE", "changedFields": ["Name"]}
    all_same(delivered(org, wire, ACCOUNTS, lambda: org.publish(ACCOUNTS, {"Name": "Acme"}, header=header)), samples)


@row
def event_all_changes(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    channel = "/data/Employee__ChangeEvent"
    all_same(delivered(org, wire, "/data/ChangeEvents", lambda: org.publish(channel, {"Name": "Ann"})), samples)
    assert org.delivered(channel) == org.delivered("/data/ChangeEvents") == [81]
    assert org.delivered(ACCOUNTS) == []


@row
def event_merged(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    def publish() -> None:
        org.publish(ACCOUNTS, {"Name": "same"}, header={"changeType": "UPDATE", "recordIds": ["001A", "001B"]})
        org.publish(ACCOUNTS, header={"changeType": "UPDATE", "recordIds": ["001*"]})

    all_same(delivered(org, wire, ACCOUNTS, publish), samples)


@row
def event_gap(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    publish = lambda: org.publish(ACCOUNTS, header={"changeType": "GAP_UPDATE"})  # noqa: E731
    all_same(delivered(org, wire, ACCOUNTS, publish), samples)
    with pytest.raises(ValueError, match="GAP_CREATE has only a header, no fields"):
        org.publish(ACCOUNTS, {"Name": "Acme"}, header={"changeType": "GAP_CREATE"})


@row
def event_overflow(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    publish = lambda: org.publish(ACCOUNTS, header={"changeType": "GAP_OVERFLOW"})  # noqa: E731
    all_same(delivered(org, wire, ACCOUNTS, publish), samples)


# Faults of the connection


def breaks(org: Salesforce, wire: Wire, fault: str, error: type[Exception]) -> Exception:
    """What a client gets whose held connect ends with this fault, as an event is published."""
    wire.subscribe(ORDERS)
    wire.connect()
    errors: list[Exception] = []

    def held() -> None:
        try:
            wire.connect()
        except (OSError, http.client.HTTPException) as failed:
            errors.append(failed)

    org.script(f"next connect: {fault}")
    thread = threading.Thread(target=held)
    thread.start()
    org.wait_for_subscriber(ORDERS)
    org.publish(ORDERS, {})
    thread.join(20)
    assert [type(each) for each in errors] == [error]
    assert b'"successful":true' in wire.subscribe("/u/a")
    assert b"replayId" not in wire.ask("connect", connectionType="long-polling", advice={"timeout": 0})
    return errors[0]


@row
def fault_drop(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    breaks(org, wire, "drop", http.client.RemoteDisconnected)
    assert org.missed == {ORDERS: [81]}


@row
def fault_reset(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    breaks(org, wire, "reset", ConnectionResetError)


@row
def fault_half_body(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    error = breaks(org, wire, "half body", http.client.IncompleteRead)
    assert isinstance(error, http.client.IncompleteRead)
    assert error.expected is not None
    assert abs(len(error.partial) - error.expected) <= 1


@row
def fault_page(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    for name, sample in zip(("502 page", "503 page"), samples, strict=True):
        org.add_fault(name)
        same(wire.connect(), sample)
        assert f"{wire.status} page" == name
        assert org.history[-1]["fault"] == name
        org.remove_fault(name)
    assert b'"successful":true' in wire.connect()


@row
def fault_delay(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    org.add_fault("delay")
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(wire.subscribe(ORDERS)))
    waiting.start()
    org.wait_for(lambda each: each.count("subscribe"))
    org.advance("25s")
    assert got == []

    def is_answered(each: Salesforce) -> bool:
        each.advance("1s")
        return bool(got)

    org.wait_for(is_answered)
    waiting.join(20)
    assert b'"successful":true' in got[0]


@row
def fault_move(org: Salesforce, wire: Wire, samples: list[str]) -> None:
    assert samples == []
    before = org.url
    assert org.move() == json.loads(wire.form(TOKEN, grant_type="client_credentials"))["instance_url"] != before
    with urlopen(f"{org.login_url}/services/oauth2/token", b"grant_type=client_credentials", timeout=20) as response:
        assert json.load(response)["instance_url"] == org.url
    with pytest.raises(URLError, match="refused"):
        urlopen(before, timeout=20)
