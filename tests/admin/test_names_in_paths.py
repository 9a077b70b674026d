"""Names in paths: each request acts on what it names, or is refused; whatever clients of HTTP make of the path."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest

from tests.admin.desk import TOKEN, Desk, Receiver
from tests.admin.dotted import DOTTED, KEPT, serving_dotted_names, standing
from tests.cli.command import Ended, assert_refused, crewel
from tests.functional.bayeux import Message
from tests.functional.people import refusal
from tests.functional.wire import Connection, until
from tests.server_process import Server

pytestmark = pytest.mark.server

HOSTILE = (
    ".",
    "..",
    "../b",
    "a/../b",
    "x/../../subjects/eve/messages",
    "%2e%2e/b",
    "a/%2E%2E/b",
    "a%2F..%2Fb",
    "a%252Fb",
    "b%00",
    "b?force=true",
    "b#top",
    "b;v=1",
    "a\\..\\b",
    "..;/b",
    " b",
    "b ",
    "/b",
    "böck",
    "b" * 5000,
)
"""What a path may be led astray by: each stands for the name of a channel, a subject or an id."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_dotted_names(tmp_path_factory.mktemp("old")) as server:
        yield server


@pytest.fixture
def desk(old: Server) -> Desk:
    return Desk(old)


def written(name: str) -> Iterator[str]:
    """The forms that a raw path may have for it: as it is, and encoded in part and in full."""
    for form in (name, quote(name), quote(name, safe="")):
        yield form.encode().decode("latin-1").replace(" ", "%20").replace("#", "%23").replace("?", "%3F")


@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("DELETE", "/topics/{}"),
        ("DELETE", "/history/{}"),
        ("GET", "/topics/{}"),
        ("POST", "/publish/{}"),
        ("GET", "/groups/{}?name=g"),
        ("DELETE", "/subjects/{}/messages"),
        ("POST", "/subjects/{}/kill"),
        ("POST", "/sessions/{}/1/kill"),
        ("POST", "/dead-letters/{}/edit"),
        ("POST", "/jobs/{}/stop"),
        ("GET", "/messages/{}"),
    ],
)
def test_a_hostile_name_in_a_raw_path_acts_on_nothing_else(desk: Desk, method: str, route: str) -> None:
    body = {"data": 1} if route.startswith(("/publish", "/dead-letters")) else None
    for name in HOSTILE:
        before = standing(desk)
        for target in written(name):
            response = desk.ask(method, route.format(target), body)
            if response.status == 200:  # it is the name of a channel
                assert response.json()["channel"] == f"/{name}", target
                assert ".." not in name.split("/"), target
            else:
                assert response.status in (400, 404, 405), (target, response)
                assert b"message" in response.body or response.body == b"not a request in HTTP", (target, response)
        assert standing(desk).items() >= before.items(), name


def test_what_an_older_version_has_stored_under_dots_is_reached_by_the_query(desk: Desk) -> None:
    assert desk.get(f"/topics/_?channel={DOTTED}")["history"]["entries"] == 1
    assert [each["data"] for each in desk.get(f"/history/_?channel={DOTTED}")["messages"]] == [DOTTED]
    assert desk.get("/sessions/_/1?subject=..")["name"] == "client/../1"
    assert desk.get("/sessions/_/1/messages?subject=..")["waiting"] == 1
    assert desk.get("/subjects/_?subject=..")["sessions"] == ["client/../1"]
    assert desk.post("/sessions/_/1/hold?subject=..")["active"] is False
    assert desk.cmd("__cmd:topic/a/../b/?numOfHistoryEntries") == 1


@pytest.mark.parametrize("path", [f"/topics/b?channel={DOTTED}", "/sessions/amy/1?subject=.."])
def test_a_name_is_in_the_path_or_in_the_query(desk: Desk, path: str) -> None:
    response = desk.ask("GET", path)
    assert response.status == 400
    assert "query" in response.json()["message"]


