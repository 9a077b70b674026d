"""Runs a page of the documentation as its reader would: its files saved, its commands typed, each block in its terminal.

The title of a block says where it belongs: a file, or a terminal. In a block of a terminal, `$ ` begins a command and the
other lines are its output, in which `…` stands for anything; more lines may come between them. A command that does not end,
such as a server, has done its part when its output is there. A block without a title is of the terminal of the one before.
"""

import os
import pty
import queue
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_S = 60.0
"""How long an output may take before the test fails; nothing waits for it to pass."""
_BLOCK = re.compile(
    r'^(?P<indent> *)```(?P<language>[\w-]+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^(?P=indent)``` *$',
    re.DOTALL | re.MULTILINE,
)
_TAB = re.compile(r'^=== "(?P<label>[^"]+)"$', re.MULTILINE)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_KILL = re.compile(r"\bpkill ")


@dataclass(frozen=True)
class Block:
    """A code block of a page, and the label of its tab, empty outside of tabs."""

    language: str
    title: str
    text: str
    tab: str = ""

    @property
    def is_file(self) -> bool:
        """Whether the page asks the reader to save it."""
        return bool(self.title) and not self.title.startswith("Terminal")

    def commands(self) -> list[tuple[str, list[str]]]:
        """Return each command with the lines of output that the page shows; first, those of a command that still runs."""
        found: list[tuple[str, list[str]]] = [("", [])]
        for line in self.text.replace("\\\n", "").splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line:
                found[-1][1].append(line)
        return found


_LISTS = "crewel dead-letters list"


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, those in tabs too, without the indentation of the tab."""
    text, found = page.read_text("utf-8"), []
    tabs = list(_TAB.finditer(text))
    for each in _BLOCK.finditer(text):
        lines = (line.removeprefix(each["indent"]) for line in each["text"].splitlines(keepends=True))
        tab = next((tab["label"] for tab in reversed(tabs) if tab.start() < each.start()), "") if each["indent"] else ""
        found.append(Block(each["language"], each["title"] or "", "".join(lines), tab))
    return found


class Reader:
    """Somebody with a directory and some terminals, who follows a page."""

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str],
        replaced: Mapping[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        """`replaced` are texts of the page that differ in a test, such as addresses. `limit_s` is the time for a command."""
        self.directory, self._replaced, self._limit_s = directory, dict(replaced or {}), limit_s
        self._environ = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            **environ,
        }
        self._terminals: dict[str, list[Command]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as ends:
            for commands in self._terminals.values():
                for command in commands:
                    ends.callback(command.end)

    def follow(self, page: Path, tab: str = "") -> None:
        """Save the files of the page and type its commands, in order; of its tabs those with this label, or all."""
        terminal = ""
        for block in blocks(page):
            if tab and block.tab not in {"", tab}:
                continue
            if block.is_file:
                file = self.directory / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._here(block.text), "utf-8")
            elif block.language == "console":
                terminal = block.title or terminal
                self._type(terminal, block)

    def _type(self, terminal: str, block: Block) -> None:
        before = self._terminals.setdefault(terminal, [])
        for command, output in block.commands():
            if command:
                if before:
                    before[-1].wait()
                before.append(Command(self._here(command), self.directory, self._environ, self._limit_s))
            if output:
                self._expect(before, [self._here(line) for line in output])
            elif command:
                before[-1].wait()

    def _expect(self, before: list["Command"], output: list[str]) -> None:
        """Wait until the last command has written this. A list is asked for again: a person is slower to ask for it than the
        server is to store what is in it."""
        limit = time.monotonic() + self._limit_s
        while True:
            try:
                return before[-1].expect(output)
            except AssertionError:
                if not before[-1].text.startswith(_LISTS) or time.monotonic() > limit:
                    raise
            before[-1].wait()
            before.append(Command(before[-1].text, self.directory, self._environ, self._limit_s))

    def _here(self, text: str) -> str:
        for shown, here in self._replaced.items():
            text = text.replace(shown, here)
        # Only what this reader started: other tests run servers too.
        sessions = ",".join(str(each.pid) for commands in self._terminals.values() for each in commands)
        return _KILL.sub(f"pkill --session {sessions or '0'} ", text)


class Command:
    """A command that runs in a terminal of its own, with the lines that it has written."""

    def __init__(self, text: str, directory: Path, environ: Mapping[str, str], limit_s: float) -> None:
        self.text, self._limit_s = text, limit_s
        self._screen, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (50, 200))
        self._process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self.pid = self._process.pid
        self._written: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with (
            os.fdopen(self._screen, encoding="utf-8", newline="") as screen,
            suppress(OSError),
        ):  # EIO: all of it has ended
            for line in screen:
                self._lines.put(_ESCAPE.sub("", line).rstrip())
        self._lines.put(None)

    def expect(self, output: list[str]) -> None:
        """Wait until each of these lines has been written, in this order."""
        limit = time.monotonic() + self._limit_s
        for wanted in output:
            pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
            while True:
                try:
                    line = self._lines.get(timeout=max(0.0, limit - time.monotonic()))
                except queue.Empty:
                    line = None
                assert line is not None, f"{self.text!r} did not write {wanted!r}, but:\n{chr(10).join(self._written)}"
                self._written.append(line)
                if pattern.fullmatch(line):
                    break

    def wait(self) -> None:
        """Wait until it has ended, well or by a signal."""
        status = self._process.wait(self._limit_s)
        more = [line for line in list(self._lines.queue) if line is not None]
        assert status in {0, -signal.SIGKILL, 128 + signal.SIGKILL}, (self.text, status, [*self._written, *more])

    def end(self) -> None:
        """End it and what it started, as closing its terminal does."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
