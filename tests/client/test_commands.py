"""`crewel pub` and `crewel sub`, each in a process of its own."""

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.cli.sub import ConnectionNotices, widest
from crewel.client import Client, Event, State, Transition
from tests.admin.desk import TOKEN, Desk
from tests.cli.command import Running, assert_refused, crewel
from tests.client.support import LIMIT_S, SERVICE
from tests.conftest import StartServer
from tests.functional.people import Person
from tests.functional.wire import figures, until
from tests.security.issuer import SECRET, signed
from tests.server_process import Server
from tests.template import Command

pytestmark = pytest.mark.server


@pytest.fixture
def subscribed(server: Server, tmp_path: Path) -> Iterator[Any]:
    """Start `crewel sub` and wait until it is subscribed."""
    started: list[Running] = []

    def start(*arguments: str, url: str = server.url, **options: Any) -> Running:
        running = Running("sub", f"--url={url}", *arguments, directory=tmp_path, **options)
        started.append(running)
        assert running.told().startswith("crewel: subscribed to ")
        return running

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


def test_what_is_published_is_printed(server: Server, tmp_path: Path, subscribed: Any, transport: str) -> None:
    listening = subscribed("/a/**", "--count=4", f"--transport={transport}")
    for data in ('{"n": 1}', "plain text", "7"):
        given = crewel("pub", "/a/b", data, f"--url={server.url}", f"--transport={transport}", directory=tmp_path)
        assert given == (0, "", "")
    crewel("pub", "/a/c", "null", f"--url={server.url}", directory=tmp_path)
    assert [listening.heard() for _ in range(4)] == [
        {"channel": "/a/b", "data": {"n": 1}},
        {"channel": "/a/b", "data": "plain text"},
        {"channel": "/a/b", "data": 7},
        {"channel": "/a/c", "data": None},
    ]
    assert listening.end() == (0, "")


@pytest.mark.parametrize("ack", ["--ack", "--no-ack"])
def test_the_address_may_come_from_the_environment(server: Server, tmp_path: Path, subscribed: Any, ack: str) -> None:
    listening = subscribed("/env", "--count=2", ack)
    environ = {"CREWEL_URL": server.url.removesuffix("/cometd")}
    ended = crewel("pub", "/env", "1", "--count=2", "--json", directory=tmp_path, environ=environ)
    assert (ended.status, ended.err) == (0, "")
    assert [json.loads(line)["successful"] for line in ended.out.splitlines()] == [True, True]
    assert listening.end() == (0, "")


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_each_line_of_a_pipe_is_a_message(server: Server, tmp_path: Path, subscribed: Any, dash: list[str]) -> None:
    listening = subscribed("/lines", "--count=3")
    publishing = Running("pub", "/lines", *dash, "--count=3", f"--url={server.url}", directory=tmp_path)
    publishing.process.stdin.write('one\n\n{"two": 2}\n3\nnever\n')  # type: ignore[union-attr]
    assert publishing.end() == (0, "")
    assert [listening.said()["data"] for _ in range(3)] == ["one", {"two": 2}, 3]
    assert listening.end() == (0, "")


def test_lines_that_nobody_wants_any_more_are_left(server: Server, tmp_path: Path) -> None:
    # The reader of the lines is at work at the very moment at which the command ends.
    ended = crewel("pub", "/lines", "--count=1", f"--url={server.url}", directory=tmp_path, given="line\n" * 200_000)
    assert ended == (0, "", "")


def test_a_rate_is_kept(server: Server, tmp_path: Path, subscribed: Any) -> None:
    listening = subscribed("/rate", "--count=6")
    assert crewel("pub", "/rate", "1", "--count=6", "--rate=10", f"--url={server.url}", directory=tmp_path).status == 0
    times = [int(listening.said()["ext"]["update"]["rcvTimestamp"]) for _ in range(6)]
    assert times[-1] - times[0] >= 450_000_000, "five pauses of a tenth of a second, in nanoseconds"