@pytest.mark.parametrize("lane", ["fast", "aiohttp"])
@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("/%6detrics", "%6d: write m"),
        ("/%61dmin/api/sessions", "%61: write a"),
        ("/health/%72eady", "%72: write r"),
        ("/x/../metrics", "segment"),
        ("/x/%2e%2e/metrics", "%2e: write ."),
        ("/x%2F..%2fmetrics", "segment"),
        ("/./admin/", "segment"),
        ("/cometd/%6d", "%6d: write m"),
        ("/cometd/..", "segment"),
        ("/come%74d", "%74: write t"),
    ],
)
def test_a_path_that_a_proxy_may_read_otherwise_is_refused(old: Server, target: str, word: str, lane: str) -> None:
    """A POST of JSON below the Bayeux path is for the fast lane, any other request for aiohttp."""
    with Connection(old) as connection:
        connection.request("POST" if lane == "fast" else "GET", target, b"[]" if lane == "fast" else b"")
        response = connection.response()
    assert response.status == 400
    assert word in response.json()["message"]
    assert response.json()["errorCode"] == "user.illegalArgument"


@pytest.mark.parametrize(
    "target", ["//metrics", "/metrics;x", "/METRICS", "/metrics/", "/metrics%00", "/metrics%3Fx", "//admin/api/nodes"]
)
def test_a_path_that_no_rule_knows_leads_nowhere(old: Server, target: str) -> None:
    with Connection(old) as connection:
        assert connection.get(target).status == 404


def test_an_encoded_tilde_and_a_percent_of_a_query_are_as_before(old: Server) -> None:
    with Connection(old) as connection:
        assert connection.get("/health/live?x=%6d").status == 200
        assert connection.get("/chat/%7E").status == 404


# Over Bayeux


@pytest.mark.parametrize("channel", [DOTTED, "/..", "/a/.", "/a/../", "/service/../x"])
def test_no_client_publishes_or_subscribes_to_a_channel_with_a_dot_segment(old: Server, channel: str) -> None:
    client, many = Receiver(old).be(), [f"/n/{each}" for each in range(200)]
    replies: list[Message] = [
        client.send(client.message(channel, data=1))[0],
        client.send(client.message("/meta/subscribe", subscription=channel))[0],
        client.send(client.message("/meta/subscribe", subscription=[*many, channel]))[0],
        client.send(client.message("/meta/subscribe", subscription=f"{channel.rstrip('/')}/**"))[0],
    ]
    assert [reply["successful"] for reply in replies] == [False] * 4
    assert [reply["error"] for reply in replies] == ["405::channel_invalid", *["403::subscription_invalid"] * 3]


def test_a_subscription_of_before_can_end(old: Server) -> None:
    client = Receiver(old).be()
    (reply,) = client.send(client.message("/meta/unsubscribe", subscription=KEPT))
    assert reply["successful"] is True


@pytest.mark.parametrize("name", ["..", "./1", "client/../1"])
def test_no_client_logs_in_under_a_dot_segment_or_addresses_it(old: Server, name: str) -> None:
    reply = Receiver(old).shake(name=name)
    assert refusal(reply)[1:] == ("user.illegalArgument", "none")
    assert "a URL cannot carry" in reply["ext"]["session"]["message"]
    client = Receiver(old).be()
    sent = client.message("/direct", data=1, ext={"publish": {"destination": [{"to": name}]}})
    (reply,) = client.send(sent)
    assert reply["ext"]["publish"]["errorCode"] == "user.illegalArgument"


# Names that identity providers issue


