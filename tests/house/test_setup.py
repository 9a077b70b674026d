"""That the set-up says in one line what is missing, where it cannot bring it; that a release is made with the Python and the
environment that were asked for; and that `make clean` leaves nothing behind."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house.source import ROOT
from tools.browser import installed

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


CHROMIUM = ("chromium-headless-shell", "chromium")


def test_a_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"chromium-headless-shell": "/usr/bin/chromium-headless-shell"}
    monkeypatch.setattr(shutil, "which", there.get)
    assert installed(CHROMIUM) == "/usr/bin/chromium-headless-shell"
    there.clear()
    with pytest.raises(SystemExit, match=r"^missing: Chromium, none of chromium-headless-shell, chromium is there"):
        installed(CHROMIUM)


def test_tools_that_take_pictures_look_for_the_browser_of_the_tests() -> None:
    tools = [file for file in (ROOT / "tools").glob("*.py") if ".chromium.launch(" in file.read_text("utf-8")]
    assert len(tools) == 2
    assert all(" installed(CHROMIUM)" in file.read_text("utf-8") for file in tools)


def recipe(*words: str) -> str:
    """Return what `make` would run for these words."""
    ended = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def module_of_release(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools" / "release")
    monkeypatch.delitem(sys.modules, name, raising=False)  # it may have read other variables
    return importlib.import_module(name)


def test_a_release_is_tried_with_the_python_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trials = module_of_release("trials", monkeypatch)
    done: list[tuple[object, ...]] = []
    monkeypatch.setattr(trials, "run", lambda *words: done.append(words))
    trials.environment(tmp_path / "new", tmp_path / "lock")
    assert done[0] == (sys.executable, "-m", "venv", tmp_path / "new")


def test_a_release_builds_the_site_in_the_environment_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"^.*tools/release/release\.py.*$", recipe("release", "VENV=.cache/other"), re.MULTILINE)
    monkeypatch.setenv("VENV", command.split()[0].removeprefix("VENV="))
    assert module_of_release("release", monkeypatch).MKDOCS == ROOT / ".cache" / "other" / "bin" / "mkdocs"


def test_a_command_of_a_release_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = module_of_release("commands", monkeypatch)
    with pytest.raises(commands.ReleaseError, match=r"mkdocs build` cannot be run: No such file or directory$"):
        commands.run(tmp_path / "mkdocs", "build")


def test_clean_removes_what_the_other_targets_write() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    written = set(re.findall(r" --(?:outdir|html) ([\w.]+)", makefile))
    assert written == {"dist", "report.html"}
    editable = "app/crewel.egg-info"  # of the installation in .venv
    assert written | {editable, ".cache", "build"} <= set(recipe("clean").split())


def test_a_wheel_is_alone_in_its_directory() -> None:
    """Otherwise the list at the end has the wheels of earlier versions too."""
    removed, built = (recipe("wheel").find(words) for words in ("rm -f dist/crewel-*.whl", "-m build --wheel"))
    assert -1 < removed < built
