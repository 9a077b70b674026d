"""Releases of this package, as they are in the history of the repository."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.template import ROOT

RELEASES: Final = ("1.0.0",)
"""Releases with which the current state works together; add each minor release to them (docs/contributing/releasing.md)."""


class Release(NamedTuple):
    """A release, and where its tree lies."""

    version: str
    tree: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a command needs to be one of this release."""
        return {"PYTHONPATH": str(self.tree / "app")}


@pytest.fixture(scope="session", params=RELEASES)
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Each release in turn. Without a history that has it, the test is skipped."""
    return checked_out(request.param, tmp_path_factory.mktemp("earlier"))


def checked_out(version: str, place: Path) -> Release:
    """A release of the history: its tag, or the commit that gave the package its version."""
    commits = _git("rev-parse", "--quiet", "--verify", f"v{version}^{{commit}}") or _introducing(version)
    if not commits:
        pytest.skip(f"there is no git history with the release {version}")
    files = _git("archive", commits.split()[0].decode())
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(place, filter="data")
    return Release(version, place)


def _introducing(version: str) -> bytes:
    """The commit that gave the package this version. Where the history was cut off, the first one seems to bring everything."""
    is_whole = _git("rev-parse", "--is-shallow-repository").strip() == b"false"
    words = "--reverse", "--format=%H", f'-Sversion = "{version}"', "--", "pyproject.toml"
    return _git("log", *words) if is_whole else b""


def _git(*words: str) -> bytes:
    """What git answers; nothing if there is no repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False).stdout
