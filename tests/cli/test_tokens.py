"""The admin token of commands: found from any directory of its user, and shown to the address of its server only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from crewel.cli.bayeux_client import credential, local_token
from crewel.client import TokenUnavailableError
from tests.admin.desk import SETS
from tests.cli.command import Ended, crewel
from tests.conftest import StartServer
from tests.server_process import STATE, Server

WITHOUT_TOKEN = [text for text in SETS if not text.startswith("admin.token=")]


def ask(server: Server, directory: Path, state: Path | str = STATE) -> Ended:
    """Run an operator's command in this directory, without a token; `state` lists the servers of its user."""
    return crewel("sessions", "list", "--url", server.url, directory=directory, environ={"XDG_STATE_HOME": str(state)})


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"\xff", "cannot be read: it has characters that no token has")],
)
def test_a_token_file_without_a_token_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    """Without a token, a command would be refused, and the reason would not be seen."""
    file = tmp_path / "token"
    given = credential("another", file)
    assert callable(given)
    file.write_bytes(content)
    with pytest.raises(TokenUnavailableError) as raised:
        given()
    assert str(raised.value) == f"the token file {file} {why}"
    file.write_text("secret\n")
    assert given() == "secret"


@pytest.mark.unit
def test_a_directory_that_may_not_be_entered_has_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of root, where a command runs as the user of the server."""
    stat = Path.stat

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path.name == "crewel.toml":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "stat", refused)
    assert local_token("http://127.0.0.1:1/cometd", "") is None


def test_a_command_in_another_directory_finds_the_token(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*WITHOUT_TOKEN)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert (ask(server, elsewhere).status, ask(server, elsewhere).err) == (0, "")


def test_a_command_of_another_user_needs_the_directory_of_the_server(start_server: StartServer, tmp_path: Path) -> None:
    """So it is for root, where a service has a user of its own; the error names the remedy."""
    server = start_server(*WITHOUT_TOKEN)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    refused = ask(server, elsewhere, elsewhere)
    assert refused.status == 1
    assert "run the command in the server's working directory" in refused.err
    assert (ask(server, tmp_path, elsewhere).status, ask(server, tmp_path, elsewhere).err) == (0, "")


def test_a_token_is_shown_to_its_own_server_only(start_server: StartServer, tmp_path: Path) -> None:
    ours = start_server(*WITHOUT_TOKEN)
    theirs = start_server(*WITHOUT_TOKEN, "admin.token=of-another-server")
    assert (tmp_path / "data" / "admin.url").read_text().splitlines()[0] == ours.url
    assert ask(ours, tmp_path).status == 0
    refused = ask(theirs, tmp_path)
    assert refused.status == 1
    assert "--token" in refused.err
    published = crewel("pub", "/a", "1", "--url", theirs.url, directory=tmp_path)
    assert (published.status, published.err) == (0, ""), "a wrong token would be refused"


def test_the_token_of_a_dead_server_is_not_shown_to_the_next_one_on_its_port(
    start_server: StartServer, tmp_path: Path
) -> None:
    ours = start_server(*WITHOUT_TOKEN)
    ours.kill()
    theirs = start_server(*WITHOUT_TOKEN, "admin.token=of-another-server", port=ours.port)
    published = crewel("pub", "/a", "1", "--url", theirs.url, directory=tmp_path, environ={"XDG_STATE_HOME": STATE})
    assert (published.status, published.err) == (0, ""), "a wrong token would be refused"


def test_a_command_that_looks_for_another_port_says_where_the_server_of_the_directory_is(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*WITHOUT_TOKEN)
    hint = f"; the server of this directory: --url {server.url}\n"
    for words in (("console",), ("sessions", "list")):
        ended = crewel(*words, "--url", "http://127.0.0.1:1/cometd", directory=tmp_path)
        assert ended.status == 1
        assert ended.err.endswith(hint), ended
    server.kill()
    assert hint not in crewel("console", "--url", "http://127.0.0.1:1/cometd", directory=tmp_path).err


@pytest.mark.parametrize("words", [("console",), ("sessions", "list")])
def test_a_token_of_the_settings_has_to_be_given(
    start_server: StartServer, tmp_path: Path, words: tuple[str, ...]
) -> None:
    server = start_server(*WITHOUT_TOKEN, "admin.token=of-the-settings-alone")
    (tmp_path / "crewel.toml").write_text('[admin]\ntoken = "of-the-settings-alone"\n')
    for directory, environ in (
        (tmp_path, {}),
        (tmp_path.parent, {"CREWEL_ADMIN__TOKEN": "of-the-settings-alone"}),
    ):
        refused = crewel(*words, "--url", server.url, directory=directory, environ={"XDG_STATE_HOME": STATE} | environ)
        assert refused.status == 1
        assert "give the token of the setting admin.token with --token or CREWEL_TOKEN" in refused.err
        assert "working directory" not in refused.err
        assert "of-the-settings-alone" not in refused.err
