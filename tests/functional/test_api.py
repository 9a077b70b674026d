"""`POST /api/publish`: publishing by plain HTTP, with a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import SERVICE
from tests.functional.bayeux import Client, Message, data
from tests.functional.conftest import LANES, Serve, one_lane
from tests.functional.people import Person
from tests.functional.wire import Connection, Response, until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

PATH = "/api/publish"
TOKEN = "the-admin-token-of-tests"
SETS = (f"admin.token={TOKEN}", "bayeux.max_message_bytes=2000", "http.body_timeout_ms=500")
STORED = {"publish": {"persistent": True}}


@pytest.fixture
def server(shared: Serve) -> Server:
    return shared(*SETS)


def post(server: Server, body: Any, token: str | None = TOKEN, **headers: str) -> Response:
    """The response to this body, which is JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    bearer = {"Authorization": f"Bearer {token}"} if token is not None else {}
    connection = Connection(server)
    connection.request("POST", PATH, content, {"Content-Type": "application/json", **bearer, **headers})
    return connection.response()


def answers(server: Server, body: Any, token: str = TOKEN) -> list[Message]:
    return post(server, body, token).messages


def test_a_message_reaches_who_is_subscribed(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    assert answers(server, {"channel": channel, "data": {"n": 1}, "id": "7", "ext": {"mood": "good"}}) == [
        {"channel": channel, "id": "7", "successful": True}
    ]
    (message, _) = client.connect()
    assert message == {"channel": channel, "data": {"n": 1}, "ext": {"mood": "good"}}


@one_lane
def test_only_the_subject_that_has_scheduled_a_message_cancels_it(shared: Serve, tmp_path: Path, channel: str) -> None:
    server = shared(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    joe, ann = (signed(sub=each, publish=[channel]) for each in ("joe", "ann"))
    later = {"publish": {"persistent": True, "deliverAfter": 3_600_000}}
    replies = answers(server, [{"channel": channel, "data": n, "ext": later} for n in range(2)], joe)
    first, second = (reply["ext"]["publish"]["id"] for reply in replies)
    cancels = [{"channel": "/service/cancelScheduled", "data": each} for each in (first, first, second)]
    for token in (ann, TOKEN):
        assert [reply["successful"] for reply in answers(server, cancels, token)] == [False, False, False]
    found = answers(server, cancels[:2], joe)
    assert [reply.get("error") for reply in found] == [None, f"400:{first}:user.schedule.absent"]
    person = Person(server).be("joe/1", token=joe)
    (reply,) = person.send(person.message("/service/cancelScheduled", data=second))
    assert reply["successful"] is True


def test_a_list_is_published_in_its_order_and_answered_one_by_one(server: Server, channel: str) -> None:
    person = Person(server).be()
    person.subscribe(channel)
    messages = [{"channel": channel, "data": n, "ext": STORED if n % 3 else {}} for n in range(20)]
    replies = answers(server, messages)
    assert [reply["successful"] for reply in replies] == [True] * 20
    ids = [int(reply["ext"]["publish"]["id"]) for reply in replies if "ext" in reply]
    assert ids == sorted(set(ids))
    heard = data(person.take_many(20))
    assert sorted(heard) == list(range(20))
    assert [n for n in heard if n % 3] == [n for n in range(20) if n % 3]


def test_what_is_persistent_is_answered_with_its_id_once_it_is_stored(server: Server, channel: str) -> None:
    person = Person(server).be()
    person.subscribe(channel)
    keyed = {"channel": channel, "data": 1, "ext": {"publish": {"persistent": True, "key": "k"}}}
    first, second = answers(server, keyed)[0], answers(server, keyed)[0]
    assert first["ext"]["publish"] == second["ext"]["publish"]
    taken = person.take_many(1) + person.take_all()
    assert [message["id"] for message in taken] == [first["ext"]["publish"]["id"]]


def test_a_message_to_a_service_of_the_server_has_no_destinations(server: Server) -> None:
    person = Person(server).be("ann/1")
    ext = {"publish": {"destination": [{"to": "client/ann/1"}]}}
    (reply,) = answers(server, {"channel": "/service/get", "data": 1, "ext": ext})
    assert (reply["successful"], reply["error"]) == (False, "400:destination:user.illegalArgument")
    assert data(person.take_all()) == []


def test_nobody_shares_the_keys_of_back_ends(server: Server, channel: str) -> None:
    """Else an anonymous client that guesses a key would keep the message from being published."""
    ext = {"publish": {"persistent": True, "key": "k"}}
    taken = Client(server).start().publish(channel, 0, ext=ext)[-1]
    ours = answers(server, {"channel": channel, "data": 1, "ext": ext})[0]
    assert ours["ext"]["publish"]["id"] != taken["ext"]["publish"]["id"]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (5, "400::channel_missing"),
        ([], "400::channel_missing"),
        ({}, "400::channel_missing"),
        ({"channel": "a"}, "405::channel_invalid"),
        ({"channel": "/a/*"}, "405::channel_invalid"),
        ({"channel": "/a", "id": "a b"}, "405::message_id_invalid"),
        ({"channel": "/meta/handshake"}, None),
        ({"channel": "/meta/connect"}, "403:denied_by_security_policy:publish_denied"),
        ({"channel": "/__sys__deadMessage"}, "403:denied_by_security_policy:publish_denied"),
        ({"channel": "/a", "ext": {"publish": 5}}, "400:publish:user.illegalArgument"),
        ({"channel": "/a", "ext": {"publish": None}}, "400:publish:user.illegalArgument"),
        ({"channel": "/a", "ext": {"publish": {"priority": 11}}}, "400:priority:user.illegalArgument"),
        ({"channel": "/a", "ext": {"publish": {"lifeTime": -2}}}, "400:lifeTime:user.illegalArgument"),
        ({"channel": "/service/x", "ext": {"publish": {}}}, "400:publish:user.illegalArgument"),
    ],
)
def test_what_cannot_be_published_is_refused_and_the_rest_goes_on(
    server: Server, channel: str, message: Any, error: str | None
) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    good = {"channel": channel, "data": 1, "ext": STORED}
    response = post(server, [good, message, good])
    if error is None:
        assert response.status == 400  # a handshake is alone in its request, also here
        return
    before, refused, after = response.messages
    assert (before["successful"], refused["successful"], after["successful"]) == (True, False, True)
    assert refused["error"] == error
    received: list[Any] = []
    while len(received) < 2:  # from another node they may come one by one
        received += data(client.connect())
    assert received == [1, 1]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"nonsense", 400),
        (b"[]", 400),
        (b"5", 400),
        (b"\xff\xfe", 400),
        (b"[" * 900, 400),
        (b"x" * 2001, 413),
    ],
)
def test_a_body_that_is_worthless_has_a_status(server: Server, body: bytes, status: int) -> None:
    assert post(server, body).status == status


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"channel": "/a", "data": {"price": NaN}}', b"NaN is no number of JSON, character 3"),
        (b'[{"channel": "/a", "data": -Infinity}]', b"Infinity is no number of JSON, character 28"),
        (b'{"channel": "/a", "data": 1e999}', b"number is infinity"),
        (b"x" * 2001, b"request body too large (bayeux.max_message_bytes is 2000)"),
    ],
)
def test_a_body_that_is_worthless_is_told_what_is_wrong(server: Server, body: bytes, words: bytes) -> None:
    assert words in post(server, body).body


