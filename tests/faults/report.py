"""The report of `make faults`: RESULTS.md beside this file, a row for each test or file of tests, with the commit it ran on.

A plugin of pytest: `make faults` runs pytest several times, and each run with FAULTS=full writes its rows at its end. With
several processes of pytest-xdist, the one that starts them writes. What did not run keeps the row of the run before.
`python -m tests.faults.report STATUS` prints the result of the last `make faults`, and the rows that failed in it. If its
status is 0, all tests have run, so it removes the rows of tests that no longer exist.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

DID: Final = "did"
"""The property of a test that says what it did."""
RESULTS: Final = Path(__file__).parent / "RESULTS.md"
BEGAN: Final = datetime.fromtimestamp(float(os.environ.get("FAULTS_BEGAN") or time.time()), UTC)
"""When `make faults` began, which comes from the Makefile; without it, when this process did."""
_WHEN: Final = "%Y-%m-%d %H:%M"
_TO_THE_MINUTE: Final = timedelta(minutes=1)


@dataclass(slots=True)
class Row:
    """What became of one test, or of all tests of one file."""

    seconds: float = 0.0
    passed: int = 0
    failure: str = ""
    did: str = ""

    def line(self, name: str, when: str) -> str:
        """The row as Markdown."""
        outcome = f"FAILED: {self.failure}" if self.failure else "passed" if self.passed else "skipped"
        did = self.did or (f"{self.passed} passed" if name.endswith(".py`") else "")
        return f"| {name} | {self.seconds:.0f} | {_cell(outcome)} | {_cell(did)} | {_cell(when)} |"


_rows: Final[dict[str, Row]] = defaultdict(Row)


def row_name(node: str) -> str:
    """The row of a test: its own below tests/faults, else that of its file."""
    file, _, test = node.partition("::")
    return f"`{test.rpartition('::')[2] if file.startswith('tests/faults/') else file}`"


def report(rows: dict[str, Row], before: str, commit: str, now: datetime) -> str:
    """The text of RESULTS.md after these tests, from the text before."""
    when = f"{now.strftime(_WHEN)}, {commit}"
    lines = {line.split("|")[1].strip(): line for line in before.splitlines() if line.startswith("| `")}
    lines.update((name, row.line(name, when)) for name, row in rows.items())
    return _text([*lines.values()], now)


def without_earlier(text: str) -> str:
    """The text of RESULTS.md with the rows of the last run only."""
    last = [line for line in text.splitlines() if line.startswith("| `") and _is_of_the_last_run(line)]
    return _text(last, max(map(_ran_at, last)))


def _text(lines: list[str], now: datetime) -> str:
    last = [line for line in lines if _is_of_the_last_run(line)]
    failed = sum(map(_has_failed, lines))
    head = [
        "# Faults: the result of `make faults`",
        "",
        "Written by the runs themselves: the last full run of each test, with the commit that it ran on."
        " [docs/explanation/faults.md](../../docs/explanation/faults.md) tells what is shot at.",
        "",
        f"{len(lines)} rows, {failed} failed; Python {platform.python_version()}, {os.cpu_count()} processors. The last run:"
        f" {len(last)} rows, {sum(map(_has_failed, last))} failed, {(now - BEGAN).total_seconds() / 60:.0f} minutes.",
        "",
        "| test | s | outcome | what it did | when (UTC), on |",
        "| --- | ---: | --- | --- | --- |",
    ]
    return "\n".join([*head, *lines, ""])


class _Failures:
    """Prints a failure at once: pytest itself prints it at the end of the run, which may be an hour later."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._plugins.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid}, {report.when}:\n{report.longreprtext}")


def pytest_configure(config: pytest.Config) -> None:
    """Print failures from the process that starts the others."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(config))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember how each test ended."""
    row = _rows[row_name(report.nodeid)]
    row.seconds += report.duration
    row.passed += report.passed and report.when == "call"
    row.did = next((text for name, text in report.user_properties if name == DID), row.did)
    if report.failed:
        row.failure = (str(report.longrepr).strip().splitlines() or ["?"])[-1]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report of a full run, whatever its outcome was, and also of one that was stopped."""
    is_worker = hasattr(session.config, "workerinput")
    if not _rows or is_worker or os.environ.get("FAULTS") != "full":
        return
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True).stdout.strip()
    before = RESULTS.read_text() if RESULTS.exists() else ""
    RESULTS.write_text(report(_rows, before, commit, datetime.now(UTC)))


def closing(text: str) -> str:
    """What to print at the end: the line of the report with the numbers, and the rows that failed in the last run."""
    numbers = next((line for line in text.splitlines() if "The last run:" in line), "no report")
    failed = [line for line in text.splitlines() if _has_failed(line) and _is_of_the_last_run(line)]
    return "\n".join([f"tests/faults/RESULTS.md: {numbers}", *failed])


def _has_failed(line: str) -> bool:
    return "| FAILED: " in line


def _is_of_the_last_run(line: str) -> bool:
    return _ran_at(line) >= BEGAN - _TO_THE_MINUTE


def _ran_at(line: str) -> datetime:
    """When the test of a row ran, to the minute."""
    return datetime.strptime(line.rstrip("| ").rpartition("| ")[2].partition(",")[0], _WHEN).replace(tzinfo=UTC)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:400]


if __name__ == "__main__":
    if sys.argv[1:] == ["0"]:
        RESULTS.write_text(without_earlier(RESULTS.read_text()))
    print(closing(RESULTS.read_text()))
