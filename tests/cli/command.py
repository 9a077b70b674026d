"""Runs `crewel` as a person would, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """What a command that ended left: its status and what it wrote."""

    status: int
    out: str
    err: str


def crewel(
    *arguments: str, directory: Path, environ: Mapping[str, str] | None = None, given: str | None = None
) -> Ended:
    """Run `crewel ARGUMENTS` in `directory` until it ends, with `given` as its standard input."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
    ended = subprocess.run(
        [sys.executable, "-m", "crewel", *arguments],
        cwd=directory,
        env=inherited | {"NO_COLOR": "1"} | dict(environ or {}),
        input=given,
        capture_output=True,
        text=True,
        timeout=20,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def assert_refused(ended: Ended, *words: str) -> None:
    """Assert that the command failed with one line on stderr that holds all `words`, and nothing on stdout."""
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("crewel: ")
    assert ended.err.count("\n") == 1
    for word in words:
        assert word in ended.err
