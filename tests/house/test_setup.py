"""That the set-up says in one line what is missing, where it cannot bring it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT

pytestmark = pytest.mark.server


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a directory that, as PATH, is a machine with a shell and without apt-get, npm or a browser."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("bash", "env", "id", "echo"):
        found = shutil.which(name)
        assert found
        (directory / name).symlink_to(found)
    return directory


def set_up(tool: str, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "tools" / tool, *arguments], env={"PATH": str(path)}, capture_output=True, text=True, timeout=30
    )


def test_a_missing_command_is_named_with_its_purpose_and_package(bare: Path) -> None:
    ended = set_up("need", "chromium,google-chrome", "the browser tests", "chromium", "fonts-dejavu-core", path=bare)
    assert ended.returncode == 1
    assert ended.stderr == (
        "missing: chromium, needed for the browser tests"
        " (Debian and Ubuntu: apt-get install chromium fonts-dejavu-core)\n"
    )


def test_any_of_several_names_will_do(bare: Path) -> None:
    (bare / "google-chrome").symlink_to("/bin/true")
    assert set_up("need", "chromium,google-chrome", "the browser tests", "chromium", path=bare).returncode == 0


def a_python_that_says(directory: Path, script: str) -> str:
    python = directory / "python3"
    python.write_text(f"#!/usr/bin/env bash\n{script}\n")
    python.chmod(0o755)
    return str(python)


def test_an_old_python_is_named(bare: Path, tmp_path: Path) -> None:
    old = a_python_that_says(bare, '[ "$1" = --version ] && echo "Python 3.9.2"; [ "$1" = --version ]')
    ended = set_up("venv", str(tmp_path / "venv"), old, path=bare)
    assert ended.returncode == 1
    assert f"missing: Python 3.11 or newer; {old} is Python 3.9.2" in ended.stderr


def test_a_missing_venv_module_is_named(bare: Path, tmp_path: Path) -> None:
    script = 'case "$2" in *%d*) echo 3.11;; *ensurepip*) exit 1;; esac'
    ended = set_up("venv", str(tmp_path / "venv"), a_python_that_says(bare, script), path=bare)
    assert ended.returncode == 1
    assert "missing: the venv module" in ended.stderr
    assert "apt-get install python3.11-venv" in ended.stderr
