"""The admin token: kept in a file that only its user can read."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewel.errors import SettingsError
from crewel.security.tokens import AdminToken, find_token, keep_token, note_address, read_token, token_file


def test_admin_token_matches_itself_only() -> None:
    token = AdminToken()
    token.know("secret")
    assert token.matches("secret")
    assert not any(map(token.matches, ["", "Secret", "secret ", "secre", "\udc80", "x" * 10000]))


def test_nothing_matches_while_there_is_none() -> None:
    assert not AdminToken().matches("")
    assert not AdminToken().matches("None")


def test_a_new_one_is_made_once_and_kept(tmp_path: Path) -> None:
    place = str(tmp_path / "deep" / "data")
    assert read_token(place) is None
    token = keep_token(place)
    assert len(token) >= 43
    assert keep_token(place) == token == read_token(place)
    assert token_file(place).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in token_file(place).parent.iterdir()] == ["admin.token"]


def test_servers_that_start_at_the_same_time_have_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(keep_token, [str(tmp_path)] * 16))
    assert len(tokens) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["admin.token"]


def test_readable_token_file_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token_file(str(tmp_path)).write_text("abcdefghijklmnop\n")
    token_file(str(tmp_path)).chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert keep_token(str(tmp_path)) == "abcdefghijklmnop"
    assert "can be read by others" in caplog.text
    assert "abc" not in caplog.text


def test_a_kept_one_that_is_too_short_is_refused(tmp_path: Path) -> None:
    token_file(str(tmp_path)).write_text("fifteen-letters\n")
    with pytest.raises(SettingsError, match="a token of 15 characters, but the minimum is 16"):
        keep_token(str(tmp_path))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The data directory of a server on port 8080."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = str(tmp_path / "data")
    keep_token(place)
    note_address(place, "http://127.0.0.1:8080/cometd")
    return place


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [
        ("http://127.0.0.1:8080/cometd", True),
        ("http://localhost:8080/cometd", True),
        ("ws://[::1]:8080/cometd", True),
        ("http://127.0.0.1:8081/cometd", False),
        ("https://127.0.0.1:8080/cometd", False),
        ("http://10.0.0.1:8080/cometd", False),
        ("http://example.org:8080/cometd", False),
        ("http://127.0.0.1.example.org:8080/cometd", False),
        ("http://127.0.0.1/cometd", False),
        ("http://127.0.0.1:x/cometd", False),
        ("127.0.0.1:8080", False),
    ],
)
def test_a_token_is_found_for_the_address_of_its_server_only(kept: str, url: str, is_shown: bool) -> None:
    assert find_token(url, kept) == (read_token(kept) if is_shown else None)


def test_a_token_is_found_from_any_directory(kept: str, tmp_path: Path) -> None:
    assert find_token("http://127.0.0.1:8080/cometd", str(tmp_path / "elsewhere")) == read_token(kept)


def test_a_server_on_all_addresses_is_found_on_loopback(kept: str) -> None:
    note_address(kept, "http://0.0.0.0:9090/cometd")
    assert find_token("http://localhost:9090/cometd", kept) == read_token(kept)
    assert find_token("http://10.0.0.1:9090/cometd", kept) is None
    assert find_token("http://127.0.0.1:8080/cometd", kept) is None


@pytest.mark.parametrize("state", ["ended", "number used again", "on another machine"])
def test_a_server_that_has_ended_is_not_believed_to_have_the_address(kept: str, state: str) -> None:
    url, pid, machine, started = (Path(kept) / "admin.url").read_text().splitlines()
    ended = str(2**22 + 1)  # Linux gives no process a higher number than 2**22
    found = {
        "ended": (ended, machine, started),
        "number used again": (pid, machine, f"{started}0"),
        "on another machine": (ended, f"{machine}0", started),  # a container's, perhaps: nothing is known of it
    }[state]
    (Path(kept) / "admin.url").write_text("\n".join([url, *found]))
    assert find_token(url, kept) == (read_token(kept) if state == "on another machine" else None)


def test_a_note_without_a_process_is_not_believed(kept: str) -> None:
    (Path(kept) / "admin.url").write_text("http://127.0.0.1:8080/cometd\n")
    assert find_token("http://127.0.0.1:8080/cometd", kept) is None


def test_only_the_user_reads_where_servers_are(kept: str) -> None:
    files = [each for each in Path(kept).parent.rglob("*") if each.is_file()]
    assert {each.name for each in files} == {"admin.token", "admin.url", "8080"}
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in files)


def test_a_user_without_a_home_finds_the_token_in_the_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the numeric user of a container, which no list of users has."""
    caplog.set_level("INFO")
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    keep_token(str(tmp_path))
    note_address(str(tmp_path), "http://127.0.0.1:8080/cometd")
    assert caplog.messages == [
        "commands in other directories may not find the admin token: this user has no home directory"
    ]
    assert find_token("http://127.0.0.1:8080/cometd", str(tmp_path)) == read_token(str(tmp_path))
    assert find_token("http://127.0.0.1:8080/cometd", str(tmp_path / "elsewhere")) is None


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="exists"):
        keep_token(str(tmp_path / "file"))
