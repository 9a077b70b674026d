"""The two forms of log lines, and when each is used."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from crewel import logs
from crewel.cli import main
from crewel.errors import CrewelError
from crewel.settings import load


@pytest.fixture(autouse=True)
def _untouched_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


class Terminal(io.StringIO):
    """A stderr that says it is a terminal, or not."""

    def __init__(self, is_terminal: bool) -> None:
        """Make one."""
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Return what it was made to say."""
        return self._is_terminal


def logged(monkeypatch: pytest.MonkeyPatch, *sets: str, is_terminal: bool = False) -> str:
    """Return what stderr holds after a debug, an info and a failed line."""
    stderr = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.configure(load(overrides=sets, environ={}))
    logger = logging.getLogger("crewel.somewhere")
    logger.debug("detail")
    logger.info("session %s", "opened", extra={"sessions": 3})
    try:
        raise LookupError("no such room")
    except LookupError:
        logger.exception("failed")
    return stderr.getvalue()


def test_a_pipe_gets_one_json_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, failed = map(json.loads, logged(monkeypatch).splitlines())
    time = opened.pop("time")
    assert time.endswith("+00:00")
    assert opened == {"level": "info", "logger": "crewel.somewhere", "message": "session opened", "sessions": 3}
    assert failed["exception"].startswith("Traceback")
    assert failed["exception"].endswith("LookupError: no such room")


def test_a_terminal_gets_lines_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = logged(monkeypatch, is_terminal=True).splitlines()
    assert lines[0].endswith(" info    session opened  sessions=3")
    assert lines[-1] == "LookupError: no such room"


def test_a_chosen_form_wins_over_what_stderr_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logged(monkeypatch, "log.format=json", is_terminal=True).startswith('{"time"')
    assert "info    session opened" in logged(monkeypatch, "log.format=human", is_terminal=False)


def test_the_level_decides_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "detail" not in logged(monkeypatch)
    assert "detail" in logged(monkeypatch, "log.level=debug")
    assert "opened" not in logged(monkeypatch, "log.level=error")


def test_values_that_json_does_not_know_appear_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.configure(load(environ={}))
    logging.getLogger("crewel").warning("odd", extra={"kind": LookupError})
    assert json.loads(stderr.getvalue())["kind"] == "<class 'LookupError'>"


def test_a_text_of_a_client_stays_within_its_line_for_people() -> None:
    record = logging.makeLogRecord(
        {"levelname": "WARNING", "msg": "a letter: %s", "args": ("no\nforged\x1b[2J",), "who": "a\rb"}
    )
    assert logs.HumanFormatter().format(record).endswith(r" a letter: no\nforged\x1b[2J  who=a\rb")


def test_an_error_of_a_command_keeps_its_lines_and_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise CrewelError("refused: no\x1b]0;owned\x07\nsee the log")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit):
        main.run()
    assert capsys.readouterr().err == "crewel: refused: no\\x1b]0;owned\\x07\nsee the log\n"
