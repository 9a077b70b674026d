"""Builds source distributions and wheels from copies of the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.house.source import ROOT


def copied(copy: Path) -> Path:
    """Copy what a wheel is made from into this directory and return it, because a build writes beside its sources."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("app", "extensions", "pipeline", "static"):
        ignored = shutil.ignore_patterns("node_modules", "__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    return copy


def source_of(checkout: Path) -> Path:
    """Make a source distribution. Raises `CalledProcessError` with what the build printed."""
    script = "from setuptools import build_meta; build_meta.build_sdist('sources')"
    subprocess.run(
        [sys.executable, "-c", script], cwd=checkout, check=True, capture_output=True, text=True, timeout=120
    )
    (made,) = (checkout / "sources").iterdir()
    return made


def built(source: Path, out: Path) -> Path:
    """Build a wheel and return the directory that it is in. Raises `CalledProcessError` with what the build printed."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        out,
        source,
    ]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return out
