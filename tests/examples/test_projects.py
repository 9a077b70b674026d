"""That the example projects in Node.js and Java pass their own tests; `make test-examples` installs what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

COMMANDS = {
    "node": (["npm", "test"], "# pass 2"),
    "java": (["mvn", "--batch-mode", "test"], "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0"),
}


@pytest.mark.parametrize("project", COMMANDS)
def test_a_project_passes(project: str) -> None:
    command, passed = COMMANDS[project]
    assert shutil.which(command[0]), f"{command[0]} is missing: `make test-examples` installs it"
    environment = os.environ | {"CREWEL": str(Path(sys.executable).with_name("crewel"))}
    ended = subprocess.run(
        command, cwd=ROOT / "examples" / project, env=environment, capture_output=True, text=True, timeout=880
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    assert passed in ended.stdout
