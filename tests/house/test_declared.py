"""That each level runs with the packages that it declares, and with no others that are installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.declared import LOCKS
from tests.house.source import ROOT
from tests.levels import LEVELS

pytestmark = pytest.mark.server
IMPORT = """
import pytest


def test_it():
    import yaml
    pytest.importorskip("{module}")
"""


def install(directory: Path, package: str, module: str) -> None:
    """Put an empty package where Python finds it before any other."""
    about = directory / f"{module}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (about / "RECORD").write_text(f"{module}/__init__.py,,\n{about.name}/METADATA,,\n")
    (directory / module).mkdir()
    (directory / module / "__init__.py").write_text("")


@pytest.mark.parametrize(
    ("declared", "module", "outcome"),
    [
        ("python", "deltalake", "1 skipped"),
        ("python pipeline", "deltalake", "1 passed"),
        ("python", "mkdocs", "1 skipped"),
    ],
)
def test_a_package_that_is_not_declared_cannot_be_imported(
    tmp_path: Path, declared: str, module: str, outcome: str
) -> None:
    install(tmp_path, module, module)
    (tmp_path / "test_it.py").write_text(IMPORT.format(module=module))
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "DECLARED": declared}
    command = [sys.executable, "-m", "pytest", "-ptests.declared", "--rootdir=.", "-pno:cacheprovider"]
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert outcome in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_runs_with_what_its_target_installs(level: str) -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", f"test-{level}"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    (declared,) = re.findall(r'^DECLARED="(.*)" \S+ -p tests\.declared ', planned, re.MULTILINE)
    installed = {
        step
        for step, lock in LOCKS.items()
        if re.search(rf"tools/install\.py .* {re.escape(lock)}$", planned, re.MULTILINE)
    }
    assert installed | {"python"} == LOCKS.keys() & set(declared.split())
