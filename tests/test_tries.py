"""That a failed test is tried again within bounds, is named, and still fails the run if it fails each time.

Runs of pytest with the options of the levels that start servers, on small tests in a directory of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import ROOT

pytestmark = pytest.mark.server

TWO = ("--numprocesses=2", "--dist=worksteal")
"""Run in two processes."""
COUNT = """
from pathlib import Path

def count(name):
    with Path(name).open("a") as file:
        file.write("x")
    return len(Path(name).read_text())
"""


def tries_of_makefile() -> list[str]:
    """The options of the levels with several tries, as the Makefile has them."""
    rule = "tries: ; @echo $(TRIES)"
    command = ["make", "--silent", "--no-print-directory", f"--eval={rule}", "tries"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.split()


def run(directory: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run these tests in `directory`, with what every run of the project's tests has."""
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = -ra\n")
    plugins = [f"-p{name}" for name in ("tests.tries", "pytest_timeout", "xdist.plugin", "pytest_rerunfailures")]
    environ = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    (directory / "test_it.py").write_text(COUNT + source)
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir=.", *options]
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=60)


def test_a_test_that_passes_in_a_later_try_is_named_with_its_failure(tmp_path: Path) -> None:
    source = """
def test_shaky():
    assert count("tries") == 3, "the first two"
"""
    ended = run(tmp_path, source, *tries_of_makefile(), *TWO)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("RERUN test_it.py::test_shaky") == 2
    assert "AssertionError: the first two" in ended.stdout
    assert "1 passed, 2 rerun in" in ended.stdout.splitlines()[-1]


def test_a_test_that_fails_in_each_of_three_tries_fails_the_run(tmp_path: Path) -> None:
    source = """
def test_wrong():
    count("tries")
    assert 1 == 2

def test_right():
    pass
"""
    ended = run(tmp_path, source, *tries_of_makefile(), *TWO)
    assert ended.returncode == 1
    assert "FAILED test_it.py::test_wrong" in ended.stdout
    assert "1 failed, 1 passed, 2 rerun in" in ended.stdout.splitlines()[-1]
    assert (tmp_path / "tries").read_text() == "xxx"


def test_without_the_options_a_failed_test_has_one_try(tmp_path: Path) -> None:
    source = """
def test_shaky():
    assert count("tries") == 2
"""
    assert run(tmp_path, source).returncode == 1
    assert (tmp_path / "tries").read_text() == "x"


def test_a_test_that_ends_its_process_each_time_fails_the_run(tmp_path: Path) -> None:
    source = """
import os

def test_deadly():
    os.kill(os.getpid(), 9)
"""
    ended = run(tmp_path, source, *tries_of_makefile(), *TWO)
    assert ended.returncode == 1
    assert "FAILED test_it.py::test_deadly" in ended.stdout


def test_a_failure_while_a_test_is_torn_down_is_tried_again_too(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.fixture
def server():
    yield
    assert count("tries") == 2, "a traceback in its log"

def test_asks(server):
    pass
"""
    ended = run(tmp_path, source, *tries_of_makefile())
    assert ended.returncode == 0, ended.stdout
    assert "a traceback in its log" in ended.stdout
    assert "RERUN test_it.py::test_asks" in ended.stdout


def test_a_shared_server_is_ended_once_and_after_the_last_try(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.fixture(scope="module")
def server():
    count("started")
    yield
    count("ended")

@pytest.fixture(scope="session")
def store():
    yield
    count("store ended")

def test_first(server, store):
    assert count("first") == 2

def test_last(server, store):
    assert not Path("ended").exists()
    assert not Path("store ended").exists()
    assert count("last") == 3
"""
    ended = run(tmp_path, source, *tries_of_makefile())
    assert ended.returncode == 0, ended.stdout
    counted = {name: (tmp_path / name).read_text() for name in ("started", "ended", "store ended")}
    assert counted == {"started": "x", "ended": "x", "store ended": "x"}


def test_a_shared_server_that_did_not_start_is_started_again(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.fixture(scope="module")
def server():
    assert count("started") == 2, "not ready"
    yield
    count("ended")

def test_asks(server):
    pass
"""
    ended = run(tmp_path, source, *tries_of_makefile())
    assert ended.returncode == 0, ended.stdout
    assert (tmp_path / "started").read_text() == "xx"
    assert (tmp_path / "ended").read_text() == "x"


def test_each_try_has_the_whole_time_limit(tmp_path: Path) -> None:
    source = """
import time

def test_hangs():
    assert count("tries") > 1, "the first"
    time.sleep(30)
"""
    ended = run(tmp_path, source, *tries_of_makefile(), "--timeout=0.5")
    assert ended.returncode == 1
    assert (tmp_path / "tries").read_text() == "xxx"
    assert ended.stdout.count("Timeout (>0.5s) from pytest-timeout") >= 2


def test_a_failing_example_of_hypothesis_is_found_in_each_try(tmp_path: Path) -> None:
    source = """
from hypothesis import given, strategies

@given(strategies.integers())
def test_wrong(number):
    assert number < 1000
"""
    ended = run(tmp_path, source, *tries_of_makefile())
    assert ended.returncode == 1
    assert "1 failed, 2 rerun in" in ended.stdout.splitlines()[-1]


def test_no_more_than_twenty_further_tries_are_made_in_a_run(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.mark.parametrize("number", range(15))
def test_wrong(number):
    assert False
"""
    ended = run(tmp_path, source, *tries_of_makefile())
    assert ended.returncode == 1
    assert "15 failed, 20 rerun in" in ended.stdout.splitlines()[-1]