def test_a_body_that_does_not_come_is_not_waited_for(server: Server) -> None:
    connection = Connection(server)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Length": "10"}
    connection.request("POST", PATH, b"", headers)
    assert connection.response().status == 408


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "\u00e9"])
def test_a_token_is_always_asked_for(server: Server, channel: str, token: str | None) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    encoded = token.encode().decode("latin-1") if token is not None else None
    response = post(server, {"channel": channel, "data": 1}, encoded)
    assert response.status == 401
    assert response.header("WWW-Authenticate") == 'Bearer realm="crewel"'
    assert data(client.connect(advice={"timeout": 0})) == []


def test_another_scheme_is_no_token(server: Server) -> None:
    response = post(server, {"channel": "/a"}, None, Authorization=f"Basic {TOKEN}")
    assert response.status == 401


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_another_method_than_post_is_refused(server: Server, method: str) -> None:
    connection = Connection(server)
    connection.request(method, PATH)
    assert connection.response().status == 405


def test_a_listener_of_the_application_is_asked(serve: Serve) -> None:
    server = serve(*SETS, service=SERVICE)
    (refused,) = answers(server, {"channel": "/vetoed", "data": 1})
    assert refused["error"] == "404::message_deleted"


@one_lane
def test_the_token_of_a_server_that_was_given_none_lies_in_its_data_directory(serve: Serve, tmp_path: Path) -> None:
    server = serve(f"storage.data_dir={tmp_path / 'mine'}")
    file = tmp_path / "mine" / "admin.token"
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert answers(server, {"channel": "/a", "data": 1}, token)[0]["successful"] is True
    assert token not in server.stderr


