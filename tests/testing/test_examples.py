"""That the example project in Python passes its own tests, as its user runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.source import ROOT

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_the_example_in_python_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "-W", "ignore", "."]
    ended = subprocess.run(command, cwd=ROOT / "examples" / "python", capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "7 passed" in ended.stdout
