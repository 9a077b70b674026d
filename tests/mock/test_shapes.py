"""The bytes on the wire, compared with those that threads and the documentation show; ids and times are the server's own."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from crewel.mock import Salesforce

pytestmark = pytest.mark.server

ID = r"[a-z0-9]{20,32}"
ORDERS = "/event/Order__e"


class Wire:
    """One connection with the cookies of a browser, which sees bytes."""

    def __init__(self, org: Salesforce) -> None:
        self.org = org
        self.path = "/cometd/68.0"
        self.cookies: dict[str, str] = {}
        self.headers = {"Authorization": f"Bearer {org.token}", "Content-Type": "application/json"}
        self.status = self.connects = 0
        self.set_cookies: list[str] = []
        self.client_id = ""

    def send(self, body: bytes, path: str = "", method: str = "POST", **headers: str) -> bytes:
        address = urlsplit(self.org.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
        cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        try:
            return self._exchange(connection, method, path, body, {**self.headers, **cookies, **headers})
        finally:
            connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> bytes:
        connection.request(method, path or self.path, body, headers)
        response = connection.getresponse()
        self.status = response.status
        self.set_cookies = response.headers.get_all("Set-Cookie") or []
        for cookie in self.set_cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response.read()

    def ask(self, channel: str, **fields: Any) -> bytes:
        message = {"channel": f"/meta/{channel}", **fields}
        if self.client_id:
            message["clientId"] = self.client_id
        return self.send(json.dumps([message]).encode())

    def handshake(self) -> bytes:
        self.client_id = ""
        body = self.ask("handshake", id="305", version="1.0", supportedConnectionTypes=["long-polling"])
        self.client_id = json.loads(body)[0].get("clientId", "")
        return body

    def connect(self, message_id: str = "") -> bytes:
        self.connects += 1
        message_id = message_id or f"c{self.connects}"
        return self.ask("connect", id=message_id, connectionType="long-polling")

    def subscribe(self, channel: Any, **ext: Any) -> bytes:
        return self.ask("subscribe", id="7", subscription=channel, **({"ext": ext} if ext else {}))


@pytest.fixture
def started(salesforce: Salesforce) -> Wire:
    wire = Wire(salesforce)
    wire.handshake()
    return wire


def same(got: bytes, sample: str) -> None:
    """Compare bytes; `CLIENT` and `NUMBER` in the sample stand for what the server chooses."""
    pattern = re.escape(sample).replace("CLIENT", ID).replace("NUMBER", r"\d+").replace("ANY", r'[^"]+')
    assert re.fullmatch(pattern, got.decode()), f"\n{got.decode()}\n{sample}"


def test_handshake_and_connects(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    same(
        wire.handshake(),
        '[{"ext":{"replay":true,"payload.format":true},"minimumVersion":"1.0","clientId":"CLIENT",'
        '"supportedConnectionTypes":["long-polling"],"channel":"/meta/handshake","id":"305","version":"1.0","successful":true}]',
    )
    assert [each.partition("=")[0] for each in wire.set_cookies] == ["BAYEUX_BROWSER", "sfdc-stream", "t"]
    same(
        wire.connect("1"),
        '[{"clientId":"CLIENT","advice":{"interval":0,"timeout":110000,"reconnect":"retry"},'
        '"channel":"/meta/connect","id":"1","successful":true}]',
    )
    wire.subscribe(ORDERS)
    salesforce.publish(ORDERS, {"No__c": 1})
    same(
        wire.connect("2"),
        '[{"channel":"/event/Order__e","data":{"schema":"NUMBER","payload":{"CreatedDate":"ANY","CreatedById":"ANY","No__c":1},'
        '"event":{"replayId":81,"EventUuid":"ANY"}}},'
        '{"clientId":"CLIENT","channel":"/meta/connect","id":"2","successful":true}]',
    )


def test_the_first_connect_has_no_replayed_events(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    salesforce.publish(ORDERS, {"No__c": 1})
    wire.handshake()
    same(
        wire.subscribe(ORDERS, replay={ORDERS: -2}),
        '[{"clientId":"CLIENT","channel":"/meta/subscribe","id":"7","subscription":"/event/Order__e","successful":true}]',
    )
    assert b"replayId" not in wire.connect()
    assert b'"replayId":81' in wire.connect()


UNKNOWN = (
    '[{"advice":{"interval":0,"reconnect":"handshake"},"channel":"/meta/connect","id":"304",'
    '"error":"403::Unknown client","successful":false}]'
)


def test_a_forgotten_session(salesforce: Salesforce, started: Wire) -> None:
    salesforce.forget_sessions()
    same(started.connect("304"), UNKNOWN)
    assert any(each.startswith("sfdc-stream=") for each in started.set_cookies)


@pytest.mark.parametrize("away", ["45s", "3h"])
def test_a_session_is_forgotten_after_its_time(away: str, salesforce: Salesforce, started: Wire) -> None:
    started.connect()
    salesforce.advance(away)
    same(started.connect("304"), UNKNOWN)


def test_the_harsh_variant(salesforce: Salesforce, started: Wire) -> None:
    salesforce.script("next connect: unknown client, disconnect")
    same(
        started.connect("304"),
        '[{"channel":"/meta/disconnect"},{"clientId":"CLIENT","advice":{"reconnect":"none","interval":0},'
        '"channel":"/meta/connect","id":"304","error":"403::Unknown client","successful":false}]',
    )


def test_a_revoked_token(salesforce: Salesforce, started: Wire) -> None:
    salesforce.revoke()
    same(
        started.connect("304"),
        '[{"channel":"/meta/disconnect"},{"clientId":"CLIENT","advice":{"reconnect":"none","interval":0},'
        '"channel":"/meta/connect","id":"304","error":"401::Authentication invalid","successful":false}]',
    )
    same(
        started.handshake(),
        '[{"ext":{"sfdc":{"failureReason":"401::Authentication invalid"}},"advice":{"reconnect":"none"},'
        '"channel":"/meta/handshake","id":"305","error":"403::Handshake denied","successful":false}]',
    )


def test_a_missing_token(salesforce: Salesforce, started: Wire) -> None:
    del started.headers["Authorization"]
    assert b'"error":"401::Request requires authentication"' in started.connect()
    assert b'"error":"401::Request requires authentication"' in started.handshake()


@pytest.mark.salesforce(accepts_bearer=False)
def test_bearer_may_be_switched_off(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    assert b"403::Handshake denied" in wire.handshake()
    wire.headers["Authorization"] = f"OAuth {salesforce.token}"
    assert b'"successful":true' in wire.handshake()


def refused(error: str, subscription: str) -> str:
    return (
        f'[{{"clientId":"CLIENT","channel":"/meta/subscribe","id":"7","subscription":{subscription},'
        f'"error":"{error}","successful":false}}]'
    )


def test_replay_ids_that_are_refused(salesforce: Salesforce, started: Wire) -> None:
    salesforce.publish(ORDERS, {}, age="80h")
    text = (
        "400::The replayId {81} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or -1 to replay"
        " only new events."
    )
    same(started.subscribe(ORDERS, replay={ORDERS: 81}), refused(text, '"/event/Order__e"'))
    for given, shown in (({}, "{{}}"), ({ORDERS: None}, "{{/event/Order__e=None}}"), ({"/u/a": 5}, "{{/u/a=5}}")):
        text = (
            f"400::The replayId for channel {{{ORDERS}}} wasn't found using the provided replay ID map {shown}. Ensure that the"
            " channel name you provided in the replay map is valid and matches the channel name used for subscribing."
        ).replace("None", "null")
        same(started.subscribe(ORDERS, replay=given), refused(text, '"/event/Order__e"'))


def test_a_replay_id_may_be_a_text(salesforce: Salesforce, started: Wire) -> None:
    first = salesforce.publish(ORDERS, {})
    salesforce.publish(ORDERS, {})
    assert b'"successful":true' in started.subscribe(ORDERS, replay={ORDERS: str(first)})
    started.connect()
    assert started.connect().count(b"replayId") == 1


def test_server_busy(salesforce: Salesforce, started: Wire) -> None:
    salesforce.script("next subscribe: server busy")
    same(
        started.subscribe(ORDERS),
        '[{"ext":{"sfdc":{"failureReason":"503::Server is too busy. Please try your request again later."}},'
        '"clientId":"CLIENT","channel":"/meta/subscribe","id":"7","subscription":"/event/Order__e",'
        '"error":"403:denied_by_security_policy:subscribe_denied","successful":false}]',
    )


@pytest.mark.parametrize("path", ["/cometd", "/cometd/", "/cometd/handshake"])
def test_a_path_without_version(path: str, salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    wire.path = path
    same(
        wire.handshake(),
        '[{"channel":"/meta/handshake","id":"305","error":"400::API version in the URI is mandatory.'
        ' URI format: \'/cometd/68.0\'","successful":false}]',
    )


def test_an_old_version_and_paths_below_one(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    wire.path = "/cometd/36.0"
    assert b"400::Unsupported API version. Only API versions '37.0' and later are supported." in wire.handshake()
    wire.path = "/cometd/60.0/handshake"
    assert b'"successful":true' in wire.handshake()
    wire.path = "/cometd/60.0/connect"
    assert b'"successful":true' in wire.connect()


def test_transports_that_there_are_not(salesforce: Salesforce, started: Wire) -> None:
    reply = started.ask("connect", id="1", connectionType="websocket")
    assert b'"error":"400::Invalid connection type {websocket}"' in reply
    wire = Wire(salesforce)
    assert b"400::Invalid connection type {websocket}" in wire.ask("handshake", supportedConnectionTypes=["websocket"])


@pytest.mark.parametrize(
    ("channel", "error"),
    [
        ("/foo", "400::The channel you requested to subscribe to does not exist {/foo}"),
        ("/event/Order", "400::The channel you requested to subscribe to does not exist {/event/Order}"),
        ("topic/x", "400::Channel subscriptions must start with a leading '/'"),
        ("", "400::Channel name not specified"),
    ],
)
def test_channels_that_are_refused(channel: str, error: str, started: Wire) -> None:
    same(started.subscribe(channel), refused(error, json.dumps(channel)))


@pytest.mark.salesforce(channels=["/topic/Leads"], entities={"Lead": ["Name", "Email"]})
def test_only_the_channels_that_there_are(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    wire.handshake()
    assert b"does not exist {/topic/Others}" in wire.subscribe("/topic/Others")
    salesforce.push_topic("Leads", "SELECT Id, Name, Age__c, Shoe__c FROM Lead WHERE Email != null")
    text = "400::Query fields {Age__c, Shoe__c} do not exist on the topic entity"
    same(wire.subscribe("/topic/Leads"), refused(text, '"/topic/Leads"'))
    salesforce.push_topic("Leads", "SELECT Id, Name FROM Lead")
    assert b'"successful":true' in wire.subscribe("/topic/Leads")


def test_cookies_have_to_come_back_as_they_were(salesforce: Salesforce, started: Wire) -> None:
    kept = dict(started.cookies)
    del started.cookies["sfdc-stream"]
    same(
        started.connect("304"),
        '[{"clientId":"CLIENT","channel":"/meta/connect","id":"304","error":"400::Client CLIENT has established a session,'
        ' but no sfdc-stream cookie present","successful":false}]',
    )
    started.cookies = {"sfdc-stream": kept["sfdc-stream"]}
    assert b"but no BAYEUX_BROWSER cookie present" in started.connect()
    started.cookies = {**kept, "sfdc-stream": kept["sfdc-stream"].replace("+", "%2B")}
    same(started.connect("304"), UNKNOWN)
    started.cookies = {**kept, "sfdc-stream": '"' + kept["sfdc-stream"] + '"'}
    assert b'"successful":true' in started.connect()


@pytest.mark.salesforce(edition="developer")
def test_limits_of_an_edition(salesforce: Salesforce) -> None:
    for _ in range(20):
        assert b'"successful":true' in Wire(salesforce).handshake()
    assert b"403::Organization concurrent user limit exceeded" in Wire(salesforce).handshake()
    salesforce.advance("5m")
    wire = Wire(salesforce)
    wire.handshake()
    salesforce.org.delivered_today = [salesforce.org.now()] * 50_000
    same(
        wire.connect("304"),
        '[{"clientId":"CLIENT","advice":{"reconnect":"none","interval":0},"channel":"/meta/connect","id":"304",'
        '"error":"403::Organization total events daily limit exceeded","successful":false}]',
    )


def test_editions_are_known_by_name() -> None:
    with pytest.raises(ValueError, match="no edition 'gold'; known are unlimited"):
        Salesforce(edition="gold")


def test_a_body_that_is_too_large(started: Wire) -> None:
    started.send(b"[" + b" " * 32_768 + b"]")
    assert started.status == 413


def test_forms_of_events(salesforce: Salesforce, started: Wire) -> None:
    for channel in ("/topic/Leads", "/u/notifications", "/data/AccountChangeEvent"):
        started.subscribe(channel)
    started.connect()
    salesforce.publish("/topic/Leads", {"Id": "00Q", "Name": "Ann"}, type="updated")
    same(
        started.connect("1"),
        '[{"channel":"/topic/Leads","data":{"event":{"createdDate":"ANY","replayId":81,"type":"updated"},'
        '"sobject":{"Id":"00Q","Name":"Ann"}}},{"clientId":"CLIENT","channel":"/meta/connect","id":"1","successful":true}]',
    )
    salesforce.publish("/u/notifications", "hello")
    assert b'"data":{"event":{"createdDate":"' in started.connect()
    salesforce.publish("/data/AccountChangeEvent", {"Name": "Acme"}, header={"changedFields": ["Name"]})
    event = json.loads(started.connect())[0]
    header = event["data"]["payload"].pop("ChangeEventHeader")
    assert event["data"]["payload"] == {"Name": "Acme"}
    assert list(header) == [
        "entityName",
        "recordIds",
        "changeType",
        "changeOrigin",
        "transactionKey",
        "sequenceNumber",
        "commitTimestamp",
        "commitNumber",
        "commitUser",
        "changedFields",
        "nulledFields",
        "diffFields",
    ]
    assert (header["entityName"], header["changedFields"]) == ("Account", ["Name"])


@pytest.mark.parametrize(("channel", "kept", "gone"), [(ORDERS, "71h", "73h"), ("/topic/Leads", "23h", "25h")])
def test_retention(channel: str, kept: str, gone: str, salesforce: Salesforce, started: Wire) -> None:
    salesforce.publish(channel, {}, age=gone)
    second = salesforce.publish(channel, {}, age=kept)
    third = salesforce.publish(channel, {})
    assert third > second + 1
    started.subscribe(channel, replay={channel: -2})
    started.connect()
    events = [each["data"]["event"]["replayId"] for each in json.loads(started.connect())[:-1]]
    assert events == [second, third]


def test_wildcards_of_change_events_and_generic_streaming(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe("/data/ChangeEvents")
    started.subscribe("/u/news/*")
    started.connect()
    salesforce.publish("/data/AccountChangeEvent", {})
    salesforce.publish("/u/news/sport", 1)
    salesforce.publish("/u/news/sport/tennis", 2)
    channels = [each["channel"] for each in json.loads(started.connect())]
    assert channels == ["/data/AccountChangeEvent", "/u/news/sport", "/meta/connect"]


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [("502 page", 502, b"<html>"), ("503 page", 503, b"<html>")],
)
def test_pages_instead_of_json(fault: str, status: int, body: bytes, salesforce: Salesforce, started: Wire) -> None:
    salesforce.add_fault(fault)
    assert started.connect().startswith(body)
    assert started.status == status
    salesforce.remove_fault(fault)
    assert b'"successful":true' in started.subscribe(ORDERS)


@pytest.mark.parametrize("fault", ["reset", "drop", "half body"])
def test_connections_that_break(fault: str, salesforce: Salesforce, started: Wire) -> None:
    salesforce.script(f"next connect: {fault}")
    with pytest.raises((http.client.HTTPException, OSError)):
        started.connect()
    assert b'"successful":true' in started.subscribe(ORDERS)


def test_a_delay(salesforce: Salesforce, started: Wire) -> None:
    salesforce.add_fault("delay", seconds=0.05)
    assert b'"successful":true' in started.connect()
    with pytest.raises(ValueError, match="no fault 'lag'; known are 502 page"):
        salesforce.add_fault("lag")


# Logins and REST


def form(wire: Wire, path: str, **fields: str) -> Any:
    content = wire.send(
        urlencode(fields).encode(), path, **{"Content-Type": "application/x-www-form-urlencoded", "Authorization": ""}
    )
    return json.loads(content) if content else None


def test_oauth(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    path = "/services/oauth2/token"
    answer = form(wire, path, grant_type="password", username="ann@example.com", password="p")
    assert set(answer) >= {"access_token", "instance_url", "id", "issued_at", "signature", "token_type"}
    assert answer["instance_url"] == salesforce.url
    again = form(wire, path, grant_type="refresh_token", refresh_token=answer["refresh_token"])
    wire.headers["Authorization"] = f"Bearer {again['access_token']}"
    assert b'"successful":true' in wire.handshake()
    assert form(wire, path, grant_type="password", username="a", password="wrong")["error"] == "invalid_grant"
    assert form(wire, path, grant_type="guess")["error"] == "unsupported_grant_type"
    for kind in ("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"):
        assert form(wire, path, grant_type=kind, assertion="x")["token_type"] == "Bearer"
    form(wire, "/services/oauth2/revoke", token=again["access_token"])
    assert b"401::Authentication invalid" in wire.connect()


def test_soap(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    envelope = (
        b"<env:Envelope><n1:login><n1:username>a</n1:username><n1:password>%b</n1:password></n1:login></env:Envelope>"
    )
    answer = wire.send(envelope % b"p", "/services/Soap/u/60.0", **{"Content-Type": "text/xml"}).decode()
    session = re.search(r"<sessionId>(.*?)</sessionId>", answer)
    assert session
    assert f"<serverUrl>{salesforce.url}/services/Soap/u/60.0/" in answer
    wire.headers["Authorization"] = f"OAuth {session[1]}"
    assert b'"successful":true' in wire.handshake()
    assert b"INVALID_LOGIN" in wire.send(envelope % b"wrong", "/services/Soap/u/60.0")


def test_publishing_over_rest(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe(ORDERS)
    started.subscribe("/u/news")
    started.subscribe("/data/AccountChangeEvent")
    started.connect()
    answer = json.loads(started.send(b'{"No__c":1}', "/services/data/v60.0/sobjects/Order__e"))
    assert answer["errors"][0]["statusCode"] == "OPERATION_ENQUEUED"
    assert b'"No__c":1' in started.connect()
    channel = json.loads(started.send(b'{"Name":"/u/news"}', "/services/data/v60.0/sobjects/StreamingChannel"))["id"]
    pushed = started.send(
        b'{"pushEvents":[{"payload":"hi","userIds":[]}]}',
        f"/services/data/v60.0/sobjects/StreamingChannel/{channel}/push",
    )
    assert json.loads(pushed) == [{"fanoutCount": -1, "userOnlineStatus": {}}]
    assert b'"payload":"hi"' in started.connect()
    started.send(b'{"Name":"Acme"}', "/services/data/v60.0/sobjects/Account")
    assert b'"entityName":"Account"' in started.connect()
    topic = b'{"Name":"Leads","Query":"SELECT Id FROM Lead","ApiVersion":60.0}'
    assert json.loads(started.send(topic, "/services/data/v60.0/sobjects/PushTopic"))["success"] is True
    query = "/services/data/v60.0/query?" + urlencode({"q": "SELECT Id FROM PushTopic WHERE Name='Leads'"})
    assert json.loads(started.send(b"", query, "GET"))["totalSize"] == 1
    started.headers["Authorization"] = "Bearer none"
    assert b"INVALID_SESSION_ID" in started.send(b"{}", "/services/data/v60.0/sobjects/Order__e")


def test_clients_cannot_publish(started: Wire) -> None:
    reply = started.send(json.dumps([{"channel": ORDERS, "data": {}, "clientId": started.client_id}]).encode())
    assert b'"error":"403:denied_by_security_policy:create_denied"' in reply


def test_unsubscribe_and_disconnect(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe(ORDERS)
    same(
        started.ask("unsubscribe", id="8", subscription=ORDERS),
        '[{"clientId":"CLIENT","channel":"/meta/unsubscribe","id":"8","subscription":"/event/Order__e","successful":true}]',
    )
    same(
        started.ask("disconnect", id="9"),
        '[{"clientId":"CLIENT","channel":"/meta/disconnect","id":"9","successful":true}]',
    )
    same(started.connect("304"), UNKNOWN)


def test_the_history_and_what_was_missed(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe(ORDERS)
    started.connect()
    salesforce.forget_sessions()
    lost = salesforce.publish(ORDERS, {})
    assert salesforce.missed == {ORDERS: [lost]}
    with pytest.raises(AssertionError, match=rf"not delivered: .*{lost}"):
        salesforce.assert_nothing_missed(timeout=0.01)
    assert [each["operation"] for each in salesforce.history] == ["handshake", "subscribe", "connect"]
    assert (salesforce.handshakes, salesforce.count("connect")) == (1, 1)
