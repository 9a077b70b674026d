"""What the fault tests share: how much of them runs, and the report that a full run writes.

`make test` runs a few shots with fixed seeds. `make faults` sets FAULTS=full and runs the full counts; its report is
RESULTS.md beside this file. With several processes of pytest-xdist, the one that starts them writes it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import pytest

from tests.faults.load import Load
from tests.functional.wire import close_connections
from tests.server_process import ROOT

IS_FULL = os.environ.get("FAULTS") == "full"
RESULTS = Path(__file__).parent / "RESULTS.md"

Tell = Callable[[str], None]
_TOLD = "told"
_told: dict[str, str] = {}
_outcomes: dict[str, str] = {}
_seconds: dict[str, float] = {}
_begun = monotonic()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Say in one line what a test did and found out, for the report."""

    def say(text: str) -> None:
        request.node.user_properties.append((_TOLD, text))  # it comes with the report, also from another process
        print(text)

    return say


@pytest.fixture
async def load(request: pytest.FixtureRequest) -> AsyncIterator[Load]:
    """The clients of one run. Its random numbers are those of the parameter `seed`, if the test has it."""
    seed = getattr(request.node, "callspec", None)
    load = Load(random.Random(seed.params.get("seed", 0) if seed else 0))
    yield load
    async with asyncio.timeout(30):
        await load.stop()


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    close_connections()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember how each test ended."""
    if "tests/faults/" not in report.nodeid:
        return
    _told.update((report.nodeid, text) for name, text in report.user_properties if name == _TOLD)
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _outcomes[report.nodeid] = "FAILED: " + (str(report.longrepr).strip().splitlines() or ["?"])[-1]
    elif report.passed and report.when == "call":
        _outcomes[report.nodeid] = "passed"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report of a full run, whatever its outcome was. What did not run keeps the row of the run before."""
    is_worker = hasattr(session.config, "workerinput")
    if IS_FULL and _outcomes and not is_worker and not session.config.option.collectonly:
        RESULTS.write_text(_report(RESULTS.read_text() if RESULTS.exists() else ""))


def _report(before: str) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M}, {commit.strip()}"
    rows = {line.split("|")[1].strip(): line for line in before.splitlines() if line.startswith("| `")}
    for node, outcome in _outcomes.items():
        name = f"`{node.rpartition('::')[2]}`"
        rows[name] = (
            f"| {name} | {_seconds[node]:.0f} | {_cell(outcome)} | {_cell(_told.get(node, ''))} | {_cell(when)} |"
        )
    failed = sum("FAILED" in row for row in rows.values())
    head = [
        "# Faults: the result of `make faults`",
        "",
        "Written by the runs themselves: the last full run of each test, with the commit that it ran on."
        " [docs/explanation/faults.md](../../docs/explanation/faults.md) tells what is shot at.",
        "",
        f"{len(rows)} tests, {failed} failed; Python {platform.python_version()}, {os.cpu_count()} processors. The last run:"
        f" {len(_outcomes)} tests in {(monotonic() - _begun) / 60:.0f} minutes.",
        "",
        "| test | s | outcome | what it did | when (UTC), on |",
        "| --- | ---: | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows.values(), ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:400]
