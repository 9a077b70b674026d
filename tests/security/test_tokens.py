"""The admin token: kept in a file that only its user can read."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewel.security.tokens import AdminToken, keep_token, read_token, token_file


def test_it_matches_itself_and_nothing_else() -> None:
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


def test_one_that_others_can_read_is_complained_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token_file(str(tmp_path)).write_text("abc\n")
    token_file(str(tmp_path)).chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert keep_token(str(tmp_path)) == "abc"
    assert "can be read by others" in caplog.text
    assert "abc" not in caplog.text


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="exists"):
        keep_token(str(tmp_path / "file"))
