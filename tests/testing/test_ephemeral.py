"""`crewel serve --ephemeral`: a server for tests in any language, and its control address."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from crewel.cli.serve import ephemeral_settings
from crewel.settings import Settings, load
from crewel.settings.sources import variable_of
from tests.cli.command import assert_refused, crewel
from tests.store_process import shared_store
from tests.template import Command

pytestmark = pytest.mark.server


class Ephemeral:
    """One `crewel serve --ephemeral`."""

    def __init__(self, directory: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
        self.process = Command(
            ["serve", "--ephemeral", *arguments],
            cwd=directory,
            env=inherited | {"PATH": "", "TMPDIR": str(directory)} | dict(environ or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        words = dict(self.process.stdout.readline().split(maxsplit=1) for _ in range(2))
        assert set(words) == {"control", "ready"}, self.process.communicate()
        self.control, self.url = words["control"].strip(), words["ready"].strip()

    def call(self, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if body else None
        method = "GET" if path in ("/health", "/state", "/letters") else "POST"
        request = urllib.request.Request(self.control + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error) | {"status": error.code}

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, errors
        return errors


@pytest.fixture
def ephemeral(tmp_path: Path) -> Iterator[Ephemeral]:
    server = Ephemeral(tmp_path)
    yield server
    if server.process.poll() is None:
        server.end()


def test_everything_is_reached_over_the_control_address(ephemeral: Ephemeral, tmp_path: Path) -> None:
    assert ephemeral.call("/health") == {"up": True, "url": ephemeral.url}
    assert ephemeral.call("/publish", channel="/orders", data={"no": 1}, persistent=True)["id"]
    assert ephemeral.call("/letters") == {"letters": []}
    assert ephemeral.call("/wait", connected=0)["clients"] == []
    assert ephemeral.call("/wait", channel="/a", subscribers=1, timeout_ms=10)["status"] == 409
    assert ephemeral.call("/clock", advance="30s")["now"] > 30
    assert ephemeral.call("/kill")["up"] is False
    assert ephemeral.call("/restart") == {"up": True, "url": ephemeral.url}
    ephemeral.end()
    assert not list(tmp_path.glob("crewel-*"))


def test_what_cannot_be_done_is_answered_with_the_reason(ephemeral: Ephemeral) -> None:
    assert ephemeral.call("/publish", data=1) == {"error": "channel is missing", "status": 400}
    assert "'three hours' is not a duration" in ephemeral.call("/clock", advance="three hours")["error"]
    assert "channel" in ephemeral.call("/publish", channel="no channel", data=1)["error"]
    assert ephemeral.call("/clock", by="3h")["error"] == "there is no field 'by' here; known are advance, keep_up"
    assert ephemeral.call("/nothing")["error"].startswith("there is no POST /nothing; known are GET /health, ")
    assert ephemeral.call("/nothing")["status"] == 404
    ephemeral.call("/kill")
    assert "restart" in ephemeral.call("/state")["error"]


def test_a_restart_on_a_port_that_was_taken_meanwhile_is_answered_with_the_reason(ephemeral: Ephemeral) -> None:
    ephemeral.call("/kill")
    with socket.create_server(("127.0.0.1", urlsplit(ephemeral.url).port or 0)):
        answer = ephemeral.call("/restart")
    assert answer["status"] == 400
    assert "in use" in answer["error"]
    assert ephemeral.call("/restart") == {"up": True, "url": ephemeral.url}


FOREIGN = [
    ({"Origin": "https://example.org"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Host": "rebound.example.org"}, 421),
]
"""What a web page of a browser on this machine sends, and how it is refused."""


def status_of(url: str, method: str, **headers: str) -> int:
    """The status of a request such as a page can make without a preflight."""
    request = urllib.request.Request(
        url, b"{}" if method == "POST" else None, {"Content-Type": "text/plain", **headers}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_control_address_obeys_no_web_page(tmp_path: Path) -> None:
    """Not even where all pages may talk to the server itself."""
    server = Ephemeral(tmp_path, "--set", "http.allowed_origins=*", "--set", "http.allowed_hosts=*")
    for headers, status in FOREIGN:
        for method, path in (("POST", "/kill"), ("GET", "/state"), ("POST", "/nothing")):
            assert status_of(server.control + path, method, **headers) == status, (headers, path)
    assert server.call("/health") == {"up": True, "url": server.url}
    assert status_of(server.control + "/health", "GET", Origin=server.control) == 200
    server.end()


def test_a_page_that_the_settings_name_may_use_the_control_address(tmp_path: Path) -> None:
    server = Ephemeral(tmp_path, "--set", "http.allowed_origins=http://localhost:5173")
    assert status_of(server.control + "/health", "GET", Origin="http://localhost:5173") == 200
    assert status_of(server.control + "/health", "GET", Origin="http://localhost:5174") == 403
    server.end()


def test_settings_are_set_as_for_any_server(tmp_path: Path) -> None:
    server = Ephemeral(tmp_path, "--set", "storage.enabled=false", "--set", "bayeux.path=/bayeux")
    assert server.url.endswith("/bayeux")
    assert "no store" in server.call("/letters")["error"]
    server.end()


def written(directory: Path, place: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Write the settings of a real server into the file of this directory, or return them as an environment."""
    if place == "environment":
        return {variable_of(name): str(value) for name, value in given.items()}
    (directory / "crewel.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    return {}


REAL: Mapping[str, Any] = {
    "http.host": "0.0.0.0",
    "http.port": 80,
    "security.allow_open": True,
    "admin.notice_webhook": "https://example.org/notices",
    "admin.notice_webhook_token": "secret",
    "delivery.dead_letter_webhook": "https://example.org/letters",
    "delivery.dead_letter_webhook_token": "secret",
    "telemetry.traces": True,
}
"""Where a real server listens, and what it calls."""


@pytest.mark.parametrize("place", ["file", "environment"])
def test_what_a_real_server_calls_is_called_only_if_the_command_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in written(tmp_path, place, REAL).items():
        monkeypatch.setenv(name, value)
    usual = Settings()
    settings = ephemeral_settings(partial(load, None), "here", [])
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 0)
    for name in REAL.keys() - {"http.port", "security.allow_open"}:
        assert attrgetter(name)(settings) == attrgetter(name)(usual), name
    asked = [f"{name}={value}" for name, value in REAL.items()]
    settings = ephemeral_settings(partial(load, None), "here", asked)
    for name, value in REAL.items():
        assert str(attrgetter(name)(settings)) == str(value), name