@pytest.mark.parametrize("arguments", [("pub", "/a", "1"), ("sub", "/a")])
def test_a_server_that_is_not_there_is_one_line(
    start_server: StartServer, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    server = start_server()
    server.terminate()
    ended = crewel(*arguments, f"--url={server.url}", directory=tmp_path)
    assert_refused(ended, server.url, "connection refused")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pub", "/vetoed", "1"), "/vetoed was refused: 404::message_deleted"),
        (("sub", "/fine", "/closed/a"), "/closed/a was refused: 403:nobody may:"),
    ],
)
def test_a_refusal_is_one_line(server: Server, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert_refused(crewel(*arguments, f"--url={server.url}", directory=tmp_path), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pub", "a", "1"), "not a channel name: 'a': a channel name begins with a slash"),
        (("pub", "/a/*", "1"), "nothing can be published to /a/*, which is a wildcard"),
        (("pub", "/meta/x", "1"), "which is a meta channel"),
        (("pub", "/a", "1", "--count=0"), "--count"),
        (("pub", "/a", "1", "--transport=pigeon"), "pigeon"),
        (("sub",), "CHANNEL"),
        (("sub", "/a", "b"), "not a channel name"),
        (("sub", "/a", "--url=ftp://a/b"), "not an http or ws URL"),
        (("sub", "/a", "--url=ftp://joe:secret@a/b"), "not an http or ws URL: ftp://a/b"),
        (("sessions", "list", "--url=ftp://joe:secret@a/b"), "not ftp://a/b"),
        (("sessions", "list", "--url=http://joe:secret@"), "not http://"),
        (("sub", "/a", "--update-exception=user.x", "--oneway"), "--update-exception needs --ack"),
        (("sub", "/a", "--update-exception=user.x", "--no-ack"), "--update-exception needs --ack"),
        (("sub", "/a", "--settle=later"), "--settle"),
        (("sub", "/a", "--retries=-2"), "--retries"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = crewel(*arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert words in " ".join(ended.err.split())
    assert "secret" not in ended.err


def test_nothing_to_publish_on_a_terminal_is_wrong_usage(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with Command(["pub", "/a"], cwd=tmp_path, stdin=theirs, stderr=subprocess.PIPE, text=True) as process:
        _, err = process.communicate(timeout=LIMIT_S)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 2
    assert "DATA is missing" in err


def test_quotes_that_the_shell_took_are_noticed(server: Server, tmp_path: Path) -> None:
    for data, words in (("{bad json", "published as text"), ('{"good": 1}', ""), ("[1]", ""), ("a text", "")):
        code, _, err = crewel("pub", "/fine", data, f"--url={server.url}", directory=tmp_path)
        assert (code, words in err, bool(err)) == (0, True, bool(words)), (data, err)


@pytest.mark.parametrize(
    ("arguments", "number", "status"),
    [
        ((), signal.SIGINT, 0),
        ((), signal.SIGTERM, 0),
        (("--count=5",), signal.SIGINT, 130),
        (("--count=5",), signal.SIGTERM, 143),
    ],
)
async def test_a_signal_says_goodbye_first(
    server: Server, subscribed: Any, arguments: tuple[str, ...], number: signal.Signals, status: int
) -> None:
    async with Client(server.url) as witness:
        gone = await witness.subscribe("/gone")
        assert subscribed("/a", *arguments).end(number) == (status, "")
        assert (await gone.receive(LIMIT_S)).data == "said goodbye"


def test_an_interrupted_pub_does_not_wait_for_its_input(server: Server, tmp_path: Path, subscribed: Any) -> None:
    listening = subscribed("/a")
    publishing = Running("pub", "/a", f"--url={server.url}", directory=tmp_path)
    publishing.process.stdin.write("first\n")  # type: ignore[union-attr]
    publishing.process.stdin.flush()  # type: ignore[union-attr]
    assert listening.said()["data"] == "first"
    publishing.process.send_signal(signal.SIGTERM)
    assert publishing.process.wait(LIMIT_S) == 143
    assert publishing.end() == (143, "")


def test_a_reader_that_has_had_enough_is_no_error(server: Server, tmp_path: Path, subscribed: Any) -> None:
    listening = subscribed("/a")
    listening.process.stdout.close()
    listening.process.stdout = None
    crewel("pub", "/a", "1", "--count=3", f"--url={server.url}", directory=tmp_path)
    assert listening.end() == (0, "")


def test_people_get_a_line_that_cannot_steer_their_terminal(server: Server, tmp_path: Path, subscribed: Any) -> None:
    ours, theirs = pty.openpty()
    subscribed("/a", stdout=theirs)
    os.close(theirs)
    data = json.dumps({"evil": "\x1b]0;title\x07", "markup": "[bold]x[/]", "word": "größe"})
    crewel("pub", "/a", data, f"--url={server.url}", directory=tmp_path)
    crewel("pub", "/a", "\x1b[2J", f"--url={server.url}", directory=tmp_path)
    printed = b""
    while printed.count(b"\n") < 2:
        printed += os.read(ours, 4096)
    os.close(ours)
    lines = re.sub(r"\x1b\[[01]m", "", printed.decode()).splitlines()  # the channel is set in bold
    assert lines == [
        '/a  {"evil": "\\u001b]0;title\\u0007", "markup": "[bold]x[/]", "word": "größe"}',
        '/a  "\\u001b[2J"',
    ]


def test_sub_tells_when_it_had_to_start_over(start_server: StartServer, tmp_path: Path, subscribed: Any) -> None:
    server = start_server(service=SERVICE)
    listening = subscribed("/a", "--count=1", url=server.url)
    server.kill()
    assert "the connection is lost" in listening.told()
    start_server(port=server.port)
    assert "the session is lost" in listening.told()
    assert "connected again" in listening.told()
    assert crewel("pub", "/a", "1", f"--url={server.url}", directory=tmp_path).status == 0
    assert listening.heard() == {"channel": "/a", "data": 1}
    assert listening.end() == (0, "")


def test_sub_says_nothing_of_its_first_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """Whenever it starts to listen: before the first connect is answered, or before the handshake."""
    teller = ConnectionNotices()
    for step in (
        Transition(State.HANDSHAKING, State.CONNECTING, Event.HANDSHAKEN, None, "1"),
        Transition(State.CONNECTING, State.CONNECTED, Event.ANSWERED, None, "1"),
    ):
        teller(step)
    assert capsys.readouterr().err == ""


def test_sub_tells_once_that_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    teller = ConnectionNotices()
    for step in (
        Transition(State.CONNECTED, State.RECONNECTING, Event.CONNECTION_LOST, None, "1"),
        Transition(State.RECONNECTING, State.HANDSHAKING, Event.SESSION_LOST, None, "1"),
        Transition(State.HANDSHAKING, State.CONNECTING, Event.HANDSHAKEN, None, "2"),
        Transition(State.CONNECTING, State.CONNECTED, Event.ANSWERED, None, "2"),
        Transition(State.CONNECTED, State.DISCONNECTING, Event.CLOSING, None, "2"),
    ):
        teller(step)
    assert capsys.readouterr().err.splitlines() == [
        "crewel: the connection is lost, trying again",
        "crewel: the session is lost, messages may be missing; trying again",
        "crewel: connected again",
    ]


def test_a_host_that_nobody_knows_is_named(tmp_path: Path) -> None:
    ended = crewel("pub", "/a", "1", "--url=http://nobody.invalid/cometd", directory=tmp_path)
    assert_refused(ended, "http://nobody.invalid/cometd: ")
    assert "unknown error" not in ended.err


@pytest.mark.parametrize(
    ("channels", "wide"),
    [
        (["/a"], ["/a"]),
        (["/a", "/a", "/a/"], ["/a"]),
        (["/a/b", "/a/*"], ["/a/*"]),
        (["/a/*", "/a/**"], ["/a/**"]),
        (["/a/**", "/a/*"], ["/a/**"]),
        (["/a/b/c", "/a/**", "/b"], ["/a/**", "/b"]),
        (["/a/b/*", "/a/*"], ["/a/b/*", "/a/*"]),
        (["/a/b/**", "/a/**"], ["/a/**"]),
        (["/a", "/**"], ["/**"]),
        (["/a", "/a/**"], ["/a", "/a/**"]),
    ],
)
def test_a_channel_that_another_covers_is_not_subscribed_twice(channels: list[str], wide: list[str]) -> None:
    assert widest(channels) == wide


class TestWho:
    def test_pub_stores_and_tells_the_id(self, server: Server, tmp_path: Path) -> None:
        ended = crewel(
            "pub", "/p", "1", "--url", server.url, "--persistent", "--key", "k", "--count", "2", "--json",
            directory=tmp_path,
        )  # fmt: skip
        assert (ended.status, ended.err) == (0, "")
        ids = [json.loads(line)["ext"]["publish"]["id"] for line in ended.out.splitlines()]
        assert len(set(ids)) == 2
        again = crewel(
            "pub", "/p", "2", "--url", server.url, "--persistent", "--key", "k-2", "--json", directory=tmp_path
        )
        assert json.loads(again.out)["ext"]["publish"]["id"] == ids[1]

    def test_pub_tries_again_until_the_server_is_back(self, start_server: StartServer, tmp_path: Path) -> None:
        server = start_server()
        publishing = Running("pub", "/p", "--url", server.url, "--persistent", "--json", directory=tmp_path)
        assert publishing.process.stdin is not None
        publishing.process.stdin.write("1\n")
        publishing.process.stdin.flush()
        first = publishing.said()["ext"]["publish"]["id"]
        server.kill()
        publishing.process.stdin.write("2\n")
        publishing.process.stdin.flush()
        start_server(*server.store_sets, port=server.port)
        assert int(publishing.said()["ext"]["publish"]["id"]) > int(first)
        assert publishing.end()[0] == 0

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ('{"price": [1, NaN]}', "data.price[1] is NaN, which JSON cannot represent"),
            ("1e999", "data is Infinity, which JSON cannot represent"),
            ("x" * 70_000, "bytes: the server takes requests of at most 65536 bytes (bayeux.max_message_bytes)"),
        ],
    )
    def test_pub_refuses_what_cannot_be_sent(self, server: Server, tmp_path: Path, data: str, words: str) -> None:
        assert_refused(crewel("pub", "/p", data, "--persistent", "--url", server.url, directory=tmp_path), words)

    def test_pub_waits_for_a_server_that_starts_later(self, start_server: StartServer, tmp_path: Path) -> None:
        server = start_server()
        server.terminate()
        publishing = Running("pub", "/p", "1", "--url", server.url, "--persistent", "--json", directory=tmp_path)
        start_server(*server.store_sets, port=server.port)
        assert publishing.said()["successful"]
        assert publishing.end() == (0, "")

    def test_pub_tries_for_as_long_as_it_promises(self, start_server: StartServer, tmp_path: Path) -> None:
        server = start_server()
        server.terminate()
        pub = ("pub", "/p", "1", "--url", server.url)
        began = time.monotonic()
        assert_refused(crewel(*pub, "--persistent", "--timeout-ms=1500", directory=tmp_path), "connection refused")
        assert time.monotonic() - began > 1.5

    def test_request_waits_for_a_server_until_its_time_is_over(self, start_server: StartServer, tmp_path: Path) -> None:
        server = start_server()
        server.terminate()
        began = time.monotonic()
        ended = crewel("request", "/p", "1", "--url", server.url, "--timeout-ms=1000", directory=tmp_path)
        assert_refused(ended, "connection refused")
        assert time.monotonic() - began > 1

    def test_pub_does_not_try_again_what_is_refused(self, server: Server, tmp_path: Path) -> None:
        ended = crewel("pub", "/closed/p", "1", "--url", server.url, "--persistent", directory=tmp_path)
        assert_refused(ended, "403:nobody may")

    def test_sub_has_a_name_and_may_leave_its_session_behind(
        self, server: Server, subscribed: Any, tmp_path: Path
    ) -> None:
        running = subscribed("/named", "--name", "sub/1", "--leave")
        refused = crewel("sub", "/named", "--url", server.url, "--name", "sub/1", directory=tmp_path)
        assert_refused(refused, "403:client/sub/1:user.configuration.identicalClient")
        assert running.end(signal.SIGTERM)[0] == 0
        published = crewel("pub", "/named", "1", "--url", server.url, "--persistent", directory=tmp_path)
        assert published.status == 0

    def test_sub_that_comes_back_prints_all_that_waited(self, start_server: StartServer, subscribed: Any) -> None:
        sets = (f"admin.token={TOKEN}", "bayeux.timeout_ms=500", "bayeux.max_interval_ms=100", "bayeux.sweep_ms=50")
        server = start_server(*sets)
        again = ("/back/a", "/back/b", "/back/c", "--name=sub/1", "--leave", "--count=10")
        assert subscribed(*again, url=server.url).end(signal.SIGTERM)[0] != 0
        publisher = Person(server).be("publisher/1")
        stored: dict[str, Any] = {"persistent": True}
        for number in range(3):
            for channel in again[:3]:
                publisher.publish(channel, number, ext={"publish": stored})
        to = {"destination": [{"to": "client/sub/1"}]}
        publisher.publish("/service/box", 3, ext={"publish": stored | to})
        until(lambda: Desk(server).get("/sessions/sub/1")["state"] != "ALIVE")
        back = subscribed(*again, url=server.url)
        printed = [back.heard() for _ in range(10)]
        assert sorted(((each["channel"], each["data"]) for each in printed), key=lambda each: each[0]) == [
            *((channel, number) for channel in again[:3] for number in range(3)),  # each channel in its order
            ("/service/box", 3),
        ]
        assert back.end() == (0, "")
        until(lambda: figures(server)["crewel_waiting"] == 0)

    def test_a_token_is_given_or_found(self, start_server: StartServer, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("a shared secret that is longer than thirty-two bytes")
        server = start_server("security.policy=jwt", f"security.jwt_keys={secret}", f"storage.data_dir={tmp_path}/mine")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        pub = ("pub", "/p", "1", "--url", server.url)
        assert_refused(crewel(*pub, directory=elsewhere), "accessDenied", "--token or CREWEL_TOKEN sets the token")
        assert_refused(crewel(*pub, "--token", "wrong", directory=elsewhere), "accessDenied")
        (elsewhere / "data").symlink_to(tmp_path / "mine")
        assert crewel(*pub, directory=elsewhere).status == 0
        (tmp_path / "crewel.toml").write_text('[storage]\ndata_dir = "mine"\n')
        assert crewel(*pub, directory=tmp_path).status == 0
        (tmp_path / "crewel.toml").write_text("[storage]\nnonsense = 1\n")
        assert_refused(crewel(*pub, directory=tmp_path), "accessDenied")
        token = (tmp_path / "mine" / "admin.token").read_text().strip()
        assert crewel(*pub, directory=tmp_path, environ={"CREWEL_TOKEN": token}).status == 0

    def test_a_token_is_read_from_a_file(self, start_server: StartServer, tmp_path: Path) -> None:
        keys, kept = tmp_path / "secret", tmp_path / "token"
        keys.write_text(SECRET)
        server = start_server("security.policy=jwt", f"security.jwt_keys={keys}", f"storage.data_dir={tmp_path}/mine")
        pub = ("pub", "/chat/demo", "1", "--url", server.url, "--token-file", str(kept))
        assert_refused(crewel(*pub, directory=tmp_path), f"the token file {kept} cannot be read: No such file")
        kept.write_text(signed(exp=5))
        assert_refused(crewel(*pub, directory=tmp_path), "expired")
        kept.write_bytes(b"\xff")
        assert_refused(crewel(*pub, directory=tmp_path), "it has characters that no token has")
        kept.write_text(signed(operator="view") + "\n")
        assert crewel(*pub, "--token", "wrong", directory=tmp_path) == (0, "", "")
        ask = ("sessions", "list", "--url", server.url)
        assert crewel(*ask, directory=tmp_path, environ={"CREWEL_TOKEN_FILE": str(kept)}).status == 0
        kept.unlink()
        refused = crewel(*ask, directory=tmp_path, environ={"CREWEL_TOKEN_FILE": str(kept)})
        assert_refused(refused, f"the token file {kept} cannot be read: No such file")

    def test_a_token_that_is_refused_is_read_again(
        self, start_server: StartServer, tmp_path: Path, subscribed: Any
    ) -> None:
        """The key has changed, and the server has forgotten the session."""
        keys, kept = tmp_path / "secret", tmp_path / "token"
        keys.write_text(SECRET)
        sets = ("security.policy=jwt", f"security.jwt_keys={keys}", "storage.enabled=false")
        server = start_server(*sets)
        kept.write_text(signed())
        listening = subscribed("/chat/demo", "--name=joe/1", f"--token-file={kept}", "--count=1", url=server.url)
        server.kill()
        changed = SECRET[::-1]
        keys.write_text(changed)
        kept.write_text(signed(changed))
        start_server(*sets, port=server.port)
        while (said := listening.told().strip()) != "crewel: connected again":
            assert "trying again" in said
        pub = ("pub", "/chat/demo", "1", "--url", server.url, "--token-file", str(kept))
        assert crewel(*pub, directory=tmp_path) == (0, "", "")
        assert listening.heard()["data"] == 1
        assert listening.end() == (0, "")


class TestSettling:
    """What `sub` does with what it has printed, seen by the store: what is not settled is owed to the session."""

    def waiting(self, server: Server) -> float:
        return figures(server)["crewel_waiting"]

    def publish(self, server: Server, tmp_path: Path, data: str, *options: str) -> None:
        ended = crewel("pub", "/s", data, "--persistent", *options, f"--url={server.url}", directory=tmp_path)
        assert ended == (0, "", "")

    @pytest.mark.parametrize("settle", ["message", "batch"])
    def test_what_is_printed_is_settled(
        self, start_server: StartServer, tmp_path: Path, subscribed: Any, settle: str
    ) -> None:
        server = start_server()
        listening = subscribed("/s", "--name=joe/1", "--leave", f"--settle={settle}", "--count=3", url=server.url)
        self.publish(server, tmp_path, "1", "--count=2")
        assert [listening.said()["data"] for _ in range(2)] == [1, 1]
        until(lambda: self.waiting(server) == 0)
        self.publish(server, tmp_path, "2")
        assert listening.end()[0] == 0
        if settle == "message":  # the last words of the command; a batch is settled by another connect
            until(lambda: self.waiting(server) == 0)

    def test_a_failure_of_communication_is_repeated_as_often_as_asked(
        self, start_server: StartServer, tmp_path: Path, subscribed: Any
    ) -> None:
        server = start_server()
        options = ("--update-exception=communication.timeout", "--retries=2", "--delay-ms=100")
        listening = subscribed("/s", *options, "--transport=websocket", url=server.url)
        self.publish(server, tmp_path, "1")
        repeats = [listening.said()["ext"]["update"].get("redeliver", 0) for _ in range(3)]
        assert repeats == [0, 1, 2]
        assert "the session is lost" in listening.told()

    @pytest.mark.parametrize("oneway", ["--oneway", "--no-ack"])
    def test_oneway_asks_for_nothing(self, server: Server, tmp_path: Path, subscribed: Any, oneway: str) -> None:
        listening = subscribed("/oneway", oneway, "--count=1")
        crewel("pub", "/oneway", "1", f"--url={server.url}", directory=tmp_path)
        assert listening.said() == {"channel": "/oneway", "data": 1}
        assert listening.end() == (0, "")

    def test_where_nothing_can_be_rejected_that_is_said(self, start_server: StartServer, tmp_path: Path) -> None:
        server = start_server("bayeux.extensions=ack")
        sub = ("sub", "/s", f"--url={server.url}")
        ended = crewel(*sub, "--update-exception=user.update.error", directory=tmp_path)
        assert_refused(ended, "the server lacks `update`")

    def test_where_nothing_can_be_settled_sub_is_what_it_can_be(
        self, start_server: StartServer, tmp_path: Path, subscribed: Any
    ) -> None:
        server = start_server("bayeux.extensions=ack")
        listening = subscribed("/s", "--count=1", url=server.url)
        self.publish(server, tmp_path, "1")
        assert listening.said()["data"] == 1
        assert listening.end() == (0, "")
