"""Clients of an earlier release at the current server, and the current clients at a server of that release, by the tests that
each has for its own server.

It takes minutes, and needs the history: `make faults` runs it. The Java client is in tests/examples.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.server_process import ROOT
from tests.upgrade.releases import Release, earlier  # noqa: F401 - a fixture

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

LIVE: Final = (
    *(f"tests/client/test_{name}.py" for name in ("live", "settle_live", "requests_live", "unclaimed_live", "consume")),
    *(f"tests/interop/test_{name}.py" for name in ("sessions", "requests", "extensions")),
)
"""The tests of the client in Python, and of the extensions in a browser, that have a real server."""
NEWER: Final = ("nested_too_deeply", "killed_member_of_a_group")
"""What a server of 1.0.0 does not do: name the message that is refused, and give others what an absent member has fetched."""
INSTALLED: Final = ("static/node_modules", "tests/interop/node_modules")


def run(tree: Path, *options: str, environ: Mapping[str, str]) -> None:
    """Run the live tests of a tree, which have to pass."""
    command = (sys.executable, "-m", "pytest", "-q", "-n", "2", "--reruns", "2", *options, *LIVE)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        command, cwd=tree, env={**inherited, **environ}, capture_output=True, text=True, timeout=880, check=False
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout


def test_clients_of_a_release_at_this_server(earlier: Release) -> None:  # noqa: F811
    for each in INSTALLED:
        (earlier.tree / each).symlink_to(ROOT / each)
    # What the tests start finds the current server in the root of the tree, and they themselves the code of the release.
    (earlier.tree / "crewel").symlink_to(ROOT / "app" / "crewel")
    run(earlier.tree, "-o", "pythonpath=app .", environ={})


def test_current_clients_at_a_server_of_a_release(earlier: Release) -> None:  # noqa: F811
    run(
        ROOT,
        "-k",
        " and ".join(f"not {each}" for each in NEWER),
        environ={"CREWEL_TEST_APP": str(earlier.tree / "app")},
    )
