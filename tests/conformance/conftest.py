"""Runs the checks against servers of these tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crewel.conformance.runner import Report, run
from crewel.conformance.wires import Site
from crewel.testing import LoopThread

RunChecks = Callable[..., Report]


@pytest.fixture
def run_checks() -> RunChecks:
    """Run checks against a URL, all or those named `only`. The limit is long: only what fails waits for it."""

    def ran(url: str, limit_s: float = 30, **options: Any) -> Report:
        return asyncio.run(run(Site(url, limit_s=limit_s), **options))

    return ran


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    """A loop in a thread, for servers that are not Crewel's."""
    thread = LoopThread(name="a server under conformance test")
    yield thread
    thread.close()
