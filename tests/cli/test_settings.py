"""`crewel settings`: all settings, their values, and where those come from."""

import json
from pathlib import Path

import pytest

from crewel.settings.table import declared
from tests.admin.desk import TOKEN
from tests.cli.command import assert_refused, crewel
from tests.conftest import StartServer
from tests.functional.bayeux import Client


def test_json_has_one_object_a_line_for_each_setting(tmp_path: Path) -> None:
    ended = crewel("settings", "--json", directory=tmp_path)
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.status == 0
    assert [row["name"] for row in rows] == list(declared())
    assert rows[list(declared()).index("bayeux.timeout_ms")] == {
        "name": "bayeux.timeout_ms",
        "value": 30000,
        "unit": "ms",
        "default": 30000,
        "source": "default",
        "live": True,
        "why": declared()["bayeux.timeout_ms"].why,
    }


def test_each_value_shows_its_source(tmp_path: Path) -> None:
    (tmp_path / "crewel.toml").write_text("[bayeux]\ntimeout_ms = 1\ninterval_ms = 1\n")
    environ = {"CREWEL_BAYEUX__INTERVAL_MS": "2"}
    ended = crewel("settings", "--json", "--set", "http.port=3", directory=tmp_path, environ=environ)
    rows = {row["name"]: (row["value"], row["source"]) for row in map(json.loads, ended.out.splitlines())}
    assert rows["bayeux.timeout_ms"] == (1, "toml")
    assert rows["bayeux.interval_ms"] == (2, "env")
    assert rows["http.port"] == (3, "--set")
    assert rows["http.host"] == ("127.0.0.1", "default")


def test_the_table_has_a_line_for_each_setting_even_through_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[bayeux]\nextensions = ["ack", "my_app.extensions:Shout"]\n')
    ended = crewel("settings", "--config", "other.toml", directory=tmp_path)
    heading, *lines = ended.out.splitlines()
    assert heading.split() == ["setting", "value", "unit", "default", "source", "while", "running"]
    assert [line.split()[0] for line in lines] == list(declared())
    extensions = next(line for line in lines if line.startswith("bayeux.extensions"))
    assert extensions.split()[1:] == ["ack,my_app.extensions:Shout", "ack,update,replay,timesync", "toml"]


def test_a_setting_changes_while_the_server_runs(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(f"admin.token={TOKEN}", "bayeux.timeout_ms=60000")
    environ = {"CREWEL_URL": server.url, "CREWEL_TOKEN": TOKEN}
    client = Client(server).start()
    ended = crewel("settings", "set", "bayeux.timeout_ms=40", "--json", directory=tmp_path, environ=environ)
    row = json.loads(ended.out)
    assert (row["name"], row["value"], row["source"]) == ("bayeux.timeout_ms", 40, "operator")
    assert client.connect()[-1]["successful"] is True  # a connect of a minute would not be answered in time
    asked = crewel("settings", "get", "bayeux.timeout_ms", "--json", directory=tmp_path, environ=environ)
    assert json.loads(asked.out) == row
    wrong = crewel("settings", "get", "bayeux.timeot_ms", directory=tmp_path, environ=environ)
    assert_refused(wrong, "bayeux.timeot_ms: unknown setting; did you mean bayeux.timeout_ms?")
    (noted,) = [line for line in server.stderr.splitlines() if "change setting" in line]
    assert "bayeux.timeout_ms" in noted


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("http.port=1", "http.port: cannot change while the server runs"),
        ("bayeux.timeout_ms=soon", "expected a whole number of milliseconds"),
        ("bayeux.time_out_ms=1", "did you mean bayeux.timeout_ms?"),
    ],
)
def test_a_setting_that_cannot_change_refuses_the_whole_request(
    start_server: StartServer, tmp_path: Path, change: str, told: str
) -> None:
    server = start_server(f"admin.token={TOKEN}")
    environ = {"CREWEL_URL": server.url, "CREWEL_TOKEN": TOKEN}
    ended = crewel("settings", "set", "bayeux.interval_ms=7", change, directory=tmp_path, environ=environ)
    assert (ended.status, ended.out) == (1, "")
    assert told in ended.err
    asked = crewel("settings", "get", "bayeux.interval_ms", "--json", directory=tmp_path, environ=environ)
    assert json.loads(asked.out)["value"] == 0
