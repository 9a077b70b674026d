"""`crewel request` and `crewel reply`, each in a process of its own."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from crewel.client.sync import Client as SyncClient
from tests.cli.command import Ended, Running, assert_refused, crewel
from tests.server_process import LIMIT_S, Server
from tests.template import Command

SERVICE = "tests.client.services"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(["--port=0", f"--service={SERVICE}"], tmp_path_factory.mktemp("server"))
    yield server
    server.end_well()


@pytest.fixture
def replying(server: Server, tmp_path: Path) -> Iterator[Any]:
    """Start `crewel reply` and wait until it listens."""
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        running = Running("reply", f"--url={server.url}", *arguments, directory=tmp_path)
        started.append(running)
        assert running.told().startswith("crewel: replying on ")
        return running

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


@pytest.fixture
def ask(server: Server, tmp_path: Path) -> Any:
    """Run `crewel request` to its end."""

    def run(*arguments: str, given: str | None = None) -> Ended:
        return crewel("request", f"--url={server.url}", *arguments, directory=tmp_path, given=given)

    return run


@pytest.mark.parametrize("data", ['{"n": [1, 2]}', "plain text", "7", "null"])
def test_reply_echo_answers_with_the_data_of_the_request(replying: Any, ask: Any, data: str) -> None:
    echo = replying("/echo", "--echo", "--count=1")
    ended = ask("/echo", data)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == json.dumps(data if data == "plain text" else json.loads(data), separators=(",", ":")) + "\n"
    assert echo.end() == (0, "")


def test_reply_echo_returns_bytes_with_their_type(replying: Any, server: Server) -> None:
    echo = replying("/picture", "--echo", "--count=1")
    with SyncClient(server.url) as client:
        answer = client.request("/picture", b"\0\xff", content_type="image/png", timeout=30)
    assert (answer.content, answer.content_type) == (b"\0\xff", "image/png")
    assert echo.end() == (0, "")


def test_a_named_client_gets_its_answer(replying: Any, ask: Any) -> None:
    echo = replying("/named", "--echo", "--count=1")
    ended = ask("/named", "7", "--name=joe", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert json.loads(ended.out)["data"] == 7
    assert echo.end() == (0, "")


@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
def test_reply_command_answers_with_its_output(replying: Any, ask: Any, transport: str) -> None:
    replying("/sum/*", "--command", "jq -c add || python3 -c 'import json; print(sum(json.load(open(0))))'")
    assert ask("/sum/a", "[1, 2, 3]", f"--transport={transport}") == (0, "6\n", "")
    replying("/told", "--command", 'echo "$CREWEL_CHANNEL of $CREWEL_SENDER"')
    ended = ask("/told", "x")
    assert ended.out.startswith('"/told of client/anonymous/-')


def test_reply_command_that_fails_is_an_error_answer(replying: Any, ask: Any) -> None:
    replying("/strict", "--command", "echo first >&2; echo no such thing >&2; exit 3")
    assert_refused(ask("/strict", "1"), "/strict: user.clientCode (no such thing)")
    replying("/silent", "--command", "exit 3")
    assert_refused(ask("/silent", "1"), "the command ended with 3")


def test_reply_command_is_killed_after_its_timeout(replying: Any, ask: Any) -> None:
    replying("/slow", "--command", "sleep 60", "--timeout-ms=200")
    assert_refused(ask("/slow", "1"), "communication.timeout (the command took longer than 0.2 s)")


def test_reply_works_on_several_requests_at_once(replying: Any, server: Server, tmp_path: Path) -> None:
    # Each waits for the other: one after the other, none would ever end.
    command = 'touch "$(tr -d \\")"; while [ ! -e a ] || [ ! -e b ]; do sleep 0.02; done; echo done'
    replying("/together", "--at-once=2", "--command", command)
    url = f"--url={server.url}"
    asking = [Running("request", "/together", name, url, directory=tmp_path) for name in ("a", "b")]
    assert [(each.said(), each.end()) for each in asking] == [("done", (0, ""))] * 2


def test_request_without_an_answer_in_time_ends_with_1(ask: Any) -> None:
    assert_refused(ask("/nobody", "1", "--timeout-ms=300"), "/nobody: no answer within 0.3 s")


def test_request_prints_the_whole_message_as_json(ask: Any) -> None:
    assert ask("/asked/a", "-", given="12\n") == (0, "144\n", "")
    whole = json.loads(ask("/asked/a", "3", "--json").out)
    assert whole["data"] == 9
    assert whole["channel"].startswith("/ret/")
    assert_refused(ask("/asked/a", "x"), "user.illegalArgument (no number: x)")


def test_reply_ignores_what_is_no_request(replying: Any, ask: Any, server: Server, tmp_path: Path) -> None:
    running = replying("/mixed", "--count=2", "--command", "echo called >> calls; cat")
    assert crewel("pub", "/mixed", "1", f"--url={server.url}", directory=tmp_path).status == 0
    assert ask("/mixed", "2").out == "2\n"
    assert running.end() == (0, "")
    assert (tmp_path / "calls").read_text() == "called\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_reply_ends_with_0_on_a_signal(replying: Any, number: signal.Signals) -> None:
    assert replying("/echo", "--echo").end(number) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("request", "/a"), "DATA"),
        (("request", "/a/*", "1"), "not the name of a channel"),
        (("request", "/a", "1", "--timeout-ms=0"), "--timeout-ms"),
        (("request", "/a", "1", "--to=client/a/b/c"), "not the name of a session"),
        (("reply", "/a"), "either --echo or --command"),
        (("reply", "/a", "--echo", "--command=cat"), "either --echo or --command"),
        (("reply", "a", "--echo"), "not a channel name"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    ended = crewel(*arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err


def test_a_request_of_bytes_that_are_no_utf_8_is_refused(server: Server, tmp_path: Path) -> None:
    arguments = ["request", f"--url={server.url}", "/octets", "-"]
    with Command(arguments, cwd=tmp_path, env=os.environ, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        out, err = process.communicate(b"a\ncaf\xe9", timeout=LIMIT_S)
    assert (process.returncode, out) == (1, b"")
    assert b"standard input is not UTF-8: byte 0xe9 at offset 5, in line 2" in err
