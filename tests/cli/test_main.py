"""The command line as a whole: help, version, exit status."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.command import assert_refused, crewel


def test_version_is_that_of_the_distribution(tmp_path: Path) -> None:
    assert crewel("--version", directory=tmp_path) == (0, f"crewel {version('crewel')}\n", "")


def test_help_lists_the_commands(tmp_path: Path) -> None:
    ended = crewel("--help", directory=tmp_path)
    assert ended.status == 0
    assert "serve" in ended.out
    assert "settings" in ended.out


@pytest.mark.parametrize("arguments", [("sing",), ("serve", "--loud"), ("serve", "--port", "many"), ("settings", "x")])
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = crewel(*arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("Usage: ")
    assert ended.err.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("words", [("sessions", "list"), ("console",)])
@pytest.mark.parametrize("url", ["http://[::1:8080/cometd", "localhost:8081", "http://127.0.0.1:port/cometd"])
def test_what_is_no_address_of_a_server_is_wrong_usage(tmp_path: Path, words: tuple[str, ...], url: str) -> None:
    environ = {"CREWEL_TOKEN": "the-admin-token-of-tests"}
    ended = crewel(*words, "--url", url, directory=tmp_path, environ=environ)
    assert (ended.status, ended.out) == (2, "")
    last = ended.err.splitlines()[-1]
    assert last.endswith(f"--url takes an address such as http://127.0.0.1:8080/cometd, not {url}"), ended


@pytest.mark.parametrize("command", ["serve", "settings"])
def test_a_bad_setting_ends_with_1_and_one_line(tmp_path: Path, command: str) -> None:
    ended = crewel(command, "--set", "bayeux.timeot_ms=1", directory=tmp_path)
    assert_refused(ended, "bayeux.timeot_ms: unknown setting; did you mean bayeux.timeout_ms?")


def test_a_file_that_does_not_exist_ends_with_1_and_one_line(tmp_path: Path) -> None:
    assert_refused(crewel("settings", "--config", "none.toml", directory=tmp_path), "none.toml", "No such file")
