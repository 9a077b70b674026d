"""Fail a run that leaves a branch of the pure packages out: `make test-pure` loads this.

Branches are followed only while their modules are imported and while tests run, not while pytest does, which would take as long
as the tests. `uncounted` marks tests whose branches do not count.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
from collections.abc import Generator
from typing import Any, Final

import pytest
from coverage import Coverage

_COVERAGE: Final = pytest.StashKey[Coverage]()
_TRACE: Final = pytest.StashKey[Any]()
"""What follows the branches."""
_REPORT: Final = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Import what is measured."""
    coverage = config.stash[_COVERAGE] = Coverage(data_file=None)
    coverage.start()
    for name in coverage.get_option("run:source"):
        inside = getattr(importlib.import_module(name), "__path__", ())
        for module in pkgutil.walk_packages(inside, f"{name}."):
            importlib.import_module(module.name)
    config.stash[_TRACE] = sys.gettrace()
    sys.settrace(None)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Follow a test that counts."""
    if item.get_closest_marker("uncounted"):
        return (yield)
    sys.settrace(item.config.stash[_TRACE])
    try:
        return (yield)
    finally:
        sys.settrace(None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail if something is left out."""
    coverage, report = session.config.stash[_COVERAGE], io.StringIO()
    coverage.stop()
    total = coverage.report(file=report)
    session.config.stash[_REPORT] = report.getvalue()
    if total < coverage.get_option("report:fail_under") and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what is left out."""
    terminalreporter.write(terminalreporter.config.stash[_REPORT])
