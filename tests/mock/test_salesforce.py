"""What a test does with the stand-in; the shapes on the wire are in `test_rows`."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from crewel.mock import Salesforce
from tests.mock.wire import ORDERS, Wire

pytestmark = pytest.mark.server


@pytest.fixture
def started(salesforce: Salesforce) -> Wire:
    wire = Wire(salesforce)
    wire.handshake()
    return wire


def events(wire: Wire) -> list[dict[str, Any]]:
    """What is there to deliver: the connect is not held."""
    messages: list[dict[str, Any]] = json.loads(
        wire.ask("connect", connectionType="long-polling", advice={"timeout": 0})
    )
    return messages[:-1]


def test_a_replay_id_may_be_a_text(salesforce: Salesforce, started: Wire) -> None:
    first = salesforce.publish(ORDERS, {})
    salesforce.publish(ORDERS, {})
    assert b'"successful":true' in started.subscribe(ORDERS, replay={ORDERS: str(first)})
    started.connect()
    assert started.connect().count(b"replayId") == 1


def test_editions_are_known_by_name() -> None:
    with pytest.raises(ValueError, match="no edition 'gold'; known are unlimited"):
        Salesforce(edition="gold")


def test_wildcards_of_generic_streaming(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe("/u/news/*")
    started.subscribe("/u/team/**")
    started.connect()
    salesforce.publish("/u/news/sport", 1)
    salesforce.publish("/u/news/sport/tennis", 2)
    salesforce.publish("/u/team/a/b", 3)
    channels = [each["channel"] for each in json.loads(started.connect())]
    assert channels == ["/u/news/sport", "/u/team/a/b", "/meta/connect"]
    salesforce.assert_nothing_missed()


def test_a_generic_event_for_some_users(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe("/u/news")
    started.connect()
    salesforce.publish("/u/news", "not for this user", user_ids=[salesforce.user_id("ann@example.com")])
    mine = salesforce.publish("/u/news", "for this user", user_ids=[salesforce.user_id("user@example.com")])
    assert [each["data"]["event"]["replayId"] for each in json.loads(started.connect())[:-1]] == [mine]
    salesforce.assert_nothing_missed()


def test_the_id_of_an_event_for_some_users_is_a_replay_id_of_theirs(salesforce: Salesforce, started: Wire) -> None:
    ids = [salesforce.publish("/u/news", n, user_ids=[salesforce.user_id("user@example.com")]) for n in range(2)]
    assert b'"successful":true' in started.subscribe("/u/news", replay={"/u/news": ids[0]})
    started.connect()
    assert [each["data"]["event"]["replayId"] for each in events(started)] == ids[1:]


def test_an_option_that_there_is_not_is_refused(salesforce: Salesforce) -> None:
    with pytest.raises(TypeError, match="'Age'"):
        salesforce.publish(ORDERS, {}, Age="80h")
    with pytest.raises(TypeError, match="'second'"):
        salesforce.add_fault("delay", second=5)  # type: ignore[call-arg]
    assert salesforce.publish(ORDERS, {}) == 81


def test_a_delay_of_its_own_length_and_a_fault_that_there_is_not(salesforce: Salesforce, started: Wire) -> None:
    salesforce.add_fault("delay", seconds=0.05)
    assert b'"successful":true' in started.connect()
    with pytest.raises(ValueError, match="no fault 'lag'; known are 502 page"):
        salesforce.add_fault("lag")


def test_a_delayed_response_has_its_cookies_and_counts_its_events(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    salesforce.add_fault("delay", seconds=0.05)
    wire.handshake()
    assert "sfdc-stream" in wire.cookies
    wire.subscribe(ORDERS)
    wire.connect()
    salesforce.publish(ORDERS, {})
    assert b"replayId" in wire.connect()
    salesforce.assert_nothing_missed()


def test_a_page_of_another_site_gets_the_cookie_as_all_do() -> None:
    org = Salesforce()
    org.settings.http.allowed_origins = ["http://app.example.net"]
    with org:
        wire = Wire(org)
        wire.headers["Origin"] = "http://app.example.net"
        wire.handshake()
        assert "BAYEUX_BROWSER" in wire.cookies
        assert b'"successful":true' in wire.connect()


def test_a_soap_login_with_the_wrong_password(salesforce: Salesforce) -> None:
    envelope = b"<env:Envelope><n1:login><n1:username>a</n1:username><n1:password>wrong</n1:password></n1:login>"
    wire = Wire(salesforce)
    assert b"INVALID_LOGIN" in wire.send(envelope, "/services/Soap/u/60.0")
    assert wire.status == 500


def test_a_grant_type_that_there_is_not(salesforce: Salesforce) -> None:
    answer = json.loads(Wire(salesforce).form("/services/oauth2/token", grant_type="guess"))
    assert answer["error"] == "unsupported_grant_type"


def test_records_created_over_rest_are_change_events(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe("/data/AccountChangeEvent")
    started.connect()
    created = json.loads(started.send(b'{"Name":"Acme"}', "/services/data/v60.0/sobjects/Account"))
    header = json.loads(started.connect())[0]["data"]["payload"]["ChangeEventHeader"]
    assert (header["entityName"], header["recordIds"]) == ("Account", [created["id"]])


def test_changes_of_custom_objects_are_on_the_channels_of_salesforce(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe("/data/Employee__ChangeEvent")
    started.subscribe("/data/ns__Team__ChangeEvent")
    started.connect()
    started.send(b'{"Name":"Ann"}', "/services/data/v60.0/sobjects/Employee__c")
    salesforce.publish("/data/ns__Team__ChangeEvent", {"Name": "Red"})
    found = [(each["channel"], each["data"]["payload"]["ChangeEventHeader"]["entityName"]) for each in events(started)]
    assert found == [("/data/Employee__ChangeEvent", "Employee__c"), ("/data/ns__Team__ChangeEvent", "ns__Team__c")]


def test_push_topics_and_generic_channels_are_changed_and_deleted_over_rest(started: Wire) -> None:
    started.subscribe("/data/ChangeEvents")
    started.connect()
    objects = "/services/data/v60.0/sobjects"
    bodies = {"PushTopic": b'{"Name":"Leads","Query":"SELECT Id FROM Lead"}', "StreamingChannel": b'{"Name":"/u/news"}'}
    ids = {name: json.loads(started.send(body, f"{objects}/{name}"))["id"] for name, body in bodies.items()}
    topic, channel = (f"{objects}/{name}/{record}" for name, record in ids.items())
    assert b"Query fields {City}" in started.subscribe("/topic/Leads?City='Rome'")
    assert started.send(b'{"Name":"Rich","Query":"SELECT Id, City FROM Lead"}', topic, "PATCH") == b""
    assert b'"successful":true' in started.subscribe("/topic/Rich?City='Rome'")
    started.send(b'{"Name":"/u/sport"}', channel, "PATCH")
    assert json.loads(started.send(b"", f"{channel}/push", "GET"))["ChannelName"] == "/u/sport"
    for each in (topic, channel):
        assert started.send(b"", each, "DELETE") == b""
        assert started.status == 204
        for method in ("GET", "DELETE", "PATCH"):
            assert b"NOT_FOUND" in started.send(b"{}", each, method)
            assert started.status == 404
    query = urlencode({"q": "SELECT Id FROM PushTopic"})
    assert json.loads(started.send(b"", f"/services/data/v60.0/query?{query}", "GET"))["totalSize"] == 0
    assert events(started) == []


def test_changes_of_records_over_rest_are_change_events(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe("/data/AccountChangeEvent")
    started.connect()
    account = "/services/data/v60.0/sobjects/Account/001A"
    for method, body in (("PATCH", b'{"Name":"Acme","Phone":null}'), ("DELETE", b"")):
        assert started.send(body, account, method) == b""
        assert started.status == 204
    headers = [each["data"]["payload"]["ChangeEventHeader"] for each in json.loads(started.connect())[:-1]]
    assert [
        (each["changeType"], each["recordIds"], each["changedFields"], each["nulledFields"]) for each in headers
    ] == [("UPDATE", ["001A"], ["Name", "Phone"], ["Phone"]), ("DELETE", ["001A"], [], [])]


def test_after_a_revoke_every_resource_asks_for_a_login(salesforce: Salesforce) -> None:
    wire = Wire(salesforce)
    account = "/services/data/v60.0/sobjects/Account/describe"
    assert b"NOT_FOUND" in wire.send(b"", account, "GET")
    assert wire.status == 404
    salesforce.revoke()
    assert b"INVALID_SESSION_ID" in wire.send(b"", account, "GET")
    assert wire.status == 401


def test_a_channel_is_found_by_a_query(started: Wire) -> None:
    started.send(b'{"Name":"/u/news"}', "/services/data/v60.0/sobjects/StreamingChannel")
    query = urlencode({"q": "SELECT Id, Name FROM StreamingChannel WHERE Name = '/u/news'"})
    assert json.loads(started.send(b"", f"/services/data/v60.0/query?{query}", "GET"))["totalSize"] == 1


def test_names_and_texts_of_a_query_may_have_any_case(started: Wire) -> None:
    created = json.loads(started.send(b'{"Name":"Acme","City":"Rome"}', "/services/data/v60.0/sobjects/Account"))
    query = urlencode({"q": f"select id, name, CITY from account where ID = '{created['id']}' limit 1"})
    (found,) = json.loads(started.send(b"", f"/services/data/v60.0/query?{query}", "GET"))["records"]
    assert found["attributes"]["type"] == "Account"
    assert {**found, "attributes": None} == {"attributes": None, "Id": created["id"], "Name": "Acme", "City": "Rome"}
    query = urlencode({"q": "SELECT Id FROM Account WHERE Name = 'ACME'"})
    assert json.loads(started.send(b"", f"/services/data/v60.0/query?{query}", "GET"))["totalSize"] == 1
    assert b'"Acme"' in started.send(b"", f"/services/data/v60.0/sobjects/account/{created['id']}", "GET")


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


def test_what_is_published_after_an_unsubscribe_is_not_missed(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe(ORDERS)
    started.connect()
    started.ask("unsubscribe", id="8", subscription=ORDERS)
    salesforce.publish(ORDERS, {})
    assert salesforce.missed == {}
    started.subscribe(ORDERS)
    later = salesforce.publish(ORDERS, {})
    assert salesforce.missed == {ORDERS: [later]}
    assert [each["data"]["event"]["replayId"] for each in events(started)] == [later]
    salesforce.assert_nothing_missed()


def test_a_client_with_two_sessions_must_get_what_is_published_after_one_unsubscribes(
    salesforce: Salesforce, started: Wire
) -> None:
    """As one does that replaces its session without a gap."""
    started.subscribe(ORDERS)
    started.connect()
    other = Wire(salesforce)
    other.handshake()
    other.subscribe(ORDERS)
    other.connect()
    started.ask("unsubscribe", id="8", subscription=ORDERS)
    later = salesforce.publish(ORDERS, {})
    assert salesforce.missed == {ORDERS: [later]}
    other.ask("unsubscribe", id="9", subscription=ORDERS)
    salesforce.publish(ORDERS, {})
    assert salesforce.missed == {ORDERS: [later]}


def test_a_refused_publish_has_its_error_in_the_history(salesforce: Salesforce, started: Wire) -> None:
    started.send(json.dumps([{"channel": ORDERS, "id": "5", "data": {}, "clientId": started.client_id}]).encode())
    last = salesforce.history[-1]
    assert (last["operation"], last["error"]) == ("publish", "403:denied_by_security_policy:create_denied")


def test_a_subscription_that_is_no_text_is_refused(started: Wire) -> None:
    assert b"400::Channel name not specified" in started.subscribe([1])
    assert b'"successful":false' in started.ask("unsubscribe", id="8", subscription=[1])


def test_a_reset_leaves_nothing_of_the_test_before(salesforce: Salesforce, started: Wire) -> None:
    started.subscribe(ORDERS)
    started.connect()
    salesforce.publish(ORDERS, {})
    salesforce.add_fault("reset")
    salesforce.script("next connect: drop")
    salesforce.reset()
    assert (salesforce.history, salesforce.missed, salesforce.delivered(ORDERS)) == ([], {}, [])
    assert b"403::Unknown client" in started.connect()
    assert b'"successful":true' in started.handshake()
    assert b'"successful":true' in started.subscribe(ORDERS, replay={ORDERS: -2})
    started.connect()
    assert salesforce.publish(ORDERS, {}) == 81
    assert started.connect().count(b"replayId") == 1


def test_a_restart_keeps_the_address_and_the_events(salesforce: Salesforce, started: Wire) -> None:
    url, first = salesforce.url, salesforce.publish(ORDERS, {})
    salesforce.restart()
    assert salesforce.url == url
    assert b"403::Unknown client" in started.connect()
    started.handshake()
    started.subscribe(ORDERS, replay={ORDERS: -2})
    started.connect()
    assert f'"replayId":{first}'.encode() in started.connect()