@one_lane
def test_without_a_place_for_a_token_there_is_no_operator(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = serve("storage.enabled=false", f"storage.data_dir={tmp_path / 'file'}")
    assert post(server, {"channel": "/a", "data": 1}, "anything").status == 401
    assert "there is no admin token" in server.stderr


@pytest.mark.parametrize("lane", LANES[:1], indirect=True)
def test_with_the_policy_jwt_a_token_publishes_what_it_grants(serve: Serve, tmp_path: Path) -> None:
    server = serve(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    messages = [{"channel": "/chat/demo", "data": 1, "ext": STORED}, {"channel": "/chat/other", "data": 2}]
    granted, refused = answers(server, messages, signed())
    assert granted["successful"] is True
    assert refused["error"] == "403:denied_by_security_policy:publish_denied"
    for bad in (signed(exp=5), signed(sub=None), signed()[:-5]):
        assert post(server, messages, bad).status == 401
    assert answers(server, {"channel": "/anything", "data": 1})[0]["successful"] is True


def test_a_back_end_addresses_and_configures(server: Server, channel: str) -> None:
    """What a publish over Bayeux may ask for, a back end may ask for too."""
    to = [{"to": "client/waited-for", "forceQueuing": True}, {"to": "client/nobody/1"}]
    replies = answers(
        server,
        [
            {"channel": channel, "ext": {"publish": {"administrative": True, "history": {"maxEntries": 2}}}},
            {"channel": channel, "data": 1, "ext": {"publish": {"destination": to}}},
            {"channel": channel, "data": 2, "ext": {"publish": {"readonly": True, "lifeTime": 60_000}}},
            {"channel": channel, "data": 3, "ext": {"publish": {"priority": 10}}},
            {"channel": f"/service{channel}", "data": 4, "ext": {"publish": {"destination": to[:1]}}},
        ],
    )
    assert [reply["successful"] for reply in replies] == [True, False, True, False, True]
    states = [(each["to"], each["state"]) for each in replies[1]["ext"]["publish"]["destinations"]]
    assert states == [("client/waited-for", "OK"), ("client/nobody/1", "ERROR")]
    assert replies[1]["error"] == "404:client/nobody/1:user.ptp.unknownDestinationSession"
    assert replies[3]["error"] == "400:priority:user.illegalArgument"
    person = Person(server)
    person.shake(name="client/waited-for/1")
    heard: list[Message] = []
    until(lambda: heard.extend(person.take()) or len(heard) == 2)
    assert [(message["channel"], message["data"]) for message in heard] == [(channel, 1), (f"/service{channel}", 4)]
