"""The demonstration of xmlBlaster's update interface, typed with our commands: a subscriber that wants nothing, a hundred
messages, a look at the dead messages; and then somebody who wants them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Ended, Running, crewel
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import Server

CODE, REASON = "user.update.error", "I don't want this"
REJECTING = ("--update-exception", CODE, "--update-message", REASON)


class Shell:
    """Commands, each in a process of its own."""

    def __init__(self, server: Server, people: Path, operators: Path) -> None:
        self.url = f"--url={server.url}"
        self._people = people
        self._operators = operators  # where the server keeps its admin token, which commands find by themselves
        self._running: list[Running] = []

    def sub(self, *arguments: str) -> Running:
        """Start `crewel sub`, and wait until it is subscribed."""
        running = Running("sub", *arguments, self.url, directory=self._people)
        self._running.append(running)
        assert running.told().startswith("crewel: subscribed to ")
        return running

    def pub(self, *arguments: str) -> Ended:
        return crewel("pub", *arguments, self.url, directory=self._people)

    def dead_letters(self, *arguments: str, err: str = "") -> list[dict[str, object]]:
        """The JSON lines of `crewel dead-letters`, which has to succeed, and to write this to stderr."""
        ended = crewel("dead-letters", *arguments, self.url, directory=self._operators)
        assert (ended.status, ended.err) == (0, err), ended
        return [json.loads(line) for line in ended.out.splitlines()]

    def close(self) -> None:
        for running in self._running:
            running.process.kill()
            running.process.communicate()


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> Server:
    """A server that keeps its admin token in `data`."""
    return start_server(f"storage.data_dir={tmp_path / 'data'}", "node.name=heron")


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Iterator[Shell]:
    """A shell of people who have no admin token, beside one of operators."""
    people = tmp_path / "people"
    people.mkdir()
    shell = Shell(server, people, tmp_path)
    yield shell
    shell.close()


def test_a_hundred_letters_and_who_wants_them(server: Server, shell: Shell, tmp_path: Path) -> None:
    token = (tmp_path / "data" / "admin.token").read_text().strip()
    watching = shell.sub("/__sys__deadMessage", "--token", token, "--count", "100")
    unwilling = shell.sub("/Hello", "--name", "joe/1", *REJECTING)
    assert shell.pub("/Hello", "Hello world", "--count", "100", "--persistent") == (0, "", "")
    assert [unwilling.said()["data"] for _ in range(100)] == ["Hello world"] * 100

    told = [watching.said()["ext"]["update"]["clientProperties"] for _ in range(100)]
    assert watching.end() == (0, "")
    assert {(each["__oid"], each["__errorCode"], each["__deadMessageReason"]) for each in told} == {
        ("/Hello", CODE, REASON)
    }
    letters = shell.dead_letters("list", "--json")
    assert [letter["id"] for letter in letters] == [each["__deadId"] for each in told]
    assert len({letter.pop("id") for letter in letters}) == 100
    assert letters == [
        {"channel": "/Hello", "receiver": "/node/heron/client/joe/1", "errorCode": CODE, "reason": REASON, "attempts": 1,
         "data": "Hello world"}
    ] * 100  # fmt: skip

    assert unwilling.end(signal.SIGINT)[0] == 0
    willing = shell.sub("/Hello", "--name", "joe/1", "--count", "100")
    assert shell.dead_letters("redrive", "--all") == [{"redriven": 100, "undone": []}]
    messages = [willing.said() for _ in range(100)]
    assert {(message["channel"], message["data"]) for message in messages} == {("/Hello", "Hello world")}
    returned = [message["ext"]["update"]["clientProperties"]["__redriveOf"] for message in messages]
    assert returned == [each["__deadId"] for each in told]
    assert willing.end() == (0, "")

    assert shell.dead_letters("list", "--json") == []
    nothing = "crewel: no dead letter matches; nothing was redriven\n"
    assert shell.dead_letters("redrive", "--all", err=nothing) == [{"redriven": 0, "undone": []}]
    until(lambda: figures(server)["crewel_waiting"] == 0)
    assert figures(server)['crewel_ended_total{reason="settled"}'] == 100