@pytest.mark.parametrize(
    "subject",
    [
        "auth0|5f7c8ec7c33c6c004bbafe82",
        "_AAb-9xQ_m4T0s2",
        "ann+crewel@example.org",
        "f:0ac4d7e2:ann",
        "samlp|acme|aGVsbG8=",
        "x" * 255,
    ],
    ids=lambda subject: subject[:20],
)
def test_a_subject_of_an_identity_provider_is_a_name_like_others(
    old: Server, desk: Desk, subject: str, tmp_path: Path
) -> None:
    name = f"client/{subject}/1"
    receiver = Receiver(old).be(f"{subject}/1", persistent=True)
    assert receiver.login["name"] == f"/node/heron/{name}"
    speaker = Receiver(old).be()
    for to in (name, f"client/{subject}"):
        qos = {"persistent": True, "destination": [{"to": to, "forceQueuing": to != name}]}
        (reply,) = speaker.send(speaker.message("/service/direct", data=to, ext={"publish": qos}))
        assert reply["successful"] is True, reply
    messages = receiver.take_all()
    assert [each["data"] for each in messages] == [name, f"client/{subject}"]
    receiver.reject(messages)
    letters = until(lambda: found if len(found := desk.letters(f"receiver={quote(name)}")) == 2 else None)
    assert {each["receiver"] for each in letters} == {f"/node/heron/{name}"}
    path = f"/sessions/{quote(subject, safe='')}/1"
    assert desk.get(path)["name"] == name
    assert desk.get(f"/subjects/{quote(subject, safe='')}")["sessions"] == [name]
    assert desk.cmd(f"__cmd:{name}/?dispatcherActive=false") == "OK"
    assert desk.get(path)["active"] is False
    environ = {"CREWEL_URL": old.url, "CREWEL_TOKEN": TOKEN}
    ended = crewel("sessions", "kill", f"{subject}/1", "--no-json", directory=tmp_path, environ=environ)
    assert (ended.status, ended.out) == (0, f"{name}: ended\n")
    directory = tmp_path / "dumped"
    dump = ("dead-letters", "dump", "--dir", str(directory), "--receiver", name)
    assert crewel(*dump, directory=tmp_path, environ=environ).status == 0
    assert len(list(directory.glob("*/*.json"))) == 2


# On the command line


def test_the_command_line_acts_on_what_it_names(old: Server, desk: Desk, tmp_path: Path) -> None:
    environ = {"CREWEL_URL": old.url, "CREWEL_TOKEN": TOKEN}

    def run(*arguments: str) -> Ended:
        return crewel(*arguments, directory=tmp_path, environ=environ)

    before = standing(desk)
    for name in HOSTILE:
        for arguments in (
            ("topics", "erase", f"/{name}", "--yes"),
            ("subjects", "clear", name),
            ("sessions", "kill", f"{name}/2"),
            ("jobs", "stop", name),
            ("dead-letters", "show", name),
            ("message", name),
        ):
            if {arguments[2 if arguments[0] == "topics" else -1], f"client/{arguments[-1]}"} & before.keys():
                continue  # it is there
            ended = run(*arguments)
            assert ended.status in (1, 2), (arguments, ended)
            assert ended.out == ""
            assert "Traceback" not in ended.err
        assert standing(desk) == before, name
    assert run("sessions", "show", "../1", "--json").status == 0
    assert run("subjects", "clear", "..", "--no-json").out == "client/..: 0 messages dropped\n"
    ended = run("topics", "erase", DOTTED, "--yes", "--no-json")
    assert (ended.status, ended.out) == (0, f"{DOTTED}: erased\n")
    assert run("sessions", "kill", "../1").status == 0
    gone = {DOTTED, "client/../1", "client/.."}
    assert standing(desk) == {name: count for name, count in before.items() if name not in gone}


class _Elsewhere(BaseHTTPRequestHandler):
    """A server, or a proxy in front of one, that acts on another topic than the path names."""

    def do_DELETE(self) -> None:
        body = b'{"channel":"/other","state":"DEAD"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_command_line_reports_no_success_for_something_else(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as elsewhere:
        serving = Thread(target=elsewhere.serve_forever, daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{elsewhere.server_port}/cometd"
        ended = crewel("topics", "erase", "/b", "--yes", "--url", url, "--token", TOKEN, directory=tmp_path)
        elsewhere.shutdown()
        serving.join()
    assert_refused(ended, "the answer is about '/other' and not about '/b'")
