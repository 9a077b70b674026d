"""Measures how soon servers under test start: `python bench/testing.py`.

Wall clock, and beside it the time of the processor, which other work on the machine changes less.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from crewel.mock import Salesforce
from crewel.testing import serving_in_thread

FIRSTS = 5
FRESH = 500
TEST = f"""
import pytest

@pytest.mark.parametrize("number", range({FRESH}))
def test_fresh(number, crewel):
    assert crewel.state.connected == 0
"""


def in_process(make: Callable[[], AbstractContextManager[Any]]) -> str:
    seconds = []
    for _ in range(FIRSTS):
        began = time.perf_counter()
        with make():
            seconds.append(time.perf_counter() - began)
    return f"the first {seconds[0]:.2f} s, the median of {FIRSTS} {statistics.median(seconds):.2f} s"


def of_children() -> float:
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def mock() -> str:
    seconds, used = [], []
    for _ in range(FIRSTS):
        began, before = time.perf_counter(), of_children()
        command = [sys.executable, "-m", "crewel", "mock", "salesforce"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while not process.stdout.readline().startswith("ready"):
                pass
            seconds.append(time.perf_counter() - began)
            process.terminate()
        used.append(of_children() - before)
    return f"{min(seconds):.2f} to {max(seconds):.2f} s, {statistics.median(used):.2f} s of the processor"


def fresh_servers() -> str:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "test_fresh.py").write_text(TEST)
        began, before = time.perf_counter(), of_children()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            "/dev/null",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            ".",
        ]
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
        assert f"{FRESH} passed" in ended.stdout
        return f"{time.perf_counter() - began:.1f} s, {of_children() - before:.1f} s of the processor"


if __name__ == "__main__":
    print("crewel:", in_process(serving_in_thread))
    print("crewel with a store:", in_process(lambda: serving_in_thread(store=True)))
    print("salesforce:", in_process(Salesforce))
    print("crewel mock salesforce:", mock())
    print(f"{FRESH} tests with a server each:", fresh_servers())