@pytest.mark.parametrize("place", ["file", "environment"])
def test_keys_are_fetched_only_from_an_address_of_the_command_line(tmp_path: Path, place: str) -> None:
    given = {"security.policy": "jwt", "security.jwt_keys": "http://127.0.0.1:1/keys"}
    environ = written(tmp_path, place, given)
    assert_refused(
        crewel("serve", "--ephemeral", directory=tmp_path, environ=environ),
        "--ephemeral calls no address that a file or the environment names: set security.jwt_keys or",
    )
    for option in ("security.policy=open", "security.jwt_keys=http://127.0.0.1:1/keys"):
        Ephemeral(tmp_path, "--set", option, environ=environ).end()


def test_the_control_address_is_on_loopback_whatever_the_file_says(tmp_path: Path) -> None:
    server = Ephemeral(tmp_path, environ=written(tmp_path, "file", REAL))
    assert {urlsplit(each).hostname for each in (server.url, server.control)} == {"127.0.0.1"}
    server.end()


@pytest.mark.parametrize("place", ["file", "environment"])
def test_the_store_of_a_real_server_is_left_alone(tmp_path: Path, place: str) -> None:
    """Its settings may be in the working directory or the environment, and the control address needs no password."""
    given = {
        "storage.url": shared_store().url,
        "storage.prefix": f"{place}-of-real:",
        "storage.replicas": 1,
        "cluster.enabled": True,
    }
    server = Ephemeral(tmp_path, environ=written(tmp_path, place, given))
    assert server.call("/publish", channel="/orders", data=1, persistent=True)["id"]
    server.end()
    with shared_store().client() as client:
        assert not client.keys(f"{place}-of-real:*")
